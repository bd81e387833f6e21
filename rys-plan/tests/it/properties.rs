use std::collections::HashSet;

use proptest::prelude::*;
use rys_plan::Spec;

/// Disjoint blocks of a model of `n_layer` layers, from gaps and lengths.
fn blocks() -> impl Strategy<Value = Vec<(u32, u32)>> {
    prop::collection::vec((0u32..6, 1u32..6), 1..12).prop_map(|steps| {
        let mut next = 0;
        let mut place = |(gap, len)| {
            let start = next + gap;
            next = start + len;
            (start, next)
        };
        steps.into_iter().map(&mut place).collect()
    })
}

proptest! {
    #[test]
    fn print_then_parse_is_the_identity(blocks in blocks().prop_shuffle()) {
        let spec = Spec::from_ranges(blocks.iter().map(|&(a, b)| a..b)).unwrap();
        let sorted: Vec<_> = spec.blocks().iter().map(|b| (b.start(), b.end())).collect();
        let mut expected = blocks.clone();
        expected.sort();
        prop_assert_eq!(sorted, expected);

        for text in [spec.to_string(), spec.portable().to_string(), format!("blocks: {spec} ")] {
            let again: Spec = text.parse().unwrap();
            prop_assert_eq!(&again, &spec);
            prop_assert_eq!(again.to_string(), spec.to_string());
            prop_assert!(HashSet::from([again]).contains(&spec));
        }
        for (block, span) in spec.blocks().iter().zip(spec.spans()) {
            prop_assert_eq!(&spec.text()[span.clone()], block.to_string());
        }
    }

    #[test]
    fn a_plan_is_the_blocks_inserted_from_the_last(blocks in blocks(), tail in 0u32..9) {
        let n_layer = blocks.last().unwrap().1 + tail;
        let spec = Spec::from_ranges(blocks.iter().map(|&(a, b)| a..b)).unwrap();
        let plan = spec.plan(n_layer, 0).unwrap();

        let mut expected: Vec<u32> = (0..n_layer).collect();
        for &(a, b) in blocks.iter().rev() {
            expected.splice(b as usize..b as usize, a..b);
        }
        prop_assert_eq!(plan.as_slice(), &expected);
        prop_assert_eq!(plan.n_layer_eff() as usize, expected.len());
        prop_assert_eq!(plan.src(expected.len()), None);
        for seam in plan.seams() {
            let (eff, len) = (seam.eff.start as usize, seam.block.len() as usize);
            let layers: Vec<u32> = seam.block.range().collect();
            prop_assert_eq!(&expected[eff - len..eff], &layers);
            prop_assert_eq!(&expected[eff..seam.eff.end as usize], &layers);
        }
    }

    /// No input panics, and every error points into the text and can be printed.
    #[test]
    fn any_text_is_accepted_or_explained(text in "[0-9,;+() \\-]{0,20}|\\PC{0,20}|.{0,20}") {
        match text.parse::<Spec>() {
            Ok(spec) => {
                prop_assert_eq!(&spec.to_string().parse::<Spec>().unwrap(), &spec);
                if let Err(error) = spec.plan(40, 1) {
                    prop_assert!(text.get(error.span()).is_some_and(|t| !t.is_empty()));
                    prop_assert_eq!(format!("{error:#}").lines().count(), 3);
                }
            }
            Err(error) => {
                prop_assert!(text.get(error.span()).is_some());
                prop_assert!(!error.span().is_empty() || error.span().start == text.len());
                let shown = format!("{error:#}");
                prop_assert!(text.is_empty() || matches!(shown.lines().count(), 3 | 5));
                prop_assert!(text.is_empty() || shown.contains('^'));
            }
        }
    }
}

/// Every block of a small model.
#[test]
fn every_block() {
    const N: u32 = 12;
    for start in 0..N {
        for end in start + 1..=N {
            let plan = Spec::from_ranges(std::iter::once(start..end))
                .unwrap()
                .plan(N, 0)
                .unwrap();
            let expected: Vec<u32> = (0..end).chain(start..N).collect();
            assert_eq!(plan.as_slice(), expected);
            assert_eq!(plan.seams()[0].eff, end..end + (end - start));
        }
    }
}
