//! Cells of sliding-window layers that are used again.

use rys::CacheType;
use rys_tests::job::{Params, Step};
use rys_tests::patched;
use rys_tests::synth::{N_SWA, Synth};

use crate::pair::{Cell, Pair, blocks, spec, tokens};

/// The text is longer than the windows' cache, which has forgotten its beginning.
#[test]
fn gemma3() {
    check(false);
}

/// The same text with a cache that keeps all of it.
#[test]
fn gemma3_full_cache() {
    check(true);
}

fn check(swa_full: bool) {
    let mut pair = Pair::new(&Synth::new("gemma3"));
    let mut cells = vec![recycling_cell(Params {
        n_seq_max: 4,
        swa_full,
        ..Params::default()
    })];
    for (flash_attn, type_kv) in [
        (true, CacheType::F16),
        (false, CacheType::F16),
        (true, CacheType::Q8_0),
        (true, CacheType::Q4_0),
    ] {
        for (n_seq_max, kv_unified) in [(1, false), (4, true)] {
            cells.push(recycling_cell(Params {
                n_seq_max,
                kv_unified,
                flash_attn,
                type_k: type_kv,
                type_v: type_kv,
                swa_full,
                ..Params::default()
            }));
        }
    }
    for cell in &cells {
        let base = pair.base(cell);
        for spec in blocks(pair.n_layer()) {
            pair.check(&spec, cell, &base);
        }

        let mut ctx = patched::context(&pair.model, &cell.params, Some(&spec("2,5"))).unwrap();
        for step in &cell.steps {
            patched::run_step(&mut ctx, step).unwrap();
        }
        let swa: Vec<_> = ctx.passes().into_iter().filter(|p| p.is_swa).collect();
        assert_eq!(swa.len(), 7);
        let n_streams = if cell.params.kv_unified {
            1
        } else {
            cell.params.n_seq_max
        };
        let n_cells = if swa_full { 512 } else { 256 } * n_streams;
        assert!(swa.iter().all(|p| p.n_cells == n_cells), "{swa:?}");
        assert_eq!(ctx.seq_pos_min(0).unwrap() > Some(0), !swa_full);
    }
}

/// More tokens than 256 cells and a window, over all sequences or in each.
pub fn recycling_cell(params: Params) -> Cell {
    let n_seq = params.n_seq_max as usize;
    let each = if params.kv_unified { 80 } else { 300 };
    let t: Vec<Vec<i32>> = (0..n_seq).map(|s| tokens(each, s as u64)).collect();
    let part = |a: usize, b: usize| {
        let rows: Vec<&[i32]> = t.iter().map(|t| &t[a..b]).collect();
        Step::sequences(&rows, a as i32)
    };
    let mut steps = Vec::new();
    let mut at = 0;
    while at < each - 4 {
        let next = (at + 60 / n_seq).min(each - 4);
        steps.push(part(at, next));
        at = next;
    }
    steps.extend((at..each).map(|i| part(i, i + 1)));
    assert!(each * n_seq > 256 + N_SWA as usize);
    Cell {
        params: Params {
            n_ctx: if params.kv_unified {
                512
            } else {
                512 * params.n_seq_max
            },
            n_ubatch: 32,
            ..params
        },
        steps,
    }
}
