//! LoRA adapters and control vectors.

use rys::{LoraAdapter, Model, ModelParams};
use tempfile::TempDir;

use crate::tiny::{N_LAYER, context, file, invalid, model, prompt};
use crate::writer::{N_EMBD, Writer};

#[test]
fn a_lora_changes_the_outputs_until_it_is_removed() {
    let dir = TempDir::new().unwrap();
    let lora = LoraAdapter::load(&model(), Writer::lora(2).save(&dir, "lora.gguf")).unwrap();
    for spec in ["", "2,4", "0,6"] {
        let plain = prompt(&mut context(spec), 0);
        let mut ctx = context(spec);
        ctx.set_loras(&[(&lora, 1.0)]).unwrap();
        let adapted = prompt(&mut ctx, 0);
        assert_ne!(adapted, plain, "{spec}");
        ctx.set_loras(&[]).unwrap();
        ctx.clear(true).unwrap();
        assert_eq!(prompt(&mut ctx, 0), plain, "{spec}");
    }
}

#[test]
fn a_context_keeps_its_adapter_alive() {
    let dir = TempDir::new().unwrap();
    let path = Writer::lora(2).save(&dir, "lora.gguf");
    let lora = LoraAdapter::load(&model(), &path).unwrap();
    let mut ctx = context("2,4");
    ctx.set_loras(&[(&lora, 1.0)]).unwrap();
    let expected = prompt(&mut ctx, 0);
    drop(lora);
    ctx.clear(true).unwrap();
    assert_eq!(prompt(&mut ctx, 0), expected);
}

#[test]
fn adapters_that_do_not_fit_are_refused() {
    let dir = TempDir::new().unwrap();
    let load = |w: &Writer| {
        LoraAdapter::load(&model(), w.save(&dir, "lora.gguf"))
            .unwrap_err()
            .to_string()
    };
    assert!(load(&Writer::llama(2)).contains("expect general.type to be 'adapter'"));
    assert!(load(&Writer::lora(9)).contains("'blk.9.attn_v.weight' does not exist in base model"));
    LoraAdapter::load(&model(), dir.path()).unwrap_err();
    LoraAdapter::load(&model(), dir.path().join("absent")).unwrap_err();

    let other = Model::load(file(&dir), ModelParams::new()).unwrap();
    let lora = LoraAdapter::load(&other, Writer::lora(2).save(&dir, "lora.gguf")).unwrap();
    let mut ctx = context("");
    invalid(
        ctx.set_loras(&[(&lora, 1.0)]),
        "the adapter was loaded for another model",
    );
}

#[test]
fn a_control_vector_acts_on_its_layers_until_it_is_removed() {
    let data = vec![0.5; N_EMBD as usize * (N_LAYER as usize - 1)];
    for spec in ["", "2,4"] {
        let mut ctx = context(spec);
        let plain = prompt(&mut ctx, 0);
        let mut with = |layers| {
            ctx.set_control_vector(&data, layers).unwrap();
            ctx.clear(true).unwrap();
            prompt(&mut ctx, 0)
        };
        let (one, two) = (with(2..3), with(2..4));
        assert_ne!(one, plain, "{spec}");
        assert_ne!(two, one, "{spec}");
        ctx.clear_control_vector().unwrap();
        ctx.clear(true).unwrap();
        assert_eq!(prompt(&mut ctx, 0), plain, "{spec}");
    }
}

#[test]
fn control_vectors_that_do_not_fit_are_refused() {
    let mut ctx = context("2,4");
    let one = vec![0.5; N_EMBD as usize];
    invalid(
        ctx.set_control_vector(&one[1..], 1..2),
        "a control vector of 31 values; it has n_embd = 32 for each layer from 1 on",
    );
    for layers in [0..2, 2..2, 1..7] {
        invalid(
            ctx.set_control_vector(&one, layers.clone()),
            &format!("a control vector for layers {layers:?}; allowed are ranges within 1..6"),
        );
    }
}
