//! Integration tests. `cargo xtask test` builds and sets what they need.

mod off;
mod spec;
#[path = "../../vectors/mod.rs"]
mod table;
mod twins;
