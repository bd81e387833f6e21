//! Which weights and which KV cells the graph of a batch uses.

use std::ffi::{CStr, c_void};
use std::{ptr, slice};

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

/// A context made through the C interface, freed when dropped.
struct Raw(*mut sys::llama_context);

impl Raw {
    /// With a plan for `spec` and these parameters.
    fn new(model: &Model, spec: Option<&Spec>, params: sys::llama_context_params) -> Self {
        let blocks: Vec<_> = spec
            .iter()
            .flat_map(|s| s.blocks())
            .map(|b| sys::llama_layer_block {
                start: b.start().cast_signed(),
                end: b.end().cast_signed(),
            })
            .collect();
        let params = sys::llama_context_params {
            n_ctx: 256,
            n_threads: 1,
            n_threads_batch: 1,
            flash_attn_type: sys::LLAMA_FLASH_ATTN_TYPE_ENABLED,
            repeat_layers: blocks.as_ptr(),
            n_repeat_layers: blocks.len(),
            ..params
        };
        let mut err = sys::rys_error { text: [0; 1024] };
        let mut ctx = ptr::null_mut();
        // SAFETY: the model is alive; the blocks are read by this call.
        let status =
            unsafe { sys::rys_init_from_model(model.as_ptr(), params, &mut ctx, &mut err) };
        assert!(status == 0 && !ctx.is_null(), "{err:?}");
        Self(ctx)
    }

    fn decode(&self, tokens: &[i32]) {
        let mut tokens = tokens.to_vec();
        let mut err = sys::rys_error { text: [0; 1024] };
        let mut ret = -1;
        // SAFETY: the context is alive; the tokens outlive the call.
        let status = unsafe {
            let batch = sys::llama_batch_get_one(tokens.as_mut_ptr(), tokens.len() as i32);
            sys::rys_decode(self.0, batch, &mut ret, &mut err)
        };
        assert_eq!((status, ret), (0, 0), "{err:?}");
    }

    /// A token at position 0 and the hidden state that led to it.
    fn process(&self, token: i32, hidden: &[f32]) {
        let embd = sys::llama_embd {
            data: hidden.as_ptr(),
            n_rows: 1,
            n_embd: hidden.len(),
        };
        // SAFETY: the context and the hidden state outlive the batch.
        unsafe {
            let batch = sys::llama_batch_ext_init(self.0);
            assert_eq!(sys::llama_batch_ext_add_token(batch, 0, token), 0);
            sys::llama_batch_ext_set_pos(batch, 0, &0);
            assert!(sys::llama_batch_ext_set_embd_token(batch, 0, embd));
            sys::llama_batch_ext_set_output_logits(batch, 0, true);
            let ret = sys::llama_process(self.0, sys::LLAMA_PROCESS_TYPE_DECODE, batch);
            assert_eq!(ret, 0);
            sys::llama_batch_ext_free(batch);
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: the only owner.
        unsafe { sys::llama_free(self.0) }
    }
}

fn default_params() -> sys::llama_context_params {
    // SAFETY: a plain getter.
    unsafe { sys::llama_context_default_params() }
}

/// The attention in the graph that decodes a token.
pub fn attention(model: &Model, spec: Option<&Spec>) -> Attention {
    let mut found = Attention::default();
    let params = sys::llama_context_params {
        cb_eval: Some(look),
        cb_eval_user_data: (&raw mut found).cast(),
        ..default_params()
    };
    let ctx = Raw::new(model, spec, params);
    ctx.decode(&[7]);
    drop(ctx);
    found
}

/// The attention in the graph of an assistant, which reads the cells of `target` under a plan.
pub fn attention_of_assistant(assistant: &Model, target: &Model, spec: Option<&Spec>) -> Attention {
    let target_ctx = Raw::new(target, spec, default_params());
    target_ctx.decode(&[7]);

    let mut found = Attention::default();
    let params = sys::llama_context_params {
        ctx_type: sys::LLAMA_CONTEXT_TYPE_MTP,
        ctx_other: target_ctx.0,
        cb_eval: Some(look),
        cb_eval_user_data: (&raw mut found).cast(),
        ..default_params()
    };
    let ctx = Raw::new(assistant, None, params);
    ctx.process(7, &vec![0.5; target.n_embd()]);
    drop(ctx);
    found
}

/// The logits of an MTP context, to which a spec is given that it ignores.
pub fn mtp_logits(model: &Model, spec: Option<&Spec>) -> Vec<f32> {
    let params = sys::llama_context_params {
        ctx_type: sys::LLAMA_CONTEXT_TYPE_MTP,
        ..default_params()
    };
    let ctx = Raw::new(model, spec, params);
    ctx.process(7, &vec![0.5; model.n_embd()]);
    // SAFETY: the context is alive and has an output of this length.
    unsafe { slice::from_raw_parts(sys::llama_get_logits_ith(ctx.0, -1), model.n_vocab()).to_vec() }
}

// of llama.cpp's llama-ext.h, which is C++
unsafe extern "C" {
    #[link_name = "_Z30llama_set_embeddings_layer_inpP13llama_contextjb"]
    fn set_embeddings_layer_inp(ctx: *mut sys::llama_context, lid: u32, value: bool);
    #[link_name = "_Z30llama_get_embeddings_layer_inpP13llama_contextj"]
    fn get_embeddings_layer_inp(ctx: *mut sys::llama_context, lid: u32) -> *mut f32;
}

/// Inputs of the source layers for these tokens, as llama.cpp hands them to models that draft from
/// them.
pub fn layer_inputs(model: &Model, spec: Option<&Spec>, tokens: &[i32]) -> Vec<Vec<f32>> {
    let ctx = Raw::new(model, spec, default_params());
    let n = tokens.len() * model.n_embd();
    // SAFETY: the context is alive; a layer's input has a row for each token of the batch.
    unsafe {
        for il in 0..model.n_layer() {
            set_embeddings_layer_inp(ctx.0, il, true);
        }
        ctx.decode(tokens);
        (0..model.n_layer())
            .map(|il| slice::from_raw_parts(get_embeddings_layer_inp(ctx.0, il), n).to_vec())
            .collect()
    }
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
