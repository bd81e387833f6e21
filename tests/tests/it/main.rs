//! Integration tests. `cargo xtask test` builds and sets what they need.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod adapters;
mod bad_models;
mod cli;
mod contexts;
mod cross;
mod families;
mod gemma;
mod hybrid;
mod needle;
mod off;
mod pair;
mod second_pass;
mod sequences;
mod server;
mod spec;
mod speculative;
mod state;
#[path = "../../vectors/mod.rs"]
mod table;
mod tools;
mod turns;
mod twins;
