//! Jobs on the patched library, through the crate `rys`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Bound;

use rys::{Batch, Context, ContextParams, FlashAttn, LoraAdapter, Model, Spec};

use crate::job::{Job, Outcome, Params, Step};
use crate::{kept, log};

thread_local! {
    /// States of the steps [`Step::Keep`], by their slots.
    static KEPT: RefCell<HashMap<u32, Vec<u8>>> = RefCell::default();
}

/// The parameters in the form that `rys` takes.
pub fn context_params(p: &Params) -> ContextParams {
    ContextParams::new()
        .n_ctx(p.n_ctx)
        .n_batch(p.n_batch)
        .n_ubatch(p.n_ubatch)
        .n_seq_max(p.n_seq_max)
        .n_threads(p.n_threads)
        .n_threads_batch(p.n_threads)
        .kv_unified(p.kv_unified)
        .flash_attn(match (p.flash_auto, p.flash_attn) {
            (true, _) => FlashAttn::Auto,
            (false, true) => FlashAttn::On,
            (false, false) => FlashAttn::Off,
        })
        .offload_kqv(p.offload_kqv)
        .n_rs_seq(p.n_rs_seq)
        .type_k(p.type_k)
        .type_v(p.type_v)
        .swa_full(p.swa_full)
}

/// A context with these parameters and perhaps a plan.
pub fn context(model: &Model, params: &Params, spec: Option<&Spec>) -> rys::Result<Context> {
    let params = context_params(params);
    model.context(match spec {
        Some(spec) => params.repeat_layers(spec.clone()),
        None => params,
    })
}

/// Runs a job on a model that is loaded already, which need not be the job's.
pub fn run(model: &Model, job: &Job, spec: Option<&Spec>) -> Outcome {
    let mut outcome = Outcome::default();
    let (error, log) = log::capture(|| {
        let mut ctx = context(model, &job.params, spec)?;
        let adapters = job
            .loras
            .iter()
            .map(|(path, _)| LoraAdapter::load(model, path));
        let adapters = adapters.collect::<rys::Result<Vec<_>>>()?;
        let scales = job.loras.iter().map(|&(_, scale)| scale);
        if !adapters.is_empty() {
            ctx.set_loras(&adapters.iter().zip(scales).collect::<Vec<_>>())?;
        }
        if !job.control.is_empty() {
            ctx.set_control_vector(&job.control, 1..model.n_layer())?;
        }
        for step in &job.steps {
            let (ret, bytes) = run_step(&mut ctx, step)?;
            outcome.rets.push(ret);
            outcome.outputs.push(bytes);
        }
        Ok::<_, rys::Error>(())
    });
    outcome.error = error.err().map(|e| e.to_string());
    outcome.log = log;
    outcome
}

/// The step's value as llama.cpp returns it, and its bytes.
pub fn run_step(ctx: &mut Context, step: &Step) -> rys::Result<(i32, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut ret = 0;
    match step {
        Step::Decode {
            tokens,
            pos,
            seqs,
            output,
        } => {
            let mut batch = Batch::new();
            for (i, &token) in tokens.iter().enumerate() {
                batch.add(token, pos[i], &seqs[i], output[i] != 0);
            }
            match ctx.decode(&batch) {
                Err(rys::Error::NoRoom { .. }) => return Ok((1, bytes)),
                other => other?,
            }
            for (i, _) in (0..).zip(output).filter(|&(_, &o)| o != 0) {
                bytes.extend(ctx.logits(i)?.iter().flat_map(|f| f.to_le_bytes()));
            }
        }
        Step::State => bytes = ctx.state()?,
        Step::SeqState { seq } => bytes = ctx.seq_state(*seq)?,
        Step::SaveState { path } => ctx.save_state(path, &[])?,
        Step::LoadState { path } => drop(ctx.load_state(path)?),
        Step::SaveSeq { seq, path } => ctx.save_seq_state(path, *seq, &[])?,
        Step::LoadSeq { seq, path } => drop(ctx.load_seq_state(path, *seq)?),
        Step::Keep { seq, flags, slot } => {
            let state = kept::get(ctx, *seq, *flags);
            KEPT.with_borrow_mut(|kept| kept.insert(*slot, state));
        }
        Step::Restore { seq, flags, slot } => {
            let state = KEPT.with_borrow(|kept| kept[slot].clone());
            ret = kept::set(ctx, *seq, *flags, &state);
        }
        Step::Clear => ctx.clear(true)?,
        Step::SeqRm { seq, p0, p1 } => ret = i32::from(!ctx.seq_rm(*seq, (from(*p0), to(*p1)))?),
        Step::SeqCp { seq, dst, p0, p1 } => ctx.seq_cp(*seq, *dst, (from(*p0), to(*p1)))?,
        Step::SeqKeep { seq } => ctx.seq_keep(*seq)?,
        Step::SeqAdd { seq, p0, p1, delta } => {
            ctx.seq_add(*seq, (from(*p0), to(*p1)), *delta)?;
        }
    }
    Ok((ret, bytes))
}

fn from(p0: i32) -> Bound<i32> {
    if p0 < 0 {
        Bound::Unbounded
    } else {
        Bound::Included(p0)
    }
}

fn to(p1: i32) -> Bound<i32> {
    if p1 < 0 {
        Bound::Unbounded
    } else {
        Bound::Excluded(p1)
    }
}
