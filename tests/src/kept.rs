//! States of sequences with llama.cpp's flags, as the server keeps its checkpoints.

use llama_sys as sys;
use rys::Context;

/// llama.cpp's flag for what cannot be cut: recurrent states and caches of sliding windows.
pub const PARTIAL_ONLY: u32 = sys::LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;

/// The bytes of a sequence's state.
pub fn get(ctx: &mut Context, seq: i32, flags: u32) -> Vec<u8> {
    let ctx = ctx.as_ptr();
    // SAFETY: the context is alive and used by nobody else; the buffer is as long as said.
    unsafe {
        let mut state = vec![0; sys::llama_state_seq_get_size_ext(ctx, seq, flags)];
        let n = sys::llama_state_seq_get_data_ext(ctx, state.as_mut_ptr(), state.len(), seq, flags);
        assert!(n > 0 && n <= state.len());
        state.truncate(n);
        state
    }
}

/// Restores a sequence; 0 if it did.
pub fn set(ctx: &mut Context, seq: i32, flags: u32, state: &[u8]) -> i32 {
    // SAFETY: as above.
    let n = unsafe {
        sys::llama_state_seq_set_data_ext(ctx.as_ptr(), state.as_ptr(), state.len(), seq, flags)
    };
    i32::from(n == 0)
}
