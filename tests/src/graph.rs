//! Which weights and which KV cells the graph of a batch uses.

use std::ffi::{CStr, c_void};
use std::ptr;

use llama_sys as sys;
use rys::{Model, Spec};

/// Attention in a graph, in the order it runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Attention {
    /// Layers whose Q weights are used.
    pub q: Vec<u32>,
    /// Slots whose K and V are read.
    pub read: Vec<(u32, u32)>,
    /// Slots whose K is written.
    pub written: Vec<u32>,
}

/// The attention in the graph that decodes a token.
pub fn attention(model: &Model, spec: Option<&Spec>) -> Attention {
    let blocks: Vec<_> = spec
        .iter()
        .flat_map(|s| s.blocks())
        .map(|b| sys::llama_layer_block {
            start: b.start() as i32,
            end: b.end() as i32,
        })
        .collect();
    let mut found = Attention::default();
    let mut err = sys::rys_error { text: [0; 1024] };
    // SAFETY: the model is alive; the blocks are read by the call that makes the context; the callback
    // gets `found`, which outlives the context.
    unsafe {
        let params = sys::llama_context_params {
            n_ctx: 64,
            n_threads: 1,
            n_threads_batch: 1,
            flash_attn_type: sys::LLAMA_FLASH_ATTN_TYPE_ENABLED,
            cb_eval: Some(look),
            cb_eval_user_data: (&raw mut found).cast(),
            repeat_layers: blocks.as_ptr(),
            n_repeat_layers: blocks.len(),
            ..sys::llama_context_default_params()
        };
        let mut ctx = ptr::null_mut();
        let status = sys::rys_init_from_model(model.as_ptr(), params, &mut ctx, &mut err);
        assert!(status == 0 && !ctx.is_null(), "{err:?}");
        let mut ret = -1;
        let batch = sys::llama_batch_get_one(&mut 7, 1);
        assert_eq!(sys::rys_decode(ctx, batch, &mut ret, &mut err), 0);
        assert_eq!(ret, 0);
        sys::llama_free(ctx);
    }
    found
}

unsafe extern "C" fn look(node: *mut sys::ggml_tensor, ask: bool, found: *mut c_void) -> bool {
    // SAFETY: llama.cpp passes a complete tensor and the pointer of the call above.
    let (node, found) = unsafe { (&*node, &mut *found.cast::<Attention>()) };
    let slot = |name: &str, prefix: &str| -> u32 {
        let number = name.strip_prefix(prefix);
        number.and_then(|n| n.parse().ok()).expect("a slot")
    };
    match node.op {
        _ if !ask => {}
        sys::GGML_OP_MUL_MAT => {
            let name = origin(node.src[0]);
            if let Some(rest) = name.strip_prefix("blk.")
                && let Some(il) = rest.strip_suffix(".attn_q.weight")
            {
                found.q.push(il.parse().expect("a layer"));
            }
        }
        sys::GGML_OP_FLASH_ATTN_EXT => {
            let [k, v] = [node.src[1], node.src[2]].map(origin);
            found
                .read
                .push((slot(&k, "cache_k_l"), slot(&v, "cache_v_l")));
        }
        sys::GGML_OP_SET_ROWS => {
            let name = origin(node.view_src);
            if name.starts_with("cache_k_l") {
                found.written.push(slot(&name, "cache_k_l"));
            }
        }
        _ => {}
    }
    false
}

/// Name of the tensor that this is a view of, or its own.
fn origin(tensor: *mut sys::ggml_tensor) -> String {
    // SAFETY: a tensor of a graph that is alive; its name is NUL-terminated.
    unsafe {
        let view = (*tensor).view_src;
        let tensor = if view.is_null() { tensor } else { view };
        CStr::from_ptr((*tensor).name.as_ptr())
            .to_string_lossy()
            .into_owned()
    }
}
