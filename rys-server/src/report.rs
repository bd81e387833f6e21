//! What `rys-server plan` prints: a table for people, or JSON.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write};

use rys::rys_plan::cost::Cost;
use rys::{Context, Plan, Spec};
use serde::Serialize;

use crate::config_file::Found;
use crate::failure::Failure;

/// What is known about a spec. The names are those of the server's `/props`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Canonical.
    spec: String,
    /// The form for places where `;` or `,` ends a value.
    portable: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    plan: Option<PlanPart>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryPart>,
}

#[derive(Debug, Serialize)]
struct PlanPart {
    n_layer: u32,
    n_layer_eff: u32,
    /// Inclusive runs of layers.
    order: String,
    /// Source layer of each pass.
    plan: Vec<u32>,
    seams: Vec<SeamPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

/// Both half-open.
#[derive(Debug, Serialize)]
struct SeamPart {
    layers: [u32; 2],
    passes: [u32; 2],
}

#[derive(Debug, Serialize)]
struct MemoryPart {
    arch: String,
    /// Weights, the same for both.
    weight_bytes: u64,
    n_ctx: u32,
    n_seq_max: u32,
    type_k: String,
    type_v: String,
    base: CostPart,
    repeated: CostPart,
    kv_bytes: u64,
    kv_bytes_extra: u64,
    kv_extra_percent: f64,
    rs_bytes: u64,
    rs_bytes_extra: u64,
    rs_extra_percent: f64,
    passes: Vec<PassPart>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct CostPart {
    passes: u32,
    kv_passes: u32,
    rs_passes: u32,
    kv_bytes: u64,
    rs_bytes: u64,
}

#[derive(Debug, Serialize)]
struct PassPart {
    eff: u32,
    src: u32,
    is_swa: bool,
    is_recr: bool,
    kv_bytes: u64,
    rs_bytes: u64,
}

impl From<Cost> for CostPart {
    fn from(cost: Cost) -> CostPart {
        CostPart {
            passes: cost.n_passes,
            kv_passes: cost.n_kv,
            rs_passes: cost.n_rs,
            kv_bytes: cost.kv_bytes,
            rs_bytes: cost.rs_bytes,
        }
    }
}

impl Report {
    /// The spec alone.
    pub fn of(spec: &Spec) -> Report {
        Report {
            spec: spec.to_string(),
            portable: spec.portable().to_string(),
            plan: None,
            memory: None,
        }
    }

    /// Adds what a model of this many layers runs.
    pub fn add_plan(&mut self, plan: &Plan) {
        let seams = plan.seams().iter().map(|seam| SeamPart {
            layers: [seam.block.start(), seam.block.end()],
            passes: [seam.eff.start, seam.eff.end],
        });
        self.plan = Some(PlanPart {
            n_layer: plan.n_layer(),
            n_layer_eff: plan.n_layer_eff(),
            order: plan.to_string(),
            plan: plan.as_slice().to_vec(),
            seams: seams.collect(),
            warning: plan.advice().map(|advice| advice.to_string()),
        });
    }

    /// Adds what a context's memory takes.
    pub fn add_context(&mut self, ctx: &Context) -> rys::Result<()> {
        let cost = ctx.cost()?;
        let params = ctx.cost_params();
        let percent = |ratio: Option<f64>| ratio.map_or(0.0, |r| 100.0 * (r - 1.0));
        let passes = ctx.passes().into_iter().map(|pass| PassPart {
            eff: pass.eff,
            src: pass.src,
            is_swa: pass.is_swa,
            is_recr: pass.is_recr,
            kv_bytes: pass.kv_bytes,
            rs_bytes: pass.rs_bytes,
        });
        self.memory = Some(MemoryPart {
            arch: ctx.model().arch().to_owned(),
            weight_bytes: ctx.model().size_bytes(),
            n_ctx: ctx.n_ctx(),
            n_seq_max: ctx.n_seq_max(),
            type_k: params.type_k.to_string(),
            type_v: params.type_v.to_string(),
            base: cost.base.into(),
            repeated: cost.plan.into(),
            kv_bytes: cost.plan.kv_bytes,
            kv_bytes_extra: cost.extra_kv_bytes(),
            kv_extra_percent: percent(cost.kv_ratio()),
            rs_bytes: cost.plan.rs_bytes,
            rs_bytes_extra: cost.extra_rs_bytes(),
            rs_extra_percent: percent(cost.rs_ratio()),
            passes: passes.collect(),
        });
        Ok(())
    }

    /// Prints to stdout.
    ///
    /// # Errors
    /// stdout cannot be written.
    pub fn print(&self, json: bool) -> Result<(), Failure> {
        if json {
            write_json(self)
        } else {
            write(&self.table())
        }
    }

    fn table(&self) -> String {
        let mut out = String::new();
        let mut row = |name: &str, text: &str| {
            let _ = writeln!(out, "{name:<9} {text}");
        };
        row("spec", &self.spec);
        row(
            "",
            &format!("in presets, config files and shells: {}", self.portable),
        );
        if let Some(plan) = &self.plan {
            row(
                "layers",
                &format!("{} run as {}", plan.n_layer, plan.n_layer_eff),
            );
            row("plan", &plan.order);
            for seam in &plan.seams {
                let [a, b] = seam.layers;
                let [c, d] = seam.passes;
                row(
                    "seam",
                    &format!("layers {a}..={} again, as passes {c}..={}", b - 1, d - 1),
                );
            }
        }
        if let Some(m) = &self.memory {
            row(
                "context",
                &format!(
                    "{} tokens, {} sequences, K {}, V {}; {}",
                    m.n_ctx, m.n_seq_max, m.type_k, m.type_v, m.arch
                ),
            );
            let _ = write!(out, "\n{}", m.table());
        }
        if let Some(warning) = self.plan.as_ref().and_then(|p| p.warning.as_ref()) {
            let _ = write!(out, "\nwarning: {warning}\n");
        }
        out
    }
}

impl MemoryPart {
    fn table(&self) -> String {
        let mut out = String::new();
        let mut row = |cells: [String; 4]| {
            let [name, base, plan, extra] = cells;
            let line = format!("{name:<17} {base:>12} {plan:>12}   {extra}");
            let _ = writeln!(out, "{}", line.trim_end());
        };
        row(["", "base", "plan", "extra"].map(String::from));
        let count = |name: &str, base: u32, plan: u32| {
            let extra = format!("{:+} ({})", plan - base, percent(plan.into(), base.into()));
            [name.into(), base.to_string(), plan.to_string(), extra]
        };
        let bytes = |name: &str, base: u64, plan: u64| {
            let extra = format!("+{} ({})", mib(plan - base), percent(plan, base));
            [name.into(), mib(base), mib(plan), extra]
        };
        let (b, p) = (self.base, self.repeated);
        row(count("passes", b.passes, p.passes));
        row(count("with KV cache", b.kv_passes, p.kv_passes));
        row(bytes("KV cache", b.kv_bytes, p.kv_bytes));
        if b.rs_passes > 0 {
            row(count("recurrent", b.rs_passes, p.rs_passes));
            row(bytes("recurrent state", b.rs_bytes, p.rs_bytes));
        }
        let weights = mib(self.weight_bytes);
        row(["weights".into(), weights.clone(), weights, "shared".into()]);
        out
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20))
}

fn percent(plan: u64, base: u64) -> String {
    if base == 0 {
        return "+0.0 %".into();
    }
    format!("{:+.1} %", 100.0 * (plan as f64 / base as f64 - 1.0))
}

/// Prints what a file with several configs, or none that has a spec, holds.
///
/// # Errors
/// stdout cannot be written.
pub fn print_found(found: &[Found], json: bool) -> Result<(), Failure> {
    if json {
        let list: Vec<_> = found
            .iter()
            .map(|f| {
                let spec = f
                    .spec
                    .as_ref()
                    .ok()
                    .map(|s| s.as_ref().map(Spec::to_string));
                serde_json::json!({
                    "place": f.place,
                    "n_layer": f.n_layer,
                    "spec": spec.flatten(),
                    "reason": f.spec.as_ref().err(),
                })
            })
            .collect();
        return write_json(&list);
    }
    let mut out = String::new();
    for f in found {
        let _ = match &f.spec {
            Ok(Some(spec)) => writeln!(out, "{}: {spec}", f.place),
            Ok(None) => writeln!(
                out,
                "{}: no repeats, run the model without --repeat-layers",
                f.place
            ),
            Err(reason) => writeln!(out, "{}: no spec runs this: {reason}", f.place),
        };
    }
    write(&out)
}

fn write_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|e| Failure::upstream(e.to_string()))?;
    write(&(text + "\n"))
}

/// Writes to stdout. A reader that went away, as `| head` does, is no failure; a full disk is.
fn write(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::upstream(format!(
            "cannot write to the standard output: {error}"
        ))),
        _ => Ok(()),
    }
}
