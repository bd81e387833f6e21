//! Tests of the public interface.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cost;
mod messages;
mod properties;
#[path = "../../../tests/vectors/mod.rs"]
mod table;
mod vectors;
