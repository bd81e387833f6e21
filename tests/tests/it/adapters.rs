//! LoRA adapters and control vectors belong to source layers: they act on every pass, as on each copy
//! in the expanded model.

use std::path::{Path, PathBuf};

use llama_sys::GGML_TYPE_F32;
use rys::{CacheType, Plan, Spec};
use rys_tests::expand::expand;
use rys_tests::gguf::{File, Writer};
use rys_tests::job::{Job, Outcome, Params, Step};
use rys_tests::log::lines;
use rys_tests::server::{complete, start};
use rys_tests::synth::Synth;
use rys_tests::{patched, real, scratch};
use serde_json::json;

use crate::pair::{Pair, blocks, spec, tokens};

/// Writes a LoRA of random values for every matrix of the model's layers, and for its output.
fn write_lora(model: &Path, rank: i64, seed: u64, dst: &Path) {
    let file = File::read(model);
    let arch = file.str("general.architecture").unwrap();
    let mut tensors = Vec::new();
    for t in file.tensors() {
        let in_layer = t.name.starts_with("blk.") && !t.name.contains("norm");
        let is_matrix = t.ne[1] > 1 && t.name.ends_with(".weight");
        // an adapter of the router would need one that is a matrix of experts
        if !(in_layer || t.name == "output.weight") || !is_matrix {
            continue;
        }
        let [n_in, n_out, n_expert, _] = t.ne;
        for (part, ne) in [
            ("lora_a", [n_in, rank, n_expert, 1]),
            ("lora_b", [rank, n_out, n_expert, 1]),
        ] {
            let name = format!("{}.{part}", t.name);
            let mut rng = fastrand::Rng::with_seed(seed + tensors.len() as u64);
            let scale = (3.0 / ne[0] as f32).sqrt();
            let data: Vec<u8> = (0..ne.iter().product::<i64>())
                .flat_map(|_| ((rng.f32() * 2.0 - 1.0) * scale).to_le_bytes())
                .collect();
            tensors.push((name, ne, data));
        }
    }
    assert!(tensors.len() >= 14, "{} tensors", tensors.len());

    let mut out = Writer::new();
    out.set_str("general.architecture", arch);
    out.set_str("general.type", "adapter");
    out.set_str("adapter.type", "lora");
    out.set_f32("adapter.lora.alpha", rank as f32);
    // for `expand` alone; llama.cpp does not read it
    let key = format!("{arch}.block_count");
    out.set_u32(&key, file.u32(&key).unwrap());
    for (name, ne, data) in &tensors {
        out.add(name, GGML_TYPE_F32, *ne, data);
    }
    out.write(dst);
}

/// Adapters of a model, and what the twin of each spec needs in their place.
struct Adapters {
    loras: Vec<(PathBuf, f32)>,
    control: Vec<f32>,
    n_embd: usize,
}

impl Adapters {
    fn new(pair: &Pair, n_loras: usize, with_control: bool, rank: i64, scale: f32) -> Self {
        let loras = (0..n_loras)
            .map(|i| {
                let path = pair.dir.path().join(format!("lora {i} {rank}.gguf"));
                write_lora(&pair.path, rank, 1000 * i as u64, &path);
                (path, scale / (1 + i) as f32)
            })
            .collect();
        let n_embd = pair.model.n_embd();
        let mut rng = fastrand::Rng::with_seed(3);
        let n = if with_control {
            n_embd * (pair.n_layer() as usize - 1)
        } else {
            0
        };
        Self {
            loras,
            control: (0..n).map(|_| rng.f32() - 0.5).collect(),
            n_embd,
        }
    }

    fn add_to(&self, job: Job) -> Job {
        Job {
            loras: self.loras.clone(),
            control: self.control.clone(),
            ..job
        }
    }

    /// Writes the control vector to a file.
    fn write_control(&self, dst: &Path) {
        let bytes = |row: &[f32]| row.iter().flat_map(|v| v.to_le_bytes()).collect();
        let rows: Vec<Vec<u8>> = self.control.chunks(self.n_embd).map(bytes).collect();
        let mut out = Writer::new();
        out.set_str("general.architecture", "controlvector");
        for (i, row) in rows.iter().enumerate() {
            let ne = [self.n_embd as i64, 1, 1, 1];
            out.add(&format!("direction.{}", i + 1), GGML_TYPE_F32, ne, row);
        }
        out.write(dst);
    }

    /// The same adapters on each copy of a layer.
    fn expanded(&self, plan: &Plan) -> Self {
        let expanded = |(path, scale): &(PathBuf, f32)| {
            let twin = path.with_extension("twin.gguf");
            expand(path, plan.as_slice(), &twin);
            (twin, *scale)
        };
        // layer 0 has no control vector, in the base and in the twin
        let row = |&src: &u32| match src as usize {
            0 => vec![0.0; self.n_embd],
            src => self.control[(src - 1) * self.n_embd..][..self.n_embd].to_vec(),
        };
        Self {
            loras: self.loras.iter().map(expanded).collect(),
            control: if self.control.is_empty() {
                Vec::new()
            } else {
                plan.as_slice().iter().skip(1).flat_map(row).collect()
            },
            n_embd: self.n_embd,
        }
    }
}

/// The adapted plan is the adapted twin, and not the plan without adapters.
fn check(
    pair: &mut Pair,
    adapters: &Adapters,
    spec: &Spec,
    params: &Params,
    steps: &[Step],
) -> Outcome {
    let twin = pair.twin(spec);
    let plan = pair.model.plan(spec).unwrap();
    let job = adapters
        .expanded(&plan)
        .add_to(Job::new(&twin, params, steps));
    pair.reference.send(&job);
    let bare = Job::new(&pair.path, params, steps);
    let ours = patched::run(&pair.model, &adapters.add_to(bare.clone()), Some(spec));
    let theirs = pair.reference.receive();
    let shown = format!("{} {spec} {params:?}", pair.model.arch());
    assert_eq!(theirs.error, None, "{shown}");
    assert_eq!(ours.error, None, "{shown}");
    assert!(ours.outputs == theirs.outputs, "differs: {shown}");
    assert!(ours.logits().iter().all(|l| l.is_finite()), "{shown}");

    let without = patched::run(&pair.model, &bare, Some(spec));
    let same = |(a, b): (&Vec<u8>, &Vec<u8>)| a == b;
    let mut outputs = ours.ok().iter().zip(without.ok());
    assert!(!outputs.any(same), "no effect: {shown}");
    ours
}

fn short_steps() -> Vec<Step> {
    let t = tokens(20, 4);
    vec![
        Step::tokens(&t[..13], 0, 0),
        Step::tokens(&t[13..14], 13, 0),
        Step::tokens(&t[14..], 14, 0),
    ]
}

/// Every block with a LoRA, with two, with a control vector, and with all of them.
fn check_arch(arch: &'static str) {
    let mut pair = Pair::new(&Synth::new(arch));
    for (n_loras, with_control) in [(1, false), (2, false), (0, true), (2, true)] {
        let adapters = Adapters::new(&pair, n_loras, with_control, 4, 0.7);
        for params in [
            Params::default(),
            Params {
                flash_attn: false,
                n_ubatch: 4,
                type_k: CacheType::Q8_0,
                ..Params::default()
            },
        ] {
            for spec in blocks(pair.n_layer()) {
                check(&mut pair, &adapters, &spec, &params, &short_steps());
            }
            check(
                &mut pair,
                &adapters,
                &spec("0,2;3,5"),
                &params,
                &short_steps(),
            );
        }
    }
}

#[test]
fn llama() {
    check_arch("llama");
}

#[test]
fn qwen2() {
    check_arch("qwen2");
}

#[test]
fn qwen3() {
    check_arch("qwen3");
}

#[test]
fn qwen3moe() {
    check_arch("qwen3moe");
}

#[test]
fn gemma3() {
    check_arch("gemma3");
}

/// The largest plan of a real model, with an adapter of everything: 60 passes, and a graph that its
/// budget of nodes holds.
#[test]
fn every_layer_of_smollm2() {
    let mut pair = Pair::of(scratch(), real::smollm2());
    let adapters = Adapters::new(&pair, 2, true, 8, 0.2);
    let t = crate::off::text_tokens(&pair.model, 48);
    let steps = [
        Step::tokens(&t[..40], 0, 0),
        Step::tokens(&t[40..41], 40, 0),
        Step::tokens(&t[41..], 41, 0),
    ];
    let params = Params::default();
    let all = spec("0,30");
    let ours = check(&mut pair, &adapters, &all, &params, &steps);

    let log = lines(&ours.log);
    let numbers = |what: &str| -> Vec<u32> {
        let texts = log.iter().filter_map(|l| l.split_once(what));
        let first = |n: &str| {
            n.trim()
                .split(|c: char| !c.is_ascii_digit())
                .next()?
                .parse()
                .ok()
        };
        texts.filter_map(|(_, n)| first(n)).collect()
    };
    // reserved without the adapters first, then with them
    let budgets = numbers("max_nodes = ");
    assert!(budgets.len() > 1 && budgets.is_sorted(), "{budgets:?}");
    let (most, budget) = (
        numbers("graph: nodes = ").into_iter().max(),
        budgets.last().copied(),
    );
    assert!(
        most.is_some() && most < budget,
        "{most:?} of {budget:?} nodes"
    );
}

/// The server's options: the same tokens and probabilities as from the twin with the expanded files.
#[test]
fn options_of_the_server() {
    let pair = Pair::of(scratch(), real::smollm2());
    let adapters = Adapters::new(&pair, 1, true, 8, 1.0);
    let ask = |model: &Path, spec: Option<&str>, adapters: Option<&Adapters>| {
        // a comma would end the name
        let control = pair.dir.path().join(format!("{}.gguf", spec.is_some()));
        let mut args = vec!["-c", "512", "-np", "1"];
        if let Some(adapters) = adapters {
            adapters.write_control(&control);
            let lora = adapters.loras[0].0.to_str().unwrap();
            args.extend(["--lora", lora, "--control-vector"]);
            args.push(control.to_str().unwrap());
        }
        let server = start(model, spec, &args);
        complete(&server, "The capital of France is", 6, &json!({}))
    };
    let all = spec("0,30");
    let expanded = adapters.expanded(&pair.model.plan(&all).unwrap());
    let ours = ask(&pair.path, Some("0,30"), Some(&adapters));
    assert_eq!(ours, ask(&pair.twin(&all), None, Some(&expanded)));
    assert_ne!(ours.probs, ask(&pair.path, Some("0,30"), None).probs);
}
