//! Figures of a bench.

use serde::Serialize;

use super::gates::{Gate, gates};
use super::machine::Machine;
use super::measure::{Sample, Sizes};
use super::stats::{Estimate, quotients};
use super::variant::{ALL, PAIRS, Phases, Variant};

/// What was measured of the four variants, in the order of [`ALL`].
#[derive(Debug, Default)]
pub struct Figures {
    pub file_bytes: [u64; 4],
    /// Rounds whose weights were read into memory.
    pub read: [Vec<Sample>; 4],
    /// Timed rounds, whose weights were mapped.
    pub mapped: [Vec<Sample>; 4],
    pub instructions: Option<[Phases<u64>; 4]>,
}

/// One variant.
#[derive(Debug, Serialize)]
pub struct VariantReport {
    pub variant: Variant,
    pub file_bytes: u64,
    pub weight_bytes: u64,
    /// KV cache and recurrent state.
    pub cache_bytes: u64,
    pub compute_bytes: u64,
    /// Median, with the weights read into memory of the process.
    pub peak_rss_bytes: u64,
    /// Median, with the weights mapped.
    pub peak_rss_mapped_bytes: Option<u64>,
    /// Hash of the last logits of prefill and decode.
    pub logits: String,
    pub load_ms: Option<Estimate>,
    pub prefill_tokens_per_s: Option<Estimate>,
    pub decode_tokens_per_s: Option<Estimate>,
    pub instructions: Option<Phases<u64>>,
}

/// Quotients of two variants.
#[derive(Debug, Serialize)]
pub struct Ratio {
    pub over: Variant,
    pub under: Variant,
    pub instructions: Option<Phases<f64>>,
    /// Of the same round.
    pub time: Option<Phases<Estimate>>,
}

/// What was measured, and where.
#[derive(Debug, Serialize)]
pub struct About {
    pub machine: Machine,
    /// Commit of llama.cpp.
    pub upstream: String,
    pub model: String,
    pub spec: String,
    pub timed: Sizes,
    /// `None`: no instructions were counted.
    pub counted: Option<Sizes>,
}

/// Everything, as `--json` writes it.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub about: About,
    pub n_layer: u32,
    pub n_layer_eff: u32,
    /// Timed rounds.
    pub rounds: usize,
    /// Every interval is narrow enough.
    pub converged: bool,
    pub variants: [VariantReport; 4],
    pub ratios: Vec<Ratio>,
    pub gates: Vec<Gate>,
}

impl Figures {
    fn times(&self, variant: Variant) -> Phases<Vec<f64>> {
        let of = |phase: fn(&Phases<f64>) -> f64| {
            let samples = &self.mapped[variant.index()];
            samples.iter().map(|s| phase(&s.time())).collect()
        };
        Phases {
            load: of(|t| t.load),
            prefill: of(|t| t.prefill),
            decode: of(|t| t.decode),
        }
    }

    /// Whether every interval of a time and of a quotient of times is narrow enough.
    pub fn converged(&self) -> bool {
        let narrow = |values: &[f64]| Estimate::of(values).is_some_and(|e| e.converged());
        let times = ALL.map(|v| self.times(v));
        times.iter().flat_map(Phases::each).all(|t| narrow(t))
            && PAIRS.iter().all(|(over, under)| {
                let pairs = times[over.index()]
                    .each()
                    .into_iter()
                    .zip(times[under.index()].each());
                pairs.into_iter().all(|(o, u)| narrow(&quotients(o, u)))
            })
    }

    /// `None` if a variant was never run with its weights read into memory.
    fn variant(&self, variant: Variant, timed: &Sizes) -> Option<VariantReport> {
        let i = variant.index();
        let sample = self.read[i].first()?;
        let times = self.times(variant);
        let speed = |times: &[f64], tokens: u32| {
            let rates: Vec<f64> = times.iter().map(|t| f64::from(tokens) * 1e6 / t).collect();
            Estimate::of(&rates)
        };
        let load: Vec<f64> = times.load.iter().map(|t| t / 1e3).collect();
        Some(VariantReport {
            variant,
            file_bytes: self.file_bytes[i],
            weight_bytes: sample.weight_bytes,
            cache_bytes: sample.cache_bytes,
            compute_bytes: sample.compute_bytes,
            peak_rss_bytes: peak_rss(&self.read[i])?,
            peak_rss_mapped_bytes: peak_rss(&self.mapped[i]),
            logits: sample.logits.clone(),
            load_ms: Estimate::of(&load),
            prefill_tokens_per_s: speed(&times.prefill, timed.prefill),
            decode_tokens_per_s: speed(&times.decode, timed.decode),
            instructions: self.instructions.map(|all| all[i]),
        })
    }

    /// The quotients of every pair.
    fn ratios(&self) -> Vec<Ratio> {
        let ratio = |&(over, under): &(Variant, Variant)| {
            let (o, u) = (self.times(over), self.times(under));
            let time = Phases {
                load: Estimate::of(&quotients(&o.load, &u.load)),
                prefill: Estimate::of(&quotients(&o.prefill, &u.prefill)),
                decode: Estimate::of(&quotients(&o.decode, &u.decode)),
            };
            Ratio {
                over,
                under,
                instructions: self.instructions.map(|all| {
                    all[over.index()]
                        .zip(all[under.index()])
                        .map(|(o, u)| o as f64 / u as f64)
                }),
                time: time.all(),
            }
        };
        PAIRS.iter().map(ratio).collect()
    }
}

fn peak_rss(samples: &[Sample]) -> Option<u64> {
    let values: Vec<f64> = samples.iter().map(|s| s.peak_rss_bytes as f64).collect();
    Estimate::of(&values).map(|e| e.median as u64)
}

impl Report {
    /// Summarizes and judges; `None` if a variant was never run with its weights read into
    /// memory.
    pub fn new(mut about: About, figures: &Figures) -> Option<Report> {
        let repeats = figures.read[Variant::Repeats.index()].first()?;
        // llama.cpp rounds it up.
        about.timed.context = repeats.n_ctx;
        let of = |v| figures.variant(v, &about.timed);
        let variants = [
            of(Variant::Stock)?,
            of(Variant::Off)?,
            of(Variant::Repeats)?,
            of(Variant::Expanded)?,
        ];
        let ratios = figures.ratios();
        let gates = gates(&variants, &ratios);
        Some(Report {
            about,
            n_layer: repeats.n_layer,
            n_layer_eff: repeats.n_layer_eff,
            rounds: figures.mapped[0].len(),
            converged: figures.converged(),
            variants,
            ratios,
            gates,
        })
    }

    /// Gates that did not pass.
    pub fn failed(&self) -> Vec<&Gate> {
        let failed = |g: &&Gate| g.passed == Some(false);
        self.gates.iter().filter(failed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::variant::ALL;

    /// Six rounds of each variant, in microseconds and bytes.
    fn figures(times: bool, counts: bool) -> Figures {
        let sample = |i: usize, round: usize| -> Sample {
            let (n_eff, file) = ([30, 30, 34, 34][i], [100u64, 100, 100, 112][i] << 20);
            let time = (n_eff * (1000 + round)) as f64;
            serde_json::from_value(serde_json::json!({
                "n_layer": 30, "n_layer_eff": n_eff, "n_ctx": 768,
                "load_us": time, "prefill_us": 10.0 * time,
                // One variant's last phase is noisy.
                "decode_us": if i == 3 { time * (1 + round) as f64 } else { time },
                "weight_bytes": file, "cache_bytes": n_eff << 18, "compute_bytes": 1 << 20,
                "peak_rss_bytes": file + ((n_eff as u64) << 18),
                "logits": if n_eff == 34 { "34" } else { "30" },
            }))
            .expect("a sample")
        };
        let rounds = |i, n| (0..n).map(|round| sample(i, round)).collect();
        Figures {
            file_bytes: [100, 100, 100, 112].map(|n| n << 20),
            read: [0, 1, 2, 3].map(|i| rounds(i, 3)),
            mapped: [0, 1, 2, 3].map(|i| rounds(i, if times { 6 } else { 0 })),
            instructions: counts.then(|| {
                [3000, 3001, 3400, 3402].map(|n| Phases {
                    load: n,
                    prefill: 100_000 * n,
                    decode: 10_000 * n,
                })
            }),
        }
    }

    fn report(times: bool, counts: bool) -> Report {
        let timed = Sizes {
            prefill: 512,
            decode: 64,
            context: 576,
            threads: 2,
        };
        let about = About {
            machine: Machine {
                cpu: "Some CPU".into(),
                cores: 2,
                ram_bytes: 24 << 30,
                os: "Linux".into(),
                compiler: "c++ 12".into(),
                load_average: 2.5,
            },
            upstream: "0123456".into(),
            model: "model.gguf".into(),
            spec: "10,14".into(),
            timed,
            counted: counts.then_some(Sizes {
                prefill: 32,
                decode: 8,
                threads: 1,
                ..timed
            }),
        };
        Report::new(about, &figures(times, counts)).expect("every variant ran")
    }

    #[test]
    fn tables() {
        let shown = report(true, true);
        assert!(!shown.converged);
        assert!(shown.failed().is_empty(), "{:?}", shown.failed());
        insta::assert_snapshot!("everything", shown.markdown());
        insta::assert_snapshot!("no_times_no_counts", report(false, false).markdown());
    }

    #[test]
    fn no_figures_no_report() {
        let about = report(false, false).about;
        assert!(Report::new(about, &Figures::default()).is_none());
    }

    #[test]
    fn order_of_variants_is_that_of_the_figures() {
        let shown = report(true, true);
        let letters: Vec<char> = ALL.iter().map(|v| v.letter()).collect();
        assert_eq!(letters, ['a', 'b', 'c', 'd']);
        assert!(shown.variants.iter().zip(ALL).all(|(r, v)| r.variant == v));
    }
}
