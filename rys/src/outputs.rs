use std::ptr;
use std::slice;

use llama_sys as sys;

use crate::ffi::{call, or_unknown};
use crate::{Context, Error, Result, SeqId, Token, argmax};

/// Outputs of the last batch.
impl Context {
    /// Logits of a token of the last batch, `n_vocab` values. `i` is its index in the batch; -1 is
    /// the last output, -2 the one before.
    ///
    /// # Errors
    ///
    /// [`Error::Llama`] when the token is not in the batch or its output was not asked for.
    #[doc(alias = "llama_get_logits_ith")]
    pub fn logits(&self, i: i32) -> Result<&[f32]> {
        let mut out = ptr::null_mut();
        // SAFETY: the context is alive and used by one thread.
        let done = call(|err| unsafe { sys::rys_get_logits_ith(self.as_ptr(), i, &mut out, err) });
        // SAFETY: a row of `n_vocab` values, valid until the next call on `&mut self`.
        unsafe { row("llama_get_logits_ith", done, out, self.n_vocab) }
    }

    /// Embedding of a token of the last batch, `n_embd_out` values; indices as for
    /// [`logits`](Self::logits). Needs
    /// [`ContextParams::embeddings`](crate::ContextParams::embeddings) and no pooling.
    ///
    /// # Errors
    ///
    /// [`Error::Llama`] when there is none for this token.
    #[doc(alias = "llama_get_embeddings_ith")]
    pub fn embeddings(&self, i: i32) -> Result<&[f32]> {
        let mut out = ptr::null_mut();
        // SAFETY: the context is alive and used by one thread.
        let done =
            call(|err| unsafe { sys::rys_get_embeddings_ith(self.as_ptr(), i, &mut out, err) });
        // SAFETY: a row of `n_embd_out` values, valid until the next call on `&mut self`.
        unsafe {
            row(
                "llama_get_embeddings_ith",
                done,
                out,
                self.model.n_embd_out(),
            )
        }
    }

    /// Pooled embedding of a sequence of the last batch, `n_embd_out` values; for
    /// [`Pooling::Rank`](crate::Pooling::Rank) the scores.
    ///
    /// # Errors
    ///
    /// [`Error::Llama`] when nothing is pooled or the sequence was not in the batch.
    #[doc(alias = "llama_get_embeddings_seq")]
    pub fn embeddings_seq(&self, seq: SeqId) -> Result<&[f32]> {
        let mut out = ptr::null_mut();
        let done = call(|err| {
            // SAFETY: the context is alive and used by one thread.
            unsafe { sys::rys_get_embeddings_seq(self.as_ptr(), seq, &mut out, err) }
        });
        if done.is_ok() && out.is_null() {
            return Err(Error::Llama {
                call: "llama_get_embeddings_seq",
                reason: "nothing is pooled, or the sequence was not in the last batch".to_owned(),
            });
        }
        // SAFETY: getters of a context that is alive.
        let n = unsafe {
            if sys::llama_pooling_type(self.as_ptr()) == sys::LLAMA_POOLING_TYPE_RANK {
                sys::llama_model_n_cls_out(self.model.as_ptr()) as usize
            } else {
                self.model.n_embd_out()
            }
        };
        // SAFETY: a row of `n` values, valid until the next call on `&mut self`.
        unsafe { row("llama_get_embeddings_seq", done, out, n) }
    }

    /// The most likely next token after token `i` of the last batch; of equals the lowest. Indices
    /// as for [`logits`](Self::logits).
    ///
    /// # Errors
    ///
    /// As for [`logits`](Self::logits).
    pub fn greedy(&self, i: i32) -> Result<Token> {
        Ok(argmax(self.logits(i)?))
    }
}

/// # Safety
///
/// `out` is null or points to `n` floats that live as long as `'a`.
unsafe fn row<'a>(
    call: &'static str,
    done: Result<String, String>,
    out: *const f32,
    n: usize,
) -> Result<&'a [f32]> {
    match done {
        // SAFETY: the caller's promise.
        Ok(_) if !out.is_null() => Ok(unsafe { slice::from_raw_parts(out, n) }),
        Ok(reason) => Err(Error::Llama {
            call,
            reason: or_unknown(reason),
        }),
        Err(reason) => Err(Error::Llama { call, reason }),
    }
}
