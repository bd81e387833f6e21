//! Bad input through the program: status, stdout and stderr.

use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::process::Output;

use rys_tests::gguf::Writer;
use rys_tests::{real, scratch, server};
use tempfile::TempDir;

/// A folder with the model and with files that are none.
fn folder() -> TempDir {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let model = real::smollm2();
    let head = |n: u64| {
        let mut bytes = Vec::new();
        let file = fs::File::open(&model).unwrap();
        file.take(n).read_to_end(&mut bytes).unwrap();
        bytes
    };
    symlink(&model, at("model.gguf")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("empty.gguf"), "").unwrap();
    fs::write(at("text.gguf"), "no model, but a text of some length\n").unwrap();
    fs::write(at("cut-header.gguf"), head(5_000)).unwrap();
    fs::write(at("cut-weights.gguf"), head(3_000_000)).unwrap();
    for (name, spec) in [("config", "10-14"), ("bad-config", "34-26")] {
        fs::create_dir_all(at(name).join("llama.cpp")).unwrap();
        let file = at(name).join("llama.cpp/config.ini");
        fs::write(file, format!("repeat-layers = {spec}\n")).unwrap();
    }
    header(&dir, "other.gguf", "gpt2", 12, 0);
    header(&dir, "mtp.gguf", "qwen35", 65, 1);
    header(&dir, "layers-600.gguf", "llama", 600, 0);
    dir
}

fn header(dir: &TempDir, name: &str, arch: &str, block_count: u32, nextn: u32) {
    let mut file = Writer::new();
    file.set_str("general.architecture", arch);
    file.set_u32(&format!("{arch}.block_count"), block_count);
    if nextn > 0 {
        file.set_u32(&format!("{arch}.nextn_predict_layers"), nextn);
    }
    file.write(&dir.path().join(name));
}

/// Runs the program once for each line, a list of words, and shows what came of it.
#[track_caller]
fn check(name: &str, lines: &[&[&str]]) {
    let dir = folder();
    let mut text = String::new();
    for line in lines {
        let (vars, args): (Vec<&str>, Vec<&str>) = line
            .iter()
            .partition(|word| word.starts_with("LLAMA_ARG_") || word.starts_with("XDG_"));
        let vars: Vec<(&str, &str)> = vars.iter().filter_map(|v| v.split_once('=')).collect();
        let words: Vec<String> = line.iter().map(|word| shown(word)).collect();
        let _ = writeln!(text, "$ {}", words.join(" "));
        text += &outcome(&server::run(dir.path(), &args, &vars));
    }
    insta::assert_snapshot!(name, text);
}

/// Status and both streams, without what differs from run to run.
fn outcome(out: &Output) -> String {
    let mut text = match out.status.code() {
        Some(code) => format!("status {code}\n"),
        None => format!("{}\n", out.status),
    };
    // Grows with every architecture.
    let archs = rys::supported_archs().join(", ");
    for (name, bytes) in [("stdout", &out.stdout), ("stderr", &out.stderr)] {
        let shown = String::from_utf8_lossy(bytes).replace(&archs, "[architectures]");
        for line in shown.lines() {
            let line = match line.split_once(' ') {
                // llama.cpp's log: a time, then a level; its errors say why, the rest is at work.
                Some((time, rest)) if is_time(time) => match rest.starts_with("E ") {
                    true => rest,
                    false => continue,
                },
                _ => line,
            };
            let _ = writeln!(text, "{name}: {line}");
        }
    }
    text + "\n"
}

fn is_time(word: &str) -> bool {
    word.len() == 12 && word.split('.').all(|part| part.parse::<u32>().is_ok())
}

fn shown(word: &str) -> String {
    if word.len() > 200 {
        let start: String = word.chars().take(12).collect();
        return format!("{}... ({} bytes)", start.escape_debug(), word.len());
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.escape_debug())
}

const SPECS: &[&str] = &[
    "",
    "34,26",
    "33,33",
    "0,0",
    "-1,3",
    "60,70",
    "0-45,30-70",
    "26..33",
    "26,34;",
    ";",
    "26,34,",
    "26,34x",
    "99999999999,3",
    "２６,３４",
    "20,31",
    "layers:0,1,2",
    "0,20+10,30",
    "1\u{1}\u{1b}[31m,3",
];

#[test]
fn specs_on_the_command_line() {
    let lines: Vec<[&str; 4]> = SPECS
        .iter()
        .map(|spec| ["-m", "model.gguf", "--repeat-layers", spec])
        .collect();
    let lines: Vec<&[&str]> = lines.iter().map(|line| &line[..]).collect();
    check("specs_on_the_command_line", &lines);
}

#[test]
fn specs_in_the_environment() {
    let vars: Vec<String> = SPECS
        .iter()
        .map(|spec| format!("LLAMA_ARG_REPEAT_LAYERS={spec}"))
        .collect();
    let lines: Vec<[&str; 3]> = vars.iter().map(|v| [&v[..], "-m", "model.gguf"]).collect();
    let lines: Vec<&[&str]> = lines.iter().map(|line| &line[..]).collect();
    check("specs_in_the_environment", &lines);
}

#[test]
fn long_specs() {
    let digits = "7".repeat(100_000);
    let blocks = "26,34;".repeat(100_000 / 6);
    let var = format!("LLAMA_ARG_REPEAT_LAYERS={blocks}");
    check(
        "long_specs",
        &[
            &["-m", "model.gguf", "-rl", &digits],
            &["-m", "model.gguf", "-rl", &blocks],
            &[&var, "-m", "model.gguf"],
        ],
    );
}

#[test]
fn options() {
    check(
        "options",
        &[
            &["-m", "model.gguf", "-rl", "10,14", "-rl", "60,70"],
            &["-m", "model.gguf", "--repeat-layers"],
            &["-m", "model.gguf", "--chat", "--cli"],
            &["--chat", "-m", "model.gguf", "-rl", "60,70"],
            &["--cli", "-m", "model.gguf", "-rl", "60,70"],
            &["-m", "model.gguf", "--no-such-option"],
            &["-m", "model.gguf", "-rl", "10,14", "--split-mode", "tensor"],
            // The environment overrides the config file, the command line both.
            &["XDG_CONFIG_HOME=bad-config", "-m", "model.gguf"],
            &["XDG_CONFIG_HOME=config", "-m", "other.gguf"],
            &[
                "XDG_CONFIG_HOME=config",
                "LLAMA_ARG_REPEAT_LAYERS=4-60",
                "-m",
                "model.gguf",
            ],
            &[
                "LLAMA_ARG_REPEAT_LAYERS=4-60",
                "-m",
                "model.gguf",
                "-rl",
                "4-70",
            ],
        ],
    );
}

#[test]
fn models() {
    let mut lines: Vec<Vec<&str>> = Vec::new();
    for file in [
        "missing.gguf",
        "folder",
        "empty.gguf",
        "text.gguf",
        "cut-header.gguf",
        "cut-weights.gguf",
        "layers-600.gguf",
    ] {
        lines.push(vec!["-m", file]);
        lines.push(vec!["-m", file, "-rl", "10,14"]);
    }
    lines.push(vec!["-m", "other.gguf", "-rl", "4,6"]);
    lines.push(vec!["-m", "mtp.gguf", "-rl", "60,65"]);
    let lines: Vec<&[&str]> = lines.iter().map(|line| &line[..]).collect();
    check("models", &lines);
}

#[test]
fn plan() {
    let dir = folder();
    let merge = "merge_method: passthrough\nslices:\n\
                 - sources: [{model: a, layer_range: [0, 24]}]\n\
                 - sources: [{model: a, layer_range: [8, 32]}]\n";
    let config = "# best first\n26,34\nlayers:0,1,2\n0,0\nlayers:0,1,0,1,0\n";
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("merge.yml"), merge).unwrap();
    fs::write(at("rys.txt"), config).unwrap();
    let mut text = String::new();
    for line in [
        "plan 10,14 -m model.gguf -c 1024",
        "plan 0,2+10,14 -m model.gguf -c 1024 -np 2 -ctk q8_0 -ctv f32",
        "plan 10,14 -m model.gguf -c 1024 --json",
        "plan 43-45+28-34 --n-layer 64",
        "plan --from merge.yml",
        "plan --from merge.yml --json",
        "plan --from merge.yml --n-layer 40",
        "plan --from rys.txt",
        "plan --from rys.txt --json",
        "plan 34,26 --n-layer 64",
        "plan 60,70 --n-layer 64",
        "plan -1,3 --n-layer 64",
        "plan 10,14",
        "plan",
        "plan 60,65 -m mtp.gguf",
        "plan 4,6 -m other.gguf",
        "plan 4,6 -m text.gguf",
        "plan 4,6 -m missing.gguf",
        "plan 4,6 -m model.gguf -ctk q9",
        "plan 4,6 -m model.gguf -np 0",
        "plan 4,6 --n-layer 0",
        "plan --from folder",
        "plan --from text.gguf",
        "plan --from empty.gguf",
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let _ = writeln!(text, "$ {line}");
        text += &outcome(&server::run(dir.path(), &args, &[]));
    }
    insta::assert_snapshot!("plan", text);
}
