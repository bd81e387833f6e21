//! Raw bindings to llama.cpp with the layer-plan patches, and the shim over it.
//!
//! The names are C's. `llama_*`, `gguf_*` and `ggml_*` are declared in the headers of the patched
//! llama.cpp that this crate builds; `rys_*` in `shim/shim.h`.
//!
//! Many llama.cpp functions can throw a C++ exception, and an exception that reaches Rust ends the
//! process. Call the `rys_*` function of the same name where there is one: it turns the exception
//! into a status and a text. The `rys` crate is the safe interface to all of this.

#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    rustdoc::all,
    unsafe_op_in_unsafe_fn,
    unused
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

pub use bindings::*;

/// Gives the version of the layer-plan patches in the linked llama.cpp.
///
/// An unpatched llama.cpp does not have the symbol, so linking one fails and names
/// `llama_layer_plan_abi_v1`.
#[used]
pub static LAYER_PLAN_ABI: unsafe extern "C" fn() -> i32 = llama_layer_plan_abi_v1;
