//! Gemma's sliding windows, and its last layers, which read the KV cells of earlier ones.

use rys::{Context, Model, ModelParams, Spec};
use rys_tests::graph::{Attention, attention, attention_of_assistant};
use rys_tests::job::{Job, Params};
use rys_tests::synth::{Synth, Value};
use rys_tests::{patched, scratch};

use crate::families;
use crate::pair::{Cell, Pair, blocks, pairs, short_steps};
use crate::twins::recycled::recycling_cell;

/// A model and its first layer without KV cells of its own.
fn sharing() -> [(Synth, u32); 2] {
    [(Synth::gemma4_e2b(3), 5), (Synth::gemma3n_shared(23), 20)]
}

/// Whether an expanded file means the same. In a file the layers with cells of their own come first,
/// and the others read those of the last two.
fn is_expressible(bounds: &[(u32, u32)], kv_from_start: u32) -> bool {
    let s = kv_from_start;
    let own = |&(i, j): &(u32, u32)| j < s || (j == s && i + 2 <= s);
    let shared = |&(i, _): &(u32, u32)| i >= s;
    bounds.iter().all(|b| own(b) || shared(b))
}

#[test]
fn gemma4_shared_cells() {
    let (synth, s) = &sharing()[0];
    families::check(synth, |b| is_expressible(b, *s));
}

/// Blocks that no expanded file can express, but for the cells that are read: where the attention of the
/// last layers adds nothing, a file in which they have cells of their own means the same.
#[test]
fn gemma4_sharing_layers_without_attention() {
    let zero = ["blk.5.post_att", "blk.6.post_att", "blk.7.post_att"];
    let zero = |synth: Synth| Synth {
        zero: zero.into(),
        ..synth
    };
    let mut own = Pair::new(&zero(Synth::gemma4_e2b(0)));
    let dir = scratch();
    let path = zero(Synth::gemma4_e2b(3)).write(dir.path());
    let model = Model::load(path, ModelParams::new()).unwrap();
    let cell = Cell {
        params: Params::default(),
        steps: short_steps(1),
    };
    let base = own.base(&cell);
    for spec in blocks(8) {
        let expected = own.check(&spec, &cell, &base);
        let job = Job::new(&own.path, &cell.params, &cell.steps);
        let found = patched::run(&model, &job, Some(&spec));
        assert!(found.ok() == expected, "{spec}");
    }
}

/// Its loader shares from layer 20 on whatever the depth, and its first ten layers are sparse: an
/// expanded file is right for blocks that begin at 20 or later.
#[test]
fn gemma3n_shared_cells() {
    let (synth, s) = &sharing()[1];
    families::check(synth, |b| b.iter().all(|&(i, _)| i >= *s));
}

/// Attention as a plan means it: every pass of a layer with cells writes and reads its own, every pass
/// of another layer reads those of the last pass so far of the layer that its source reads.
fn expected(ctx: &Context, kv_from_start: u32) -> Attention {
    let passes = ctx.passes();
    let mut expected = Attention::default();
    for pass in &passes {
        let slot = if pass.src < kv_from_start {
            expected.written.push(pass.eff);
            pass.eff
        } else {
            let src = kv_from_start - if pass.is_swa { 2 } else { 1 };
            let before = &passes[..pass.eff as usize];
            before.iter().rfind(|p| p.src == src).unwrap().eff
        };
        expected.q.push(pass.src);
        expected.read.push((slot, slot));
    }
    expected
}

/// Where the expanded file cannot say it, the graph itself does: for every block that contains,
/// reaches into, ends at or begins at the layers that share, and for pairs of blocks.
#[test]
fn shared_cells_in_the_graph() {
    for (synth, s) in sharing() {
        let dir = scratch();
        let model = Model::load(synth.write(dir.path()), ModelParams::new()).unwrap();
        let n_layer = model.n_layer();
        assert_eq!(attention(&model, None), plain(&model, s));

        let near = |spec: &Spec| spec.blocks().iter().all(|b| b.start() + 5 >= s);
        let mut n_inexpressible = 0;
        for spec in blocks(n_layer)
            .iter()
            .chain(&pairs(n_layer))
            .filter(|spec| near(spec))
        {
            let params = Params::default();
            let ctx = patched::context(&model, &params, Some(spec)).unwrap();
            assert_eq!(attention(&model, Some(spec)), expected(&ctx, s), "{spec}");
            for pass in ctx.passes() {
                let own = pass.src < s;
                assert_eq!((pass.n_embd_k > 0, pass.kv_bytes > 0), (own, own));
            }
            let bounds: Vec<_> = spec.blocks().iter().map(|b| (b.start(), b.end())).collect();
            n_inexpressible += usize::from(!is_expressible(&bounds, s));
        }
        assert!(n_inexpressible >= 16, "{n_inexpressible}");
    }
}

fn plain(model: &Model, kv_from_start: u32) -> Attention {
    let ctx = patched::context(model, &Params::default(), None).unwrap();
    expected(&ctx, kv_from_start)
}

/// An assistant reads what the last passes of its target's last two layers read.
#[test]
fn assistant_reads_the_last_passes() {
    // KV heads of the layers with windows and of the global ones
    for (target, n_head_kv) in [
        (Synth::new("gemma4"), [4, 1]),
        (Synth::gemma4_e2b(3), [1, 1]),
    ] {
        let dir = scratch();
        let load = |s: &Synth| Model::load(s.write(dir.path()), ModelParams::new()).unwrap();
        let assistant = Synth::new("gemma4-assistant")
            .with("attention.head_count_kv", Value::U32s(n_head_kv.into()));
        let (assistant, target) = (load(&assistant), load(&target));
        let n_layer = target.n_layer();
        let plain = [None].into_iter();
        for spec in plain.chain(blocks(n_layer).into_iter().map(Some)) {
            let of_target = attention(&target, spec.as_ref());
            let last = |il: u32| of_target.q.iter().rposition(|&src| src == il).unwrap();
            let expected = [n_layer - 2, n_layer - 1].map(|il| of_target.read[last(il)]);
            let found = attention_of_assistant(&assistant, &target, spec.as_ref());
            assert_eq!(found.read, expected, "{spec:?}");
            assert_eq!((found.q, found.written), (vec![0, 1], vec![]));
        }
    }
}

/// A repeated layer is in the half of the cache where its source is, with its source's sizes.
#[test]
fn halves_of_the_cache() {
    // K rows of the layers with windows, and of the global ones
    let all = [
        (Synth::new("gemma2"), 64, 64),
        (Synth::new("gemma3n"), 32, 32),
        (Synth::new("gemma4"), 128, 64),
        (Synth::gemma4_e2b(0), 32, 64),
    ];
    for (synth, n_embd_swa, n_embd) in all {
        let dir = scratch();
        let model = Model::load(synth.write(dir.path()), ModelParams::new()).unwrap();
        for (swa_full, n_cells_swa) in [(false, 256), (true, 512)] {
            let params = Params {
                swa_full,
                n_ctx: 512,
                n_ubatch: 32,
                ..Params::default()
            };
            let base = patched::context(&model, &params, None).unwrap().passes();
            for spec in blocks(model.n_layer()) {
                let ctx = patched::context(&model, &params, Some(&spec)).unwrap();
                for pass in ctx.passes() {
                    let layer = &base[pass.src as usize];
                    let (width, cells) = if layer.is_swa {
                        (n_embd_swa, n_cells_swa)
                    } else {
                        (n_embd, 512)
                    };
                    assert_eq!(pass.is_swa, layer.is_swa, "{spec}");
                    assert_eq!((pass.n_embd_k, pass.n_embd_v), (width, width), "{spec}");
                    assert_eq!(pass.n_cells, cells, "{spec}");
                    assert_eq!(pass.kv_bytes, layer.kv_bytes, "{spec}");
                }
                assert_eq!(ctx.cost().unwrap().plan.kv_bytes, ctx.kv_bytes());
            }
        }
        assert!(model.n_layer() < 26, "no depth that a loader knows");
    }
}

/// Texts longer than the cells of the windows.
fn check_recycled(synth: &Synth, wanted: impl Fn(&[(u32, u32)]) -> bool) {
    let mut pair = Pair::new(synth);
    let base = Params {
        swa_full: false,
        ..Params::default()
    };
    let cells = [
        base.clone(),
        Params {
            n_seq_max: 4,
            kv_unified: true,
            flash_attn: false,
            ..base.clone()
        },
        Params {
            swa_full: true,
            ..base
        },
    ]
    .map(recycling_cell);
    let base: Vec<_> = cells.iter().map(|cell| pair.base(cell)).collect();
    for spec in blocks(pair.n_layer()) {
        let bounds: Vec<_> = spec.blocks().iter().map(|b| (b.start(), b.end())).collect();
        if wanted(&bounds) {
            for (cell, base) in cells.iter().zip(&base) {
                pair.check(&spec, cell, base);
            }
        }
    }

    let mut ctx = patched::context(&pair.model, &cells[0].params, None).unwrap();
    for step in &cells[0].steps {
        patched::run_step(&mut ctx, step).unwrap();
    }
    assert!(ctx.seq_pos_min(0).unwrap() > Some(0), "cells were recycled");
}

#[test]
fn gemma2_recycled_cells() {
    check_recycled(&Synth::new("gemma2"), |_| true);
}

#[test]
fn gemma3n_recycled_cells() {
    check_recycled(&Synth::new("gemma3n"), |_| true);
}

#[test]
fn gemma4_recycled_cells() {
    check_recycled(&Synth::new("gemma4"), |_| true);
}

#[test]
fn gemma4_shared_recycled_cells() {
    let (synth, s) = &sharing()[0];
    check_recycled(synth, |b| is_expressible(b, *s));
}
