//! Both parsers of `--repeat-layers` on one text. The fuzz target includes this file too.

use std::ffi::c_char;

use rys_plan::Spec;

/// The blocks, or the number of the error's kind and its byte offset.
pub type Verdict = Result<Vec<(u32, u32)>, (i32, usize)>;

/// The Rust parser.
pub fn rust(text: &str) -> Verdict {
    match text.parse::<Spec>() {
        Ok(spec) => Ok(spec.blocks().iter().map(|b| (b.start(), b.end())).collect()),
        Err(error) => Err((error.kind().code(), error.span().start)),
    }
}

/// The C++ parser.
pub fn cpp(text: &str) -> Verdict {
    // a block has three characters or more
    let mut blocks = vec![llama_sys::llama_layer_block { start: -1, end: -1 }; text.len() / 3 + 1];
    let (mut n, mut pos) = (0, 0);
    // SAFETY: `text` and `blocks` are valid for the lengths given with them, the other pointers for
    // one value.
    let kind = unsafe {
        llama_sys::rys_parse_spec(
            text.as_ptr().cast::<c_char>(),
            text.len(),
            blocks.as_mut_ptr(),
            blocks.len(),
            &mut n,
            &mut pos,
        )
    };
    match kind {
        0 => Ok(blocks[..n]
            .iter()
            .map(|b| (b.start as u32, b.end as u32))
            .collect()),
        _ => Err((kind, pos)),
    }
}

/// Both parsers, which must agree; a plan of few layers must be the blocks inserted one by one, and
/// the printed form must parse to the same. Returns whether the text is a spec.
///
/// # Panics
///
/// When one of these does not hold.
pub fn check(text: &str) -> bool {
    let verdict = cpp(text);
    assert_eq!(rust(text), verdict, "{text:?}");
    let Ok(blocks) = verdict else { return false };

    let spec: Spec = text.parse().expect("accepted above");
    assert_eq!(
        spec.to_string().parse().ok(),
        Some(spec.clone()),
        "{text:?}"
    );
    let n_layer = blocks.last().map_or(0, |&(_, end)| end.saturating_add(1));
    if n_layer <= rys_plan::LLAMA_MAX_LAYERS / 2 {
        let mut expected: Vec<u32> = (0..n_layer).collect();
        for &(start, end) in blocks.iter().rev() {
            expected.splice(end as usize..end as usize, start..end);
        }
        let plan = spec.plan(n_layer, 0).expect("it fits its own end");
        assert_eq!(plan.as_slice(), expected, "{text:?}");
    }
    true
}
