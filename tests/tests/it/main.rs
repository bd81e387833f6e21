//! Integration tests. `cargo xtask test` builds and sets what they need.

mod contexts;
mod off;
mod second_pass;
mod spec;
#[path = "../../vectors/mod.rs"]
mod table;
mod twins;
