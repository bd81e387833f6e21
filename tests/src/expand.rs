//! A GGUF file with its layers written out as a plan runs them: what repeats do without copies.

use std::path::Path;

use crate::gguf::{File, Tensor, Writer};

/// Writes `src` with block `plan[eff]` in the place of block `eff`.
///
/// Arrays with one element for each layer are expanded too, and types that a loader would take from
/// the layer's index are written as arrays. MTP blocks follow the last layer as before.
pub fn expand(src: &Path, plan: &[u32], dst: &Path) {
    let file = File::read(src);
    let arch = file.str("general.architecture").expect("an architecture");
    let key = |name: &str| format!("{arch}.{name}");
    let n_all = file.u32(&key("block_count")).expect("a block count");
    let n_nextn = file.u32(&key("nextn_predict_layers")).unwrap_or(0);
    let n_layer = n_all - n_nextn;

    // the file's blocks in their new order
    let blocks: Vec<u32> = plan.iter().copied().chain(n_layer..n_all).collect();

    let tensors = file.tensors();
    let wide: Vec<_> = tensors
        .iter()
        .filter_map(|tensor| Some((tensor, per_layer(tensor, n_layer, plan)?)))
        .collect();

    let mut out = Writer::new();
    out.set_all(&file);
    out.set_u32(&key("block_count"), blocks.len() as u32);
    let prefix = format!("{arch}.");
    for name in file.keys() {
        let Some((kind, elements)) = file.array_elements(name) else {
            continue;
        };
        let n = elements.len() as u32;
        if name.starts_with(&prefix) && (n == n_all || n == n_layer) {
            let order = if n == n_all { &blocks[..] } else { plan };
            let bytes: Vec<u8> = order
                .iter()
                .flat_map(|&il| elements[il as usize])
                .copied()
                .collect();
            out.set_array(name, kind, &bytes);
        }
    }
    // the last layers that have no KV cells of their own
    let sharing = key("attention.shared_kv_layers");
    if let Some(n) = file.u32(&sharing) {
        let n = blocks.iter().filter(|&&il| il >= n_all - n).count();
        out.set_u32(&sharing, n as u32);
    }
    for (name, types) in implied_types(&file, arch, n_layer, n_all) {
        let types: Vec<bool> = blocks.iter().map(|&il| types[il as usize]).collect();
        out.set_bools(&key(name), &types);
    }

    for tensor in &tensors {
        let is_wide = wide.iter().any(|(t, _)| t.name == tensor.name);
        if !is_wide && !tensor.name.starts_with("blk.") {
            out.add(tensor.name, tensor.kind, tensor.ne, tensor.data);
        }
    }
    for (tensor, (ne, data)) in &wide {
        out.add(tensor.name, tensor.kind, *ne, data);
    }
    for (eff, il) in blocks.iter().enumerate() {
        let prefix = format!("blk.{il}.");
        for tensor in &tensors {
            if let Some(rest) = tensor.name.strip_prefix(&prefix) {
                let name = format!("blk.{eff}.{rest}");
                out.add(&name, tensor.kind, tensor.ne, tensor.data);
            }
        }
    }
    out.write(dst);
}

/// Shape and bytes of a tensor with a part for each layer inside; `None` for any other tensor.
fn per_layer(tensor: &Tensor<'_>, n_layer: u32, plan: &[u32]) -> Option<([i64; 4], Vec<u8>)> {
    let [n, m, ..] = tensor.ne;
    let (n_layer, n_eff) = (i64::from(n_layer), plan.len() as i64);
    let (ne, n_groups) = match tensor.name {
        // the parts of the layers side by side in the row of each token
        "per_layer_token_embd.weight" => ([n / n_layer * n_eff, m, 1, 1], m),
        // a group of rows for each layer
        "per_layer_model_proj.weight" => ([n, m / n_layer * n_eff, 1, 1], 1),
        _ => return None,
    };
    let group = tensor.data.len() / n_groups as usize;
    let part = group / n_layer as usize;
    let data = tensor
        .data
        .chunks(group)
        .flat_map(|group| {
            plan.iter()
                .flat_map(move |&il| &group[il as usize * part..][..part])
        })
        .copied()
        .collect();
    Some((ne, data))
}

/// Types of the layers that the loader derives from the index, where the file has no array.
fn implied_types(
    file: &File,
    arch: &str,
    n_layer: u32,
    n_all: u32,
) -> Vec<(&'static str, Vec<bool>)> {
    let key = |name: &str| format!("{arch}.{name}");
    // one layer of the other kind ends every period
    let periodic = |n: u32, period: u32| -> Vec<bool> {
        (0..n_all)
            .map(|il| il < n && il % period < period - 1)
            .collect()
    };
    let mut types = Vec::new();

    let window = "attention.sliding_window_pattern";
    let default = match arch {
        "gemma3" => Some(6),
        "gemma2" => Some(2),
        "gemma3n" => Some(5),
        _ => None,
    };
    if let Some(default) = default
        && file.array(&key(window)).is_none()
    {
        let period = file.u32(&key(window)).unwrap_or(default);
        types.push((window, periodic(n_all, period)));
    }

    let recurrent = "attention.recurrent_layers";
    if matches!(arch, "qwen35" | "qwen35moe" | "qwen3next") && file.array(&key(recurrent)).is_none()
    {
        let period = file.u32(&key("full_attention_interval")).unwrap_or(4);
        // MTP layers attend
        types.push((recurrent, periodic(n_layer, period)));
    }
    types
}
