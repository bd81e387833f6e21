//! Saved state, and which contexts take it.

use std::fs;

use rys::Error;
use tempfile::TempDir;

use crate::random::Random;
use crate::tiny::{PROMPT, context, params, prompt, step, with};

#[test]
fn a_state_restores_what_comes_next() {
    let mut ctx = context("2,4");
    prompt(&mut ctx, 0);
    let whole = ctx.state().unwrap();
    let next = step(&mut ctx, 3, 0);

    let mut other = context("2,4");
    other.set_state(&whole).unwrap();
    assert!(other.state().unwrap() == whole);
    assert_eq!(step(&mut other, 3, 0), next);
}

#[test]
fn a_sequence_moves_to_another_number_beside_others() {
    for unified in [false, true] {
        let two = || with(params().n_ctx(512).n_seq_max(2).kv_unified(unified), "2,4");
        let mut ctx = two();
        prompt(&mut ctx, 0);
        let seq = ctx.seq_state(0).unwrap();

        let mut other = two();
        other.set_seq_state(1, &seq).unwrap();
        assert_eq!(other.seq_pos_max(1).unwrap(), Some(7));
        assert_eq!(
            step(&mut other, 3, 1),
            step(&mut ctx, 3, 0),
            "unified {unified}"
        );

        let mut busy = two();
        prompt(&mut busy, 0);
        busy.set_seq_state(1, &seq).unwrap();
        assert_eq!(
            (busy.seq_pos_max(0).unwrap(), busy.seq_pos_max(1).unwrap()),
            (Some(7), Some(7))
        );
        step(&mut busy, 3, 1);
    }
}

/// A state saved with one spec is refused with the other, and nothing changes.
#[track_caller]
fn check_refused(saved: &str, with: &str) {
    let mut from = context(saved);
    prompt(&mut from, 0);
    let (whole, seq) = (from.state().unwrap(), from.seq_state(0).unwrap());

    let mut ctx = context(with);
    prompt(&mut ctx, 0);
    step(&mut ctx, 3, 0);
    let before = ctx.state().unwrap();
    let refused = |error: Error| {
        assert!(
            matches!(
                error,
                Error::State {
                    action: "restore",
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(
            error.to_string().contains("use the plan and the model"),
            "{error}"
        );
    };
    refused(ctx.set_state(&whole).unwrap_err());
    refused(ctx.set_seq_state(0, &seq).unwrap_err());
    let dir = TempDir::new().unwrap();
    from.save_state(dir.path().join("whole"), &PROMPT).unwrap();
    from.save_seq_state(dir.path().join("seq"), 0, &PROMPT)
        .unwrap();
    refused(ctx.load_state(dir.path().join("whole")).unwrap_err());
    refused(ctx.load_seq_state(dir.path().join("seq"), 0).unwrap_err());
    assert!(ctx.state().unwrap() == before);
}

#[test]
fn a_state_of_another_plan_is_refused() {
    check_refused("2,4", "3,5"); // as many layers
    check_refused("2,4", "2,5");
    check_refused("2,4", "");
    check_refused("", "2,4");
}

#[test]
fn files_carry_their_tokens() {
    let dir = TempDir::new().unwrap();
    let (whole, seq) = (dir.path().join("whole"), dir.path().join("seq"));
    let mut ctx = context("2,4");
    prompt(&mut ctx, 0);
    ctx.save_state(&whole, &PROMPT).unwrap();
    ctx.save_seq_state(&seq, 0, &PROMPT[..3]).unwrap();
    let state = ctx.state().unwrap();

    let mut other = context("2,4");
    assert_eq!(other.load_state(&whole).unwrap(), PROMPT);
    assert!(other.state().unwrap() == state);
    let mut other = context("2,4");
    assert_eq!(other.load_seq_state(&seq, 0).unwrap(), PROMPT[..3]);
    assert!(other.seq_state(0).unwrap() == ctx.seq_state(0).unwrap());
    // one kind is not the other
    other.load_state(&seq).unwrap_err();
    other.load_seq_state(&whole, 0).unwrap_err();
}

#[test]
fn a_failed_save_leaves_no_file_behind() {
    let dir = TempDir::new().unwrap();
    let mut ctx = context("2,4");
    prompt(&mut ctx, 0);
    let error = ctx.save_state(dir.path(), &[]).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
    ctx.save_state(dir.path().join("absent/file"), &[])
        .unwrap_err();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn files_that_are_no_state_are_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("file");
    let mut ctx = context("2,4");
    prompt(&mut ctx, 0);
    let before = ctx.state().unwrap();
    ctx.load_state(&path).unwrap_err();
    ctx.load_state(dir.path()).unwrap_err();
    for bytes in [&b""[..], b"x", b"not a state at all", &[0xff; 64]] {
        fs::write(&path, bytes).unwrap();
        ctx.load_state(&path).unwrap_err();
        ctx.load_seq_state(&path, 0).unwrap_err();
        ctx.set_state(bytes).unwrap_err();
        ctx.set_seq_state(0, bytes).unwrap_err();
    }
    assert!(ctx.state().unwrap() == before);
}

#[test]
fn damaged_states_give_an_error_or_a_usable_context() {
    let mut ctx = context("2,4");
    prompt(&mut ctx, 0);
    let (whole, seq) = (ctx.state().unwrap(), ctx.seq_state(0).unwrap());
    let expected = step(&mut ctx, 3, 0);
    let mut random = Random(11);
    let mut damage = |good: &[u8]| {
        let mut bytes = good.to_vec();
        for _ in 0..=random.below(2) {
            let at = random.below(bytes.len().min(400));
            bytes[at] = random.below(256) as u8;
        }
        if random.below(3) == 0 {
            bytes.truncate(random.below(bytes.len()));
        }
        bytes
    };
    let mut refused = 0;
    for _ in 0..300 {
        refused += u32::from(ctx.set_state(&damage(&whole)).is_err());
        refused += u32::from(ctx.set_seq_state(0, &damage(&seq)).is_err());
    }
    assert!(refused > 0);
    ctx.clear(true).unwrap();
    ctx.set_state(&whole).unwrap();
    assert_eq!(step(&mut ctx, 3, 0), expected);
}
