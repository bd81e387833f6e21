//! The report for people, in Markdown.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};

use super::report::{Report, VariantReport};
use super::stats::{Estimate, MAX_WIDTH};
use super::variant::{Phases, Variant};

impl Report {
    /// Tables and notes, ready to paste.
    pub fn markdown(&self) -> String {
        let about = &self.about;
        let mut text = String::new();
        let mut line = |l: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{l}");
        };
        line(format!(
            "{} with `{}` ({} layers, run as {}), llama.cpp {}. {}.",
            about.model, about.spec, self.n_layer, self.n_layer_eff, about.upstream, about.machine
        ));
        line(String::new());
        line(self.variant_table());
        line(String::new());
        line(self.ratio_table());
        line(String::new());
        line(self.gate_table());
        line(String::new());
        for note in self.notes() {
            line(format!("- {note}"));
        }
        text
    }

    fn variant_table(&self) -> String {
        let head = [
            String::new(),
            "a: stock llama.cpp".into(),
            "b: this build, no repeats".into(),
            format!("c: this build, `{}`", self.about.spec),
            "d: stock, expanded file".into(),
        ];
        let mut table = table(head);
        let mut row = |name: &str, cell: &dyn Fn(&VariantReport) -> Option<String>| {
            let cells: Vec<_> = self.variants.iter().map(cell).collect();
            if cells.iter().any(Option::is_some) {
                let cells = cells.into_iter().map(Option::unwrap_or_default);
                table.add_row([name.to_owned()].into_iter().chain(cells));
            }
        };
        row("file, MiB", &|v| Some(mib(v.file_bytes)));
        row("weights in memory, MiB", &|v| Some(mib(v.weight_bytes)));
        row("KV cache and state, MiB", &|v| Some(mib(v.cache_bytes)));
        row("peak RSS, weights read, MiB", &|v| {
            Some(mib(v.peak_rss_bytes))
        });
        row("peak RSS, weights mapped, MiB", &|v| {
            v.peak_rss_mapped_bytes.map(mib)
        });
        let rate = |e: Option<Estimate>| e.map(|e| estimate(&e, 1));
        row("load, ms", &|v| rate(v.load_ms));
        row("prefill, tokens/s", &|v| rate(v.prefill_tokens_per_s));
        row("decode, tokens/s", &|v| rate(v.decode_tokens_per_s));
        for (i, phase) in PHASES.each().into_iter().enumerate() {
            row(&format!("instructions, {phase}, millions"), &|v| {
                let count = *v.instructions.as_ref()?.each()[i];
                Some(format!("{:.1}", count as f64 / 1e6))
            });
        }
        table.to_string()
    }

    fn ratio_table(&self) -> String {
        let name = |v: Variant| v.letter();
        let head = self
            .ratios
            .iter()
            .map(|r| format!("{}/{}", name(r.over), name(r.under)));
        let mut table = table([String::new()].into_iter().chain(head));
        let passes = |v: Variant| match v {
            Variant::Stock | Variant::Off => self.n_layer,
            Variant::Repeats | Variant::Expanded => self.n_layer_eff,
        };
        let layers = self.ratios.iter().map(|r| {
            let ratio = f64::from(passes(r.over)) / f64::from(passes(r.under));
            format!("{ratio:.4}")
        });
        table.add_row(["layers run".to_owned()].into_iter().chain(layers));
        for (i, phase) in PHASES.each().into_iter().enumerate() {
            let counts: Option<Vec<String>> = self
                .ratios
                .iter()
                .map(|r| Some(format!("{:.4}", r.instructions.as_ref()?.each()[i])))
                .collect();
            if let Some(cells) = counts {
                let first = format!("instructions, {phase}");
                table.add_row([first].into_iter().chain(cells));
            }
        }
        for (i, phase) in PHASES.each().into_iter().enumerate() {
            let times: Option<Vec<String>> = self
                .ratios
                .iter()
                .map(|r| Some(estimate(r.time.as_ref()?.each()[i], 3)))
                .collect();
            if let Some(cells) = times {
                table.add_row([format!("time, {phase}")].into_iter().chain(cells));
            }
        }
        table.to_string()
    }

    fn gate_table(&self) -> String {
        let mut table = table(["gate", "found", "result"].map(str::to_owned));
        for gate in &self.gates {
            let result = match gate.passed {
                Some(true) => "pass",
                Some(false) => "FAIL",
                None => "not measured",
            };
            table.add_row([&gate.requirement, &gate.found, result]);
        }
        table.to_string()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let size = &self.about.timed;
        if self.rounds > 0 {
            notes.push(format!(
                "Times: medians of {} rounds, a to d in turn, each in a process of its own: a prompt of {} tokens, \
                 then {} one by one, {} thread{}, weights mapped. In brackets the width of the 95 % \
                 confidence interval.",
                self.rounds, size.prefill, size.decode, size.threads,
                if size.threads == 1 { "" } else { "s" }
            ));
            if !self.converged {
                notes.push(format!(
                    "Stopped by the limit of rounds: values marked `!` have an interval wider than {} %.",
                    MAX_WIDTH * 100.0
                ));
            }
            if !self.about.machine.is_quiet() {
                notes.push(format!(
                    "The machine was busy (load average {:.2}): the times are no measure of the builds.",
                    self.about.machine.load_average
                ));
            }
        }
        if let Some(size) = &self.about.counted {
            notes.push(format!(
                "Instructions: callgrind, one thread, builds without OpenMP and without code for this CPU alone; \
                 a prompt of {} tokens, then {} one by one.",
                size.prefill, size.decode
            ));
        }
        notes.push(format!(
            "Memory: one thread, a context of {} tokens. \"Weights read\" counts the weights as the process's own memory; \
             mapped ones are the file's pages.",
            size.context
        ));
        notes
    }
}

/// Names of the phases.
const PHASES: Phases<&str> = Phases {
    load: "load",
    prefill: "prefill",
    decode: "decode",
};

fn table(head: impl IntoIterator<Item = String>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(head);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn estimate(e: &Estimate, digits: usize) -> String {
    let mark = if e.converged() { "" } else { " !" };
    let width = match e.width() {
        Some(w) => format!(" ({:.1} %)", w * 100.0),
        None => String::new(),
    };
    format!("{:.digits$}{width}{mark}", e.median)
}
