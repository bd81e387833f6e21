use llama_sys as sys;

use crate::{Pos, SeqId, Token};

/// Tokens to compute together, each with its position, its sequences and whether its output is
/// wanted.
///
/// ```
/// use rys::Batch;
///
/// let mut batch = Batch::prompt(&[1, 2, 3], 0, 0); // positions 0..3 of sequence 0, last output
/// batch.add(7, 3, &[0, 1], true); // position 3, shared by sequences 0 and 1
/// assert_eq!(batch.len(), 4);
/// assert_eq!(batch.n_outputs(), 2);
/// ```
#[derive(Debug, Clone, Default)]
#[doc(alias = "llama_batch")]
pub struct Batch {
    pub(crate) tokens: Vec<Token>,
    pub(crate) pos: Vec<Pos>,
    n_seq: Vec<i32>,
    pub(crate) seqs: Vec<SeqId>,
    outputs: Vec<i8>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// `tokens` at positions `start..` of one sequence, with an output for the last one.
    pub fn prompt(tokens: &[Token], start: Pos, seq: SeqId) -> Self {
        let mut batch = Self::new();
        batch.extend(tokens, start, seq, false);
        if let Some(last) = batch.outputs.last_mut() {
            *last = 1;
        }
        batch
    }

    /// `tokens` at positions `start..` of one sequence, with an output for each.
    pub fn all_outputs(tokens: &[Token], start: Pos, seq: SeqId) -> Self {
        let mut batch = Self::new();
        batch.extend(tokens, start, seq, true);
        batch
    }

    /// Adds one token. It belongs to every sequence in `seqs`, at the same position.
    pub fn add(&mut self, token: Token, pos: Pos, seqs: &[SeqId], output: bool) {
        self.tokens.push(token);
        self.pos.push(pos);
        self.n_seq
            .push(i32::try_from(seqs.len()).unwrap_or(i32::MAX));
        self.seqs.extend_from_slice(seqs);
        self.outputs.push(output.into());
    }

    /// Adds `tokens` at positions `start..` of one sequence.
    pub fn extend(&mut self, tokens: &[Token], start: Pos, seq: SeqId, output: bool) {
        let mut pos = start;
        for &token in tokens {
            self.add(token, pos, &[seq], output);
            pos = pos.saturating_add(1);
        }
    }

    /// Removes all tokens and keeps the memory.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.pos.clear();
        self.n_seq.clear();
        self.seqs.clear();
        self.outputs.clear();
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether the batch has no tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Number of tokens whose output is wanted.
    pub fn n_outputs(&self) -> usize {
        self.outputs.iter().filter(|&&o| o != 0).count()
    }

    pub(crate) fn has_token_without_seq(&self) -> bool {
        self.n_seq.contains(&0)
    }

    /// Runs `f` with a C view of the batch.
    pub(crate) fn with_c<T>(&self, f: impl FnOnce(sys::llama_batch) -> T) -> T {
        let mut at = 0;
        let mut seq_ids: Vec<*mut SeqId> = Vec::with_capacity(self.len() + 1);
        for &n in &self.n_seq {
            seq_ids.push(self.seqs[at..].as_ptr().cast_mut());
            at += n as usize;
        }
        seq_ids.push(std::ptr::null_mut());
        // C's struct has no const; llama.cpp copies the batch and writes nothing
        f(sys::llama_batch {
            n_tokens: self.len() as i32,
            token: self.tokens.as_ptr().cast_mut(),
            embd: std::ptr::null_mut(),
            pos: self.pos.as_ptr().cast_mut(),
            n_seq_id: self.n_seq.as_ptr().cast_mut(),
            seq_id: seq_ids.as_mut_ptr(),
            logits: self.outputs.as_ptr().cast_mut(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_view_points_at_each_tokens_sequences() {
        let mut batch = Batch::new();
        batch.add(5, 0, &[0, 2], false);
        batch.add(6, 1, &[1], true);
        batch.with_c(|c| {
            assert_eq!(c.n_tokens, 2);
            // SAFETY: two tokens, with two and one sequences.
            unsafe {
                assert_eq!(std::slice::from_raw_parts(*c.seq_id, 2), [0, 2]);
                assert_eq!(**c.seq_id.add(1), 1);
                assert!((*c.seq_id.add(2)).is_null());
                assert_eq!(std::slice::from_raw_parts(c.logits, 2), [0, 1]);
            }
        });
    }
}
