//! Repeats written for other programs: mergekit's passthrough merges and RYS's configs.
//!
//! - mergekit: YAML with `merge_method: passthrough` and `slices`, each of one source with a
//!   half-open `layer_range`.
//! - RYS: lines of `i,j`, `(i,j)`, `i,j;k,l`, `blocks:...` or `layers:...` (a `#` starts a comment
//!   line, `0,0` is the model without repeats), or JSON or YAML with `layers`, `layer_indices`,
//!   `blocks`, `key` or `spec`, alone or in a list.

use std::fs;
use std::path::Path;

use rys::Spec;
use rys::rys_plan::LLAMA_MAX_LAYERS;
use serde_json::Value;

use crate::equivalent::spec_of;
use crate::failure::Failure;

/// One order of layers found in a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Where in the file.
    pub place: String,
    /// The equivalent spec, `None` for a model without repeats; or why there is none.
    pub spec: Result<Option<Spec>, String>,
    /// Layers of the model, if the file says so.
    pub n_layer: Option<u32>,
}

/// Reads a file. `n_layer` is the model's number of layers, if it is known.
///
/// # Errors
/// The file cannot be read, or holds nothing of the kind.
pub fn read(path: &Path, n_layer: Option<u32>) -> Result<Vec<Found>, Failure> {
    let refuse = |text: String| Failure::refused(format!("{}: {text}", path.display()));
    let text = fs::read_to_string(path).map_err(|e| refuse(e.to_string()))?;
    parse(&text, n_layer).map_err(refuse)
}

fn parse(text: &str, n_layer: Option<u32>) -> Result<Vec<Found>, String> {
    let entry = |place: String, value: &Value| {
        let (spec, n_layer) = rys_entry(value, n_layer);
        Found {
            place,
            spec,
            n_layer,
        }
    };
    let found = match serde_saphyr::from_str::<Value>(text) {
        Ok(Value::Object(map)) if map.contains_key("slices") => {
            let place = "slices".to_owned();
            let layers = mergekit(&map).map(|layers| {
                let n_layer = n_layer.unwrap_or_else(|| ends_at(&layers));
                (layers, n_layer)
            });
            let n_layer = layers.as_ref().ok().map(|(_, n)| *n);
            let spec = layers.and_then(|(layers, n)| spec_of(&layers, n));
            vec![Found {
                place,
                spec,
                n_layer,
            }]
        }
        Ok(value @ Value::Object(_)) => vec![entry("config".into(), &value)],
        Ok(Value::Array(list)) if list.iter().all(Value::is_object) => list
            .iter()
            .enumerate()
            .map(|(i, value)| entry(format!("entry {i}"), value))
            .collect(),
        Ok(value @ Value::Array(_)) => vec![entry("list".into(), &value)],
        Ok(Value::String(_)) => lines(text)
            .map(|(i, line)| entry(format!("line {}", i + 1), &Value::String(line.into())))
            .collect(),
        Err(error) if lines(text).next().is_none_or(|(_, l)| !is_rys_line(l)) => {
            return Err(format!("it is neither YAML nor a RYS config: {error}"));
        }
        // Several lines with different marks are no YAML.
        Err(_) => lines(text)
            .map(|(i, line)| entry(format!("line {}", i + 1), &Value::String(line.into())))
            .collect(),
        Ok(_) => vec![],
    };
    if found.is_empty() {
        return Err("it holds neither mergekit slices nor a RYS config".into());
    }
    Ok(found)
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .map(str::trim)
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn is_rys_line(line: &str) -> bool {
    line.starts_with(|c: char| c.is_ascii_digit() || c == '(')
        || line.starts_with("layers:")
        || line.starts_with("blocks:")
}

/// The layers of a passthrough merge.
fn mergekit(map: &serde_json::Map<String, Value>) -> Result<Vec<u32>, String> {
    match map.get("merge_method").and_then(Value::as_str) {
        Some("passthrough") => {}
        Some(other) => {
            return Err(format!(
                "merge_method is `{other}`, which computes new weights: only `passthrough` keeps \
                 them, and a plan changes no weight"
            ));
        }
        None => return Err("merge_method is missing: only `passthrough` has an equivalent".into()),
    }
    let slices = list(map.get("slices"), "slices")?;
    let mut model: Option<&str> = None;
    let mut layers = Vec::new();
    for (i, slice) in slices.iter().enumerate() {
        let sources = list(slice.get("sources"), &format!("sources of slice {i}"))?;
        let [source] = sources else {
            return Err(format!(
                "slice {i} has {} sources: a plan runs the layers of one model",
                sources.len()
            ));
        };
        if [slice, source]
            .iter()
            .any(|v| v.get("parameters").is_some())
        {
            return Err(format!(
                "slice {i} has parameters, which change weights: a plan changes none"
            ));
        }
        let name = source.get("model").and_then(Value::as_str);
        let name = name.ok_or_else(|| format!("slice {i} names no model"))?;
        match model {
            Some(other) if other != name => {
                return Err(format!(
                    "slice {i} is of {name}, one before of {other}: a plan runs the layers of one model"
                ));
            }
            _ => model = Some(name),
        }
        let range = list(
            source.get("layer_range"),
            &format!("layer_range of slice {i}"),
        )?;
        let bounds: Vec<u64> = range.iter().filter_map(Value::as_u64).collect();
        let (start, end) = match (&bounds[..], range.len()) {
            (&[start, end], 2) if start < end => (start, end),
            _ => {
                return Err(format!(
                    "layer_range of slice {i} is not two ascending numbers [start, end]"
                ));
            }
        };
        let most = u64::from(LLAMA_MAX_LAYERS);
        if end > most || layers.len() as u64 + end - start > most {
            return Err(format!(
                "slice {i} goes past {most} layers, the most that llama.cpp allows"
            ));
        }
        // Both are at most 512.
        layers.extend(start as u32..end as u32);
    }
    Ok(layers)
}

fn list<'a>(value: Option<&'a Value>, what: &str) -> Result<&'a [Value], String> {
    value
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .ok_or_else(|| format!("{what} must be a list"))
}

type SpecAndLayers = (Result<Option<Spec>, String>, Option<u32>);

/// A config in one of RYS's forms.
fn rys_entry(value: &Value, n_layer: Option<u32>) -> SpecAndLayers {
    match value {
        Value::Object(map) => {
            for key in ["layers", "layer_indices"] {
                if let Some(layers) = map.get(key) {
                    return layer_list(numbers(layers, key), n_layer);
                }
            }
            for key in ["blocks", "key", "spec"] {
                if let Some(value) = map.get(key) {
                    return rys_entry(value, n_layer);
                }
            }
            let text = "it has none of the keys layers, layer_indices, blocks, key and spec".into();
            (Err(text), n_layer)
        }
        // `[26, 34]` is a block, longer lists are layers; `[[26, 34], [43, 45]]` are blocks.
        Value::Array(items) if items.len() == 2 && items.iter().all(Value::is_u64) => {
            (blocks(&pair_text(items)), n_layer)
        }
        Value::Array(items) if !items.is_empty() && items.iter().all(Value::is_array) => {
            let pairs: Vec<String> = items
                .iter()
                .filter_map(Value::as_array)
                .map(|items| pair_text(items))
                .collect();
            (blocks(&pairs.join(";")), n_layer)
        }
        Value::Array(_) => layer_list(numbers(value, "the list"), n_layer),
        Value::String(text) => match text.trim().strip_prefix("layers:") {
            Some(list) => layer_list(numbers_text(list), n_layer),
            None => (blocks(text), n_layer),
        },
        other => (Err(format!("`{other}` is not a config")), n_layer),
    }
}

fn pair_text(items: &[Value]) -> String {
    let items: Vec<String> = items.iter().map(Value::to_string).collect();
    items.join(",")
}

fn blocks(text: &str) -> Result<Option<Spec>, String> {
    let text = text.trim().trim_end_matches(';');
    let bare: String = text
        .strip_prefix("blocks:")
        .unwrap_or(text)
        .chars()
        .filter(|c| !matches!(c, ' ' | '(' | ')'))
        .collect();
    if bare == "0,0" {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|e: rys::SpecError| format!("{e:#}"))
}

fn layer_list(layers: Result<Vec<u32>, String>, n_layer: Option<u32>) -> SpecAndLayers {
    match layers {
        Ok(layers) => {
            let n_layer = n_layer.unwrap_or_else(|| ends_at(&layers));
            (spec_of(&layers, n_layer), Some(n_layer))
        }
        Err(text) => (Err(text), n_layer),
    }
}

fn numbers(value: &Value, what: &str) -> Result<Vec<u32>, String> {
    if let Value::String(text) = value {
        return numbers_text(text);
    }
    list(Some(value), what)?
        .iter()
        .map(|item| item.as_u64().and_then(index))
        .collect::<Option<_>>()
        .ok_or_else(|| format!("{what} must hold layer numbers"))
}

fn numbers_text(text: &str) -> Result<Vec<u32>, String> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            let number = part.parse().ok().and_then(index);
            number.ok_or_else(|| format!("`{}` is not a layer number", part.escape_debug()))
        })
        .collect()
}

/// Far above any model, and far below an overflow.
fn index(n: u64) -> Option<u32> {
    u32::try_from(n).ok().filter(|&n| n < u32::MAX / 2)
}

fn ends_at(layers: &[u32]) -> u32 {
    layers.iter().max().map_or(0, |src| src + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, n_layer: Option<u32>, want: &str) {
        let found = match parse(text, n_layer) {
            Ok(found) => found,
            Err(error) => return assert!(error.starts_with(want), "{error}"),
        };
        let shown: Vec<String> = found
            .iter()
            .map(|f| {
                let spec = match &f.spec {
                    Ok(Some(spec)) => spec.to_string(),
                    Ok(None) => "none".into(),
                    Err(text) => format!("! {}", text.lines().next().unwrap_or_default()),
                };
                let n = f.n_layer.map_or("?".into(), |n| n.to_string());
                format!("{} of {n}: {spec}", f.place)
            })
            .collect();
        assert_eq!(shown.join("\n"), want);
    }

    fn slices(ranges: &[(&str, &str)]) -> String {
        let slices: String = ranges
            .iter()
            .map(|(model, range)| {
                format!("  - sources:\n      - model: {model}\n        layer_range: {range}\n")
            })
            .collect();
        format!("slices:\n{slices}merge_method: passthrough\ndtype: bfloat16\n")
    }

    #[test]
    fn mergekit_files() {
        check(
            &slices(&[("a/b", "[0, 24]"), ("a/b", "[8, 32]")]),
            None,
            "slices of 32: 8,24",
        );
        check(
            &slices(&[("a", "[0, 34]"), ("a", "[26, 45]"), ("a", "[43, 64]")]),
            Some(64),
            "slices of 64: 26,34;43,45",
        );
        check(&slices(&[("a", "[0, 32]")]), None, "slices of 32: none");
        check(
            &slices(&[("a", "[0, 16]"), ("b", "[8, 32]")]),
            None,
            "slices of ?: ! slice 1 is of b, one before of a: a plan runs the layers of one model",
        );
        check(
            &slices(&[("a", "[0, 16]"), ("a", "[20, 32]")]),
            None,
            "slices of 32: ! pass 16 runs layer 20 after layer 15: \
             a plan leaves no layer out, missing is 16",
        );
        check(
            &slices(&[("a", "[0, 4000000000]")]),
            None,
            "slices of ?: ! slice 0 goes past 512 layers, the most that llama.cpp allows",
        );
        check(
            &slices(&[("a", "[0, 16]")]).replace("passthrough", "slerp"),
            None,
            "slices of ?: ! merge_method is `slerp`, which computes new weights: only `passthrough` \
             keeps them, and a plan changes no weight",
        );
        check(
            &slices(&[("a", "[5]")]),
            None,
            "slices of ?: ! layer_range of slice 0 is not two ascending numbers [start, end]",
        );
    }

    #[test]
    fn rys_configs() {
        check("26,34", None, "line 1 of ?: 26,34");
        check(
            "# best\n0,0\n(33,34)\nblocks:43,45;28,34\nlayers:0,1,2,1,2,3\n",
            Some(64),
            "line 2 of 64: none\nline 3 of 64: 33,34\nline 4 of 64: 28,34;43,45\n\
             line 5 of 64: ! it ends after layer 3: a plan ends with the model's last layer, 63",
        );
        check("layers:0,1,1,2", None, "line 1 of 3: 1,2");
        check(
            r#"{"layers": [0, 1, 2, 1, 2, 3]}"#,
            None,
            "config of 4: 1,3",
        );
        check(r#"{"idx": 3, "key": [26, 34]}"#, None, "config of ?: 26,34");
        check(
            "blocks: 3,6;4,6",
            None,
            "config of ?: ! blocks `3,6` and `4,6` overlap: \
             a layer can be repeated only once, make them disjoint or write `3,6`",
        );
        check(
            "blocks: [[26, 34], [43, 45]]",
            None,
            "config of ?: 26,34;43,45",
        );
        check(
            r#"[{"spec": "layers:0,0,1"}, {"key": "(1, 2)"}]"#,
            None,
            "entry 0 of 2: 0,1\nentry 1 of ?: 1,2",
        );
        check(
            "{}",
            None,
            "config of ?: ! it has none of the keys layers, layer_indices, blocks, key and spec",
        );
    }

    #[test]
    fn other_files() {
        check("", None, "it holds neither");
        check("3.5", None, "it holds neither");
        check("a: [", None, "it is neither YAML nor a RYS config");
    }
}
