//! A job: a model, a context and what is done with it. `tests/reference/job.h` has the C++ side.

use std::path::{Path, PathBuf};

use rys::CacheType;
use serde::Serialize;

use crate::log::Pieces;

/// How the context of a job is made.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Params {
    pub n_ctx: u32,
    pub n_batch: u32,
    pub n_ubatch: u32,
    pub n_seq_max: u32,
    pub n_threads: u32,
    pub kv_unified: bool,
    pub flash_attn: bool,
    /// Lets llama.cpp decide on flash attention instead.
    pub flash_auto: bool,
    pub offload_kqv: bool,
    /// Tokens by which a recurrent state can be rolled back.
    pub n_rs_seq: u32,
    #[serde(serialize_with = "type_name")]
    pub type_k: CacheType,
    #[serde(serialize_with = "type_name")]
    pub type_v: CacheType,
    pub swa_full: bool,
}

fn type_name<S: serde::Serializer>(t: &CacheType, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(t.name())
}

impl Default for Params {
    fn default() -> Self {
        Self {
            n_ctx: 256,
            n_batch: 256,
            n_ubatch: 256,
            n_seq_max: 1,
            n_threads: 1,
            kv_unified: false,
            flash_attn: true,
            flash_auto: false,
            offload_kqv: true,
            n_rs_seq: 0,
            type_k: CacheType::F16,
            type_v: CacheType::F16,
            swa_full: true,
        }
    }
}

/// One thing done with a context. Positions are half-open; -1 is open.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Step {
    /// Gives the logits of the tokens with `output`, in the order of the batch.
    Decode {
        tokens: Vec<i32>,
        pos: Vec<i32>,
        seqs: Vec<Vec<i32>>,
        output: Vec<u8>,
    },
    /// Gives the bytes of the whole state.
    State,
    /// Gives the bytes of a sequence's state.
    SeqState {
        seq: i32,
    },
    SaveState {
        path: PathBuf,
    },
    LoadState {
        path: PathBuf,
    },
    SaveSeq {
        seq: i32,
        path: PathBuf,
    },
    LoadSeq {
        seq: i32,
        path: PathBuf,
    },
    /// Keeps a sequence's state; `flags` are llama.cpp's.
    Keep {
        seq: i32,
        flags: u32,
        slot: u32,
    },
    /// Restores a state that was kept.
    Restore {
        seq: i32,
        flags: u32,
        slot: u32,
    },
    Clear,
    SeqRm {
        seq: i32,
        p0: i32,
        p1: i32,
    },
    SeqCp {
        seq: i32,
        dst: i32,
        p0: i32,
        p1: i32,
    },
    SeqKeep {
        seq: i32,
    },
    SeqAdd {
        seq: i32,
        p0: i32,
        p1: i32,
        delta: i32,
    },
}

impl Step {
    /// `tokens` of one sequence from position `start` on, with an output for each.
    pub fn tokens(tokens: &[i32], start: i32, seq: i32) -> Self {
        let n = tokens.len();
        Self::Decode {
            tokens: tokens.into(),
            pos: (start..).take(n).collect(),
            seqs: vec![vec![seq]; n],
            output: vec![1; n],
        }
    }

    /// The same number of tokens for sequences `0..`, interleaved.
    pub fn sequences(tokens: &[&[i32]], start: i32) -> Self {
        let n = tokens.first().map_or(0, |t| t.len());
        let (mut all, mut pos, mut seqs) = (Vec::new(), Vec::new(), Vec::new());
        for i in 0..n {
            for (seq, tokens) in (0..).zip(tokens) {
                all.push(tokens[i]);
                pos.push(start + i as i32);
                seqs.push(vec![seq]);
            }
        }
        let output = vec![1; all.len()];
        Self::Decode {
            tokens: all,
            pos,
            seqs,
            output,
        }
    }
}

/// A job for one context.
#[derive(Debug, Clone, Serialize)]
pub struct Job {
    pub model: PathBuf,
    #[serde(flatten)]
    pub params: Params,
    /// Adapters and their scales.
    pub loras: Vec<(PathBuf, f32)>,
    /// Control vector: `n_embd` values for each layer from 1 on; empty for none.
    pub control: Vec<f32>,
    /// Whether the reference's logs are wanted whole, or of level ERROR only.
    pub verbose: bool,
    pub steps: Vec<Step>,
}

impl Job {
    pub fn new(model: impl AsRef<Path>, params: &Params, steps: &[Step]) -> Self {
        Self {
            model: model.as_ref().into(),
            params: params.clone(),
            loras: Vec::new(),
            control: Vec::new(),
            verbose: false,
            steps: steps.into(),
        }
    }
}

/// What a job gave.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Why the context could not be made or a step not be run.
    pub error: Option<String>,
    /// Of each step: 0, or what llama.cpp returned.
    pub rets: Vec<i32>,
    /// Of each step: its bytes.
    pub outputs: Vec<Vec<u8>>,
    /// Log of loading the model, the first time.
    pub model_log: Pieces,
    /// Log of the context and the steps.
    pub log: Pieces,
}

impl Outcome {
    /// The outputs of a job without any failure.
    #[track_caller]
    pub fn ok(&self) -> &[Vec<u8>] {
        assert_eq!(self.error, None);
        assert!(self.rets.iter().all(|&r| r == 0), "{:?}", self.rets);
        &self.outputs
    }

    /// All outputs as floats.
    pub fn logits(&self) -> Vec<f32> {
        let bytes = self.outputs.concat();
        let (floats, rest) = bytes.as_chunks();
        assert!(rest.is_empty());
        floats.iter().map(|&b| f32::from_le_bytes(b)).collect()
    }
}
