//! Tests that need no model file: they make their own.

#![allow(clippy::unwrap_used)]

mod adapter;
mod context;
mod header;
mod load;
mod memory;
mod random;
mod sampling;
mod state;
mod threads;
mod tiny;
mod writer;
