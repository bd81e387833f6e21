//! The spec that gives a list of layers.

use rys::Spec;
use rys::rys_plan::LLAMA_MAX_LAYERS;

/// Finds the spec whose plan for a model of `n_layer` layers runs exactly `layers`, given as the
/// source layer of each pass; `None` if that is each layer once.
///
/// # Errors
/// Why there is none.
pub fn spec_of(layers: &[u32], n_layer: u32) -> Result<Option<Spec>, String> {
    if layers.len() > LLAMA_MAX_LAYERS as usize {
        return Err(format!(
            "it runs {} layers, llama.cpp allows at most {LLAMA_MAX_LAYERS}",
            layers.len()
        ));
    }
    let mut blocks = Vec::new();
    // Ends of the block before, and of the run that a jump back may start in.
    let (mut repeated, mut end) = (0, 0);
    // End of the block that is being repeated.
    let mut until = 0;
    for (eff, &src) in layers.iter().enumerate() {
        let next = match eff {
            0 => 0,
            _ => layers[eff - 1] + 1,
        };
        if src == next {
            end = end.max(src + 1);
            continue;
        }
        if src > next {
            return Err(format!(
                "pass {eff} runs layer {src} after {}: a plan leaves no layer out, missing is {next}",
                before(eff, next)
            ));
        }
        if next < until {
            return Err(format!(
                "the repeat of layers {repeated_from} to {last} stops before pass {eff}, after layer \
                 {stop}: a plan repeats a block whole",
                repeated_from = blocks.last().map_or(0, |b: &std::ops::Range<u32>| b.start),
                last = until - 1,
                stop = next - 1
            ));
        }
        if src < repeated {
            return Err(format!(
                "pass {eff} runs layer {src} a third time: a plan repeats a layer once"
            ));
        }
        blocks.push(src..end);
        (repeated, until) = (end, end);
    }
    let last = layers.last().map_or(0, |src| src + 1);
    if last < end || last < n_layer || end > n_layer {
        return Err(format!(
            "it ends after layer {}: a plan ends with the model's last layer, {}",
            last.saturating_sub(1),
            n_layer.saturating_sub(1)
        ));
    }
    if blocks.is_empty() {
        return Ok(None);
    }
    Spec::from_ranges(blocks)
        .map(Some)
        .map_err(|e| e.to_string())
}

fn before(eff: usize, next: u32) -> String {
    match eff {
        0 => "nothing".into(),
        _ => format!("layer {}", next - 1),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Every spec of a model of `n_layer` layers, by its plan.
    fn all(n_layer: u32) -> HashMap<Vec<u32>, Spec> {
        let mut lists: Vec<Vec<std::ops::Range<u32>>> = vec![vec![]];
        let mut done = HashMap::new();
        while let Some(list) = lists.pop() {
            let from = list.last().map_or(0, |b| b.end);
            for start in from..n_layer {
                for end in start + 1..=n_layer {
                    let mut list = list.clone();
                    list.push(start..end);
                    let spec = Spec::from_ranges(list.clone()).unwrap();
                    let plan = spec.plan(n_layer, 0).unwrap();
                    done.insert(plan.as_slice().to_vec(), spec);
                    lists.push(list);
                }
            }
        }
        done
    }

    #[test]
    fn every_list_of_up_to_seven_passes() {
        for n_layer in 1..=4 {
            let plans = all(n_layer);
            let identity: Vec<u32> = (0..n_layer).collect();
            let mut lists: Vec<Vec<u32>> = vec![vec![]];
            while let Some(list) = lists.pop() {
                match spec_of(&list, n_layer) {
                    Ok(Some(spec)) => assert_eq!(plans.get(&list), Some(&spec), "{list:?}"),
                    Ok(None) => assert_eq!(list, identity),
                    Err(_) => {
                        assert!(!plans.contains_key(&list) && list != identity, "{list:?}");
                    }
                }
                if list.len() < 7 {
                    lists.extend((0..n_layer).map(|src| [&list[..], &[src]].concat()));
                }
            }
        }
    }

    #[test]
    fn every_spec_of_six_layers() {
        for (plan, spec) in all(6) {
            assert_eq!(spec_of(&plan, 6), Ok(Some(spec)));
        }
    }

    #[test]
    fn reasons() {
        #[track_caller]
        fn check(layers: &[u32], n_layer: u32, want: &str) {
            assert_eq!(spec_of(layers, n_layer).unwrap_err(), want);
        }
        check(
            &[1, 2],
            3,
            "pass 0 runs layer 1 after nothing: a plan leaves no layer out, missing is 0",
        );
        check(
            &[0, 2],
            3,
            "pass 1 runs layer 2 after layer 0: a plan leaves no layer out, missing is 1",
        );
        check(
            &[0, 1, 0, 1, 0, 1, 2],
            3,
            "pass 4 runs layer 0 a third time: a plan repeats a layer once",
        );
        check(
            &[0, 1, 2, 0, 1, 0],
            3,
            "the repeat of layers 0 to 2 stops before pass 5, after layer 1: \
             a plan repeats a block whole",
        );
        check(
            &[0, 1],
            3,
            "it ends after layer 1: a plan ends with the model's last layer, 2",
        );
        check(
            &[0; 513],
            1,
            "it runs 513 layers, llama.cpp allows at most 512",
        );
    }
}
