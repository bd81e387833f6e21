use std::env;
use std::ops::{Bound, RangeBounds};

use llama_sys as sys;
use rys_plan::cost::CacheType;

use crate::ffi::call;
use crate::{Context, Error, Pos, Result, SeqId};

/// Sequences in the context's memory. Ranges of positions are half-open; `..` is the whole sequence.
/// Every pass of a repeated layer is cut, copied and shifted along with the others.
impl Context {
    fn memory(&self) -> Result<sys::llama_memory_t> {
        // SAFETY: the context is alive.
        let mem = unsafe { sys::llama_get_memory(self.as_ptr()) };
        if mem.is_null() {
            return Err(Error::invalid("the model keeps no memory between batches"));
        }
        Ok(mem)
    }

    pub(crate) fn has_memory(&self) -> bool {
        self.memory().is_ok()
    }

    /// Removes everything; `data` also zeroes the buffers.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a model without memory.
    #[doc(alias = "llama_memory_clear")]
    pub fn clear(&mut self, data: bool) -> Result<()> {
        let mem = self.memory()?;
        // SAFETY: the context is alive and used by nobody else.
        run("llama_memory_clear", |err| unsafe {
            sys::rys_memory_clear(mem, data, err)
        })
    }

    /// Removes positions of a sequence. `false` if a part cannot be removed, as from a recurrent
    /// state; a whole sequence always can.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a sequence outside `0..n_seq_max` or a model without memory.
    #[doc(alias = "llama_memory_seq_rm")]
    pub fn seq_rm(&mut self, seq: SeqId, range: impl RangeBounds<Pos>) -> Result<bool> {
        let mem = self.memory()?;
        self.require_seq(seq)?;
        let Some((p0, p1)) = c_range(&range)? else {
            return Ok(true);
        };
        let mut removed = false;
        run("llama_memory_seq_rm", |err| {
            // SAFETY: the context is alive and used by nobody else.
            unsafe { sys::rys_memory_seq_rm(mem, seq, p0, p1, &mut removed, err) }
        })?;
        Ok(removed)
    }

    /// Copies positions of a sequence to another one. With a cache for each sequence
    /// (`kv_unified(false)`) only a whole sequence can be copied.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a sequence outside `0..n_seq_max` or a model without memory;
    /// [`Error::Llama`] for a part that cannot be copied, and nothing is changed.
    #[doc(alias = "llama_memory_seq_cp")]
    pub fn seq_cp(&mut self, src: SeqId, dst: SeqId, range: impl RangeBounds<Pos>) -> Result<()> {
        let mem = self.memory()?;
        self.require_seq(src)?;
        self.require_seq(dst)?;
        let Some((p0, p1)) = c_range(&range)? else {
            return Ok(());
        };
        // SAFETY: the context is alive and used by nobody else.
        run("llama_memory_seq_cp", |err| unsafe {
            sys::rys_memory_seq_cp(mem, src, dst, p0, p1, err)
        })
    }

    /// Removes every other sequence.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a sequence outside `0..n_seq_max` or a model without memory.
    #[doc(alias = "llama_memory_seq_keep")]
    pub fn seq_keep(&mut self, seq: SeqId) -> Result<()> {
        let mem = self.memory()?;
        self.require_seq(seq)?;
        // SAFETY: the context is alive and used by nobody else.
        run("llama_memory_seq_keep", |err| unsafe {
            sys::rys_memory_seq_keep(mem, seq, err)
        })?;
        // llama.cpp looks no further than the cache that this sequence is in
        for other in (0..self.n_seq_max().cast_signed()).filter(|&s| s != seq) {
            self.seq_rm(other, ..)?;
        }
        Ok(())
    }

    /// Moves positions of a sequence by `delta`; the K rows of each pass are turned accordingly when
    /// the next batch is decoded.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a sequence outside `0..n_seq_max`, for a model without memory,
    /// for a position that would leave its range, and for one that cannot shift (M-RoPE, sliding windows
    /// without [`swa_full`](crate::ContextParams::swa_full), or a quantized K cache with a head size that is
    /// not a multiple of 64).
    #[doc(alias = "llama_memory_seq_add")]
    pub fn seq_add(&mut self, seq: SeqId, range: impl RangeBounds<Pos>, delta: Pos) -> Result<()> {
        let mem = self.shiftable()?;
        self.require_seq(seq)?;
        let Some((p0, p1)) = c_range(&range)? else {
            return Ok(());
        };
        let last = self.seq_pos_max(seq)?.unwrap_or(0);
        if last.checked_add(delta).is_none() {
            return Err(Error::invalid(format!(
                "position {last} cannot move by {delta}; allowed are 0..{}",
                Pos::MAX
            )));
        }
        // SAFETY: the context is alive and used by nobody else.
        run("llama_memory_seq_add", |err| unsafe {
            sys::rys_memory_seq_add(mem, seq, p0, p1, delta, err)
        })
    }

    /// Divides positions of a sequence by `d`, at least 1.
    ///
    /// # Errors
    ///
    /// As for [`seq_add`](Self::seq_add), and for `d` below 1.
    #[doc(alias = "llama_memory_seq_div")]
    pub fn seq_div(&mut self, seq: SeqId, range: impl RangeBounds<Pos>, d: i32) -> Result<()> {
        let mem = self.shiftable()?;
        self.require_seq(seq)?;
        if d < 1 {
            return Err(Error::invalid(format!(
                "positions divided by {d}; at least 1"
            )));
        }
        let Some((p0, p1)) = c_range(&range)? else {
            return Ok(());
        };
        // SAFETY: the context is alive and used by nobody else.
        run("llama_memory_seq_div", |err| unsafe {
            sys::rys_memory_seq_div(mem, seq, p0, p1, d, err)
        })
    }

    /// Smallest position of a sequence; `None` if it is empty.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a sequence outside `0..n_seq_max` or a model without memory.
    #[doc(alias = "llama_memory_seq_pos_min")]
    pub fn seq_pos_min(&self, seq: SeqId) -> Result<Option<Pos>> {
        let mem = self.memory()?;
        self.require_seq(seq)?;
        let mut pos = -1;
        // SAFETY: the context is alive.
        run("llama_memory_seq_pos_min", |err| unsafe {
            sys::rys_memory_seq_pos_min(mem, seq, &mut pos, err)
        })?;
        Ok((pos >= 0).then_some(pos))
    }

    /// Largest position of a sequence; `None` if it is empty.
    ///
    /// # Errors
    ///
    /// As for [`seq_pos_min`](Self::seq_pos_min).
    #[doc(alias = "llama_memory_seq_pos_max")]
    pub fn seq_pos_max(&self, seq: SeqId) -> Result<Option<Pos>> {
        let mem = self.memory()?;
        self.require_seq(seq)?;
        let mut pos = -1;
        // SAFETY: the context is alive.
        run("llama_memory_seq_pos_max", |err| unsafe {
            sys::rys_memory_seq_pos_max(mem, seq, &mut pos, err)
        })?;
        Ok((pos >= 0).then_some(pos))
    }

    /// Whether positions can be moved.
    #[doc(alias = "llama_memory_can_shift")]
    pub fn can_shift(&self) -> bool {
        // SAFETY: the context is alive.
        self.memory()
            .is_ok_and(|mem| unsafe { sys::llama_memory_can_shift(mem) })
    }

    fn shiftable(&self) -> Result<sys::llama_memory_t> {
        let mem = self.memory()?;
        if !self.can_shift() {
            return Err(Error::invalid(
                "this context cannot move positions; a model with sliding windows needs swa_full",
            ));
        }
        // llama.cpp turns quantized rows back by a matrix that is a null pointer in the other cases
        let n_head = self.model.n_embd_head_k();
        let rotates = n_head.is_multiple_of(64) && env::var_os("LLAMA_ATTN_ROT_DISABLE").is_none();
        let float = [CacheType::F32, CacheType::F16, CacheType::Bf16];
        if !float.contains(&self.types[0]) && !rotates {
            return Err(Error::invalid(format!(
                "this context cannot move positions: its K cache is {} and its heads have {n_head} \
                 elements; llama.cpp shifts a quantized K cache only for multiples of 64 and without \
                 LLAMA_ATTN_ROT_DISABLE",
                self.types[0]
            )));
        }
        Ok(mem)
    }
}

fn run(name: &'static str, f: impl FnOnce(*mut sys::rys_error) -> i32) -> Result<()> {
    call(f)
        .map(drop)
        .map_err(|reason| Error::Llama { call: name, reason })
}

/// C's `[p0, p1)`, with -1 for an open end; `None` for an empty range.
fn c_range(range: &impl RangeBounds<Pos>) -> Result<Option<(Pos, Pos)>> {
    let start = match range.start_bound() {
        Bound::Included(&p) => p,
        Bound::Excluded(&p) => p.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&p) => Some(p.saturating_add(1)),
        Bound::Excluded(&p) => Some(p),
        Bound::Unbounded => None,
    };
    if start < 0 || end.is_some_and(|e| e < 0) {
        return Err(Error::invalid("positions are 0 or larger"));
    }
    // llama.cpp reads 0..0 and 5..5 as ranges of their own kind; an empty range is no operation
    if end.is_some_and(|e| e <= start) {
        return Ok(None);
    }
    Ok(Some((start, end.unwrap_or(-1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_c_pairs() {
        assert_eq!(c_range(&..).unwrap(), Some((0, -1)));
        assert_eq!(c_range(&(3..)).unwrap(), Some((3, -1)));
        assert_eq!(c_range(&(3..7)).unwrap(), Some((3, 7)));
        assert_eq!(c_range(&(3..=7)).unwrap(), Some((3, 8)));
        assert_eq!(c_range(&(..=i32::MAX)).unwrap(), Some((0, i32::MAX)));
        assert_eq!(c_range(&(0..0)).unwrap(), None);
        assert!(c_range(&(-2..3)).is_err());
    }
}
