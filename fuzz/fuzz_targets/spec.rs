//! Both parsers of `--repeat-layers` agree on every text, and neither panics.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/src/spec.rs"]
mod spec;

fuzz_target!(|text: &str| {
    spec::check(text);
    // errors with carets, and plans for models of other sizes
    match text.parse::<rys_plan::Spec>() {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(spec) => {
            for (n_layer, n_layer_nextn) in [(0, 0), (1, 0), (64, 1), (512, 0), (u32::MAX, 7)] {
                match spec.plan(n_layer, n_layer_nextn) {
                    Ok(plan) => assert!(plan.as_slice().len() > n_layer as usize),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        }
    }
});
