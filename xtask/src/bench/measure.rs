//! Single runs of the measured program, each in a process of its own.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rys_plan::Spec;
use serde::{Deserialize, Serialize};

use super::programs::Programs;
use super::variant::{Phases, Variant};

/// The models and the repeats.
#[derive(Debug)]
pub struct Case {
    pub model: PathBuf,
    /// The model with the repeated layers written out.
    pub expanded: PathBuf,
    pub spec: Spec,
}

/// How much a run evaluates.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Sizes {
    /// Tokens of the prompt.
    pub prefill: u32,
    /// Tokens after it, one by one.
    pub decode: u32,
    /// Tokens that the context has room for.
    pub context: u32,
    pub threads: u32,
}

/// How weights get into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    Mmap,
    Read,
}

/// What the program prints.
#[derive(Debug, Clone, Deserialize)]
pub struct Sample {
    pub n_layer: u32,
    pub n_layer_eff: u32,
    pub n_ctx: u32,
    load_us: f64,
    prefill_us: f64,
    decode_us: f64,
    pub weight_bytes: u64,
    /// KV cache and recurrent state.
    pub cache_bytes: u64,
    pub compute_bytes: u64,
    pub peak_rss_bytes: u64,
    /// Hash of the last logits of prefill and decode.
    pub logits: String,
}

impl Sample {
    /// Microseconds.
    pub fn time(&self) -> Phases<f64> {
        Phases {
            load: self.load_us,
            prefill: self.prefill_us,
            decode: self.decode_us,
        }
    }
}

impl Case {
    /// The file that a variant loads.
    pub fn file(&self, variant: Variant) -> &Path {
        match variant {
            Variant::Expanded => &self.expanded,
            _ => &self.model,
        }
    }

    /// Runs a variant once.
    pub fn sample(
        &self,
        programs: &Programs,
        variant: Variant,
        sizes: &Sizes,
        load: Load,
    ) -> Result<Sample> {
        let words = self.words(programs, variant, sizes, load, true);
        let out = run(Command::new(&words[0]).args(&words[1..]), variant)?;
        serde_json::from_slice(&out).context("the measured program printed no JSON")
    }

    /// Counts a variant's instructions; `dir` is for valgrind's files.
    pub fn count(
        &self,
        programs: &Programs,
        variant: Variant,
        sizes: &Sizes,
        dir: &Path,
    ) -> Result<Phases<u64>> {
        let out = dir.join(format!("callgrind.{}", variant.letter()));
        let mut cmd = Command::new("valgrind");
        cmd.arg("--tool=callgrind");
        cmd.arg(format!("--callgrind-out-file={}", out.display()));
        cmd.args(self.words(programs, variant, sizes, Load::Mmap, false));
        run(&mut cmd, variant)?;
        let profile =
            fs::read_to_string(&out).with_context(|| format!("cannot read {}", out.display()))?;
        counts(&profile)
    }

    fn words(
        &self,
        programs: &Programs,
        variant: Variant,
        sizes: &Sizes,
        load: Load,
        warm_up: bool,
    ) -> Vec<OsString> {
        let program = match variant {
            Variant::Stock | Variant::Expanded => &programs.stock,
            Variant::Off | Variant::Repeats => &programs.patched,
        };
        let mut numbers = vec![
            sizes.prefill,
            sizes.decode,
            sizes.context,
            sizes.threads,
            u32::from(load == Load::Mmap),
            u32::from(warm_up),
        ];
        if variant == Variant::Repeats {
            let blocks = self.spec.blocks().iter();
            numbers.extend(blocks.flat_map(|b| [b.start(), b.end()]));
        }
        [program.as_path(), self.file(variant)]
            .map(OsString::from)
            .into_iter()
            .chain(numbers.iter().map(|n| n.to_string().into()))
            .collect()
    }
}

/// Functions of the measured program.
const PHASES: Phases<&str> = Phases {
    load: "bench_load",
    prefill: "bench_prefill",
    decode: "bench_decode",
};

/// Instructions of each phase, those of the functions it calls included, from a profile in
/// callgrind's format.
fn counts(profile: &str) -> Result<Phases<u64>> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut total: HashMap<&str, u64> = HashMap::new();
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        // `fn=(ID) NAME` at first, `fn=(ID)` after; `cfn` is the callee of the `calls` that
        // follows, whose next line ends with what the call cost.
        let Some((key, rest)) = line.split_once("fn=") else {
            continue;
        };
        let (id, name) = rest.split_once(' ').unwrap_or((rest, ""));
        if !name.is_empty() {
            names.insert(id, name);
        }
        if key == "c"
            && lines.next().is_some_and(|l| l.starts_with("calls="))
            && let Some(cost) = lines.next().and_then(|l| l.rsplit(' ').next())
            && let Some(&callee) = names.get(id)
        {
            *total.entry(callee).or_default() += cost.parse::<u64>().unwrap_or(0);
        }
    }
    PHASES
        .map(|phase| total.get(phase).copied())
        .all()
        .context("callgrind did not count every phase")
}

fn run(cmd: &mut Command, variant: Variant) -> Result<Vec<u8>> {
    let program = cmd.get_program().to_string_lossy().into_owned();
    let out = cmd
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(10)..].join("\n    ");
        bail!(
            "({}) failed ({}):\n    {tail}",
            variant.letter(),
            out.status
        );
    }
    ensure!(!out.stdout.is_empty(), "{program} printed nothing");
    Ok(out.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(profile: &str, want: Option<[u64; 3]>) {
        let got = counts(profile).ok().map(|c| c.each().map(|n| *n));
        assert_eq!(got, want, "{profile}");
    }

    #[test]
    fn counts_are_those_of_calls() {
        let head = "version: 1\ncreator: callgrind\n\nevents: Ir\nsummary: 999\n\n";
        let main = "fn=(7) bench_load\n16 5\ncfn=(8) llama_load\ncalls=1 0\n16 95\n\n\
                    fn=(1) main\n16 400\n\
                    cfn=(7)\ncalls=1 0\n18 100\n\
                    cfi=(3) main.cpp\ncfn=(9) bench_prefill\ncalls=1 0\n* 200\n\
                    cfn=(8)\ncalls=1 0\n+3 1\n\
                    cfn=(10) bench_decode\ncalls=1 0\n+1 300\n";
        check(&format!("{head}{main}"), Some([100, 200, 300]));
        let twice = format!("{head}{main}\nfn=(11) other\ncfn=(9)\ncalls=2 0\n5 11\n");
        check(&twice, Some([100, 211, 300]));
        check(&twice.replace("bench_decode", "bench_other"), None);
        check(head, None);
    }
}
