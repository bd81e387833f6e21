//! Sequences: removed, copied, kept, moved.

use rys::Batch;

use crate::tiny::{PROMPT, context, invalid, params, prompt, step, with};

#[test]
fn a_removed_tail_is_as_if_it_had_never_been() {
    let mut ctx = context("2,4");
    prompt(&mut ctx, 0);
    assert!(ctx.seq_rm(0, 5..).unwrap());
    assert_eq!(ctx.seq_pos_max(0).unwrap(), Some(4));

    let mut short = context("2,4");
    short.decode(&Batch::prompt(&PROMPT[..5], 0, 0)).unwrap();
    assert_eq!(step(&mut ctx, 3, 0), step(&mut short, 3, 0));

    assert!(ctx.seq_rm(0, ..).unwrap());
    assert_eq!(
        (ctx.seq_pos_min(0).unwrap(), ctx.seq_pos_max(0).unwrap()),
        (None, None)
    );
    assert!(ctx.seq_rm(0, 3..3).unwrap());
}

#[test]
fn a_copy_goes_on_like_the_original() {
    for unified in [false, true] {
        let params = params().n_ctx(512).n_seq_max(2).kv_unified(unified);
        let mut ctx = with(params, "2,4");
        prompt(&mut ctx, 0);
        ctx.seq_cp(0, 1, ..).unwrap();
        assert_eq!(
            step(&mut ctx, 3, 1),
            step(&mut ctx, 3, 0),
            "unified {unified}"
        );
        ctx.seq_keep(1).unwrap();
        assert_eq!(ctx.seq_pos_max(0).unwrap(), None);
        assert_eq!(ctx.seq_pos_max(1).unwrap(), Some(8));
    }
}

#[test]
fn a_part_of_a_separate_cache_cannot_be_copied() {
    let mut ctx = with(params().n_ctx(512).n_seq_max(2).kv_unified(false), "2,4");
    prompt(&mut ctx, 0);
    let state = ctx.state().unwrap();
    let error = ctx.seq_cp(0, 1, 2..4).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("only supported for full KV buffers"),
        "{error}"
    );
    assert!(ctx.state().unwrap() == state);
}

#[test]
fn positions_move_and_divide() {
    let mut ctx = context("2,4");
    assert!(ctx.can_shift());
    prompt(&mut ctx, 0);
    ctx.seq_rm(0, ..4).unwrap();
    ctx.seq_add(0, 4.., -4).unwrap();
    assert_eq!(
        (ctx.seq_pos_min(0).unwrap(), ctx.seq_pos_max(0).unwrap()),
        (Some(0), Some(3))
    );
    assert!(step(&mut ctx, 3, 0).iter().all(|x| x.is_finite()));
    ctx.seq_div(0, .., 2).unwrap();
    assert_eq!(ctx.seq_pos_max(0).unwrap(), Some(2));
    assert!(step(&mut ctx, 3, 0).iter().all(|x| x.is_finite()));
    invalid(ctx.seq_div(0, .., 0), "positions divided by 0; at least 1");
    invalid(
        ctx.seq_add(0, .., i32::MAX),
        "position 3 cannot move by 2147483647; allowed are 0..2147483647",
    );
}

#[test]
fn sequences_and_positions_outside_their_range_are_refused() {
    let mut ctx = context("2,4");
    let expected = "sequence 1; allowed are 0..1 (n_seq_max)";
    invalid(ctx.seq_rm(1, ..), expected);
    invalid(ctx.seq_cp(0, 1, ..), expected);
    invalid(ctx.seq_cp(1, 0, ..), expected);
    invalid(ctx.seq_keep(1), expected);
    invalid(ctx.seq_add(1, .., 1), expected);
    invalid(ctx.seq_div(1, .., 2), expected);
    invalid(ctx.seq_pos_max(1), expected);
    invalid(ctx.seq_pos_min(1), expected);
    invalid(ctx.seq_state(1), expected);
    invalid(ctx.seq_rm(0, -2..), "positions are 0 or larger");
}
