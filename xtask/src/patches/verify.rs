//! `cargo xtask patches verify`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};

use super::git::Git;
use super::{AUTHOR, DATE, HOOK, TRAILERS, hooks};
use crate::patch::{Applied, Change, FilePatch, Hunk, Patch, Series, Side, read_from};
use crate::progress::Step;
use crate::source::{Pin, Source};
use crate::{paths, tree, vendor};

/// Runs every check and lists everything that is wrong.
pub fn run() -> Result<()> {
    let source = vendor::verify(&Pin::read(&paths::vendor())?)?;
    let series = Series::read(&paths::patches())?;
    let applied = tree::apply(&source, &series)?;
    for note in &applied.notes {
        eprintln!("note: {note}");
    }

    let mut wrong = Vec::new();
    let ours: BTreeSet<&str> = series
        .patches
        .iter()
        .flat_map(|p| &p.files)
        .filter(|f| f.change == Change::Create)
        .map(|f| f.path.as_str())
        .collect();
    for (number, patch) in series.patches.iter().enumerate() {
        let mut say = |text: String| wrong.push(format!("{}: {text}", patch.name));
        header(number + 1, patch, &mut say);
        anchors(patch, &source, &mut say);
        tags(patch, &ours, &mut say);
        let tests: Vec<String> = trailers(&patch.header, "Test")
            .iter()
            .flat_map(|t| hooks::names(t))
            .collect();
        for name in tests.iter().filter(|t| !test_exists(t)) {
            say(format!("Test: there is no test `{name}`"));
        }
        for file in &patch.files {
            if let Some(arch) = untested_arch(&file.path, &tests) {
                say(format!(
                    "Test: no module of it names the architecture \"{arch}\""
                ));
            }
        }
    }
    wrong.extend(table(&applied)?);
    if source.pinned {
        let _step = Step::spinner("comparing with git am");
        if let Err(e) = git_am(&series, &source, &applied) {
            wrong.push(format!("git am does not give the same tree: {e:#}"));
        }
    }
    if !wrong.is_empty() {
        bail!(
            "the series has {} faults:\n    {}",
            wrong.len(),
            wrong.join("\n    ")
        );
    }
    println!(
        "{} patches, {} files: in order",
        series.patches.len(),
        applied.files.len()
    );
    Ok(())
}

fn header(number: usize, patch: &Patch, say: &mut impl FnMut(String)) {
    if !patch.name.starts_with(&format!("{number:04}-")) {
        say(format!("its name does not start with {number:04}-"));
    }
    let lines: Vec<&str> = patch.header.lines().collect();
    let wanted = [
        format!("From {} Mon Sep 17 00:00:00 2001", "0".repeat(40)),
        format!("From: {AUTHOR}"),
        format!("Date: {DATE}"),
    ];
    for (i, want) in wanted.iter().enumerate() {
        if lines.get(i) != Some(&want.as_str()) {
            say(format!(
                "line {} should be `{want}`; export it again",
                i + 1
            ));
        }
    }
    if !lines
        .get(3)
        .is_some_and(|l| l.starts_with("Subject: [PATCH] "))
    {
        say("line 4 should be `Subject: [PATCH] ...`".into());
    }
    if patch.bytes.windows(5).any(|w| w == b"\n-- \n") {
        say("it has a signature; export it again".into());
    }
    for name in TRAILERS {
        if trailers(&patch.header, name).is_empty() {
            say(format!("no `{name}:` in its message"));
        }
    }
}

/// Values of the trailer `name`, empty ones left out.
fn trailers<'a>(header: &'a str, name: &str) -> Vec<&'a str> {
    header
        .lines()
        .filter_map(|l| l.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
        .filter(|v| !v.is_empty())
        .collect()
}

fn anchors(patch: &Patch, source: &Source, say: &mut impl FnMut(String)) {
    for anchor in trailers(&patch.header, "Anchor") {
        let Some((path, text)) = anchor.split_once(": ") else {
            say(format!("Anchor: `{anchor}` is not `path: text`"));
            continue;
        };
        match fs::read_to_string(source.root.join(path)) {
            Err(e) => say(format!("Anchor: cannot read {path}: {e}")),
            Ok(content) => match content.matches(text).count() {
                1 => (),
                n => say(format!(
                    "Anchor: `{text}` occurs {n} times in {path}, not once"
                )),
            },
        }
    }
}

fn tags(patch: &Patch, ours: &BTreeSet<&str>, say: &mut impl FnMut(String)) {
    for file in &patch.files {
        for hunk in file.hunks.iter().filter(|h| !tagged(file, h, ours)) {
            say(format!(
                "{}: the hunk at line {} adds code without the tag `{HOOK}`",
                file.path, hunk.new_start
            ));
        }
    }
}

/// Whether a hunk needs no tag or has one. Without one: lists of sources, later changes of
/// files of ours, and the guard that belongs to a tagged loop header.
fn tagged(file: &FilePatch, hunk: &Hunk, ours: &BTreeSet<&str>) -> bool {
    let added: Vec<_> = hunk
        .lines
        .iter()
        .filter(|(s, _)| *s == Side::New)
        .map(|(_, l)| String::from_utf8_lossy(l))
        .collect();
    let tag = hunk
        .new_lines()
        .iter()
        .any(|l| String::from_utf8_lossy(l).contains(HOOK));
    let later = file.change == Change::Modify && ours.contains(file.path.as_str());
    let guard = arch_of(&file.path).is_some()
        && file.hunks.len() > 1
        && added.len() == 1
        && added[0].contains("n_layer_eff");
    tag || later || guard || added.is_empty() || file.path.ends_with("CMakeLists.txt")
}

/// A test is a module of the integration tests, or `module::function`.
fn test_exists(name: &str) -> bool {
    let (module, function) = name
        .split_once("::")
        .map_or((name, None), |(m, f)| (m, Some(f)));
    let sources = module_sources(module);
    !sources.is_empty() && function.is_none_or(|f| sources.contains(&format!("fn {f}(")))
}

/// Text of a module of the integration tests and of the modules inside it; empty without one.
fn module_sources(module: &str) -> String {
    let it = paths::root().join("tests/tests/it");
    let inside = fs::read_dir(it.join(module))
        .into_iter()
        .flatten()
        .flatten();
    inside
        .map(|item| item.path())
        .chain([it.join(format!("{module}.rs"))])
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect()
}

/// The architecture of a model's source file.
fn arch_of(path: &str) -> Option<&str> {
    path.strip_prefix("src/models/")?.strip_suffix(".cpp")
}

/// The architecture of a model's source file, if no module of `tests` names it.
fn untested_arch<'a>(path: &'a str, tests: &[String]) -> Option<&'a str> {
    let arch = arch_of(path)?;
    let names_it = |test: &String| {
        let module = test.split("::").next().unwrap_or(test);
        module_sources(module).contains(&format!("\"{arch}\""))
    };
    (!tests.iter().any(names_it)).then_some(arch)
}

fn table(applied: &Applied) -> Result<Vec<String>> {
    let path = paths::root().join("UPSTREAM_SYNC.md");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let rows = hooks::parse(&text)
        .with_context(|| format!("{} cannot be compared with the tags", path.display()))?;
    let tags: BTreeMap<String, String> = applied
        .files
        .iter()
        .filter_map(|(path, content)| {
            Some((
                path.clone(),
                String::from_utf8_lossy(content.as_ref()?).into_owned(),
            ))
        })
        .filter(|(_, text)| text.contains(HOOK))
        .collect();
    let mut wrong: Vec<String> = hooks::compare(&rows, &tags, HOOK)
        .into_iter()
        .map(|text| format!("UPSTREAM_SYNC.md: {text}"))
        .collect();
    let tests: BTreeSet<&String> = rows.iter().flat_map(|r| &r.tests).collect();
    wrong.extend(
        tests
            .into_iter()
            .filter(|t| !test_exists(t))
            .map(|t| format!("UPSTREAM_SYNC.md: there is no test `{t}`")),
    );
    wrong.extend(rows.iter().filter_map(|row| {
        let arch = untested_arch(&row.file, &row.tests)?;
        Some(format!(
            "UPSTREAM_SYNC.md: {}: no test of its row names the architecture \"{arch}\"",
            row.file
        ))
    }));
    Ok(wrong)
}

/// The series must mean the same to git: what a user without Rust applies.
fn git_am(series: &Series, source: &Source, applied: &Applied) -> Result<()> {
    let dir = tempfile::tempdir().context("cannot create a temporary folder")?;
    let git = Git::init(dir.path())?;
    let mut read = read_from(&source.root);
    for path in applied.files.keys() {
        if let Some(bytes) = read(path)? {
            let to = dir.path().join(path);
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(to, bytes)?;
        }
    }
    git.run(&["add", "--all", "--force"])?;
    git.run(&[
        "commit",
        "--quiet",
        "--author",
        AUTHOR,
        "--message",
        "pristine",
    ])?;
    for patch in &series.patches {
        git.feed(&["am", "--quiet", "--keep-cr"], &patch.bytes)
            .with_context(|| patch.name.clone())?;
    }
    let mut read = read_from(dir.path());
    for (path, content) in &applied.files {
        if read(path)? != *content {
            bail!("{path} differs");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_architectures() {
        let check = |path, tests: &[&str]| {
            let tests: Vec<String> = tests.iter().map(|t| (*t).to_owned()).collect();
            untested_arch(path, &tests).map(str::to_owned)
        };
        assert_eq!(check("src/models/gemma3.cpp", &["twins"]), None);
        assert_eq!(
            check("src/models/qwen35.cpp", &["spec", "families::qwen35"]),
            None
        );
        assert_eq!(
            check("src/models/qwen35.cpp", &["spec"]).as_deref(),
            Some("qwen35")
        );
        assert_eq!(
            check("src/models/qwen35.cpp", &["absent"]).as_deref(),
            Some("qwen35")
        );
        assert_eq!(check("src/llama-graph.cpp", &["off"]), None);
    }

    #[test]
    fn tests_exist() {
        assert!(test_exists("families") && test_exists("hybrid") && test_exists("off::state"));
        assert!(!test_exists("absent") && !test_exists("off::absent"));
    }

    #[test]
    fn guards_need_no_tag_in_models_only() {
        let guard = "if (il == n_layer_eff - 1) {\n";
        let hunk = |text: &str| Hunk {
            old_start: 1,
            new_start: 1,
            lines: vec![(Side::New, text.into())],
        };
        let check = |path: &str| {
            let file = FilePatch {
                path: path.into(),
                change: Change::Modify,
                hunks: vec![hunk(HOOK), hunk(guard)],
            };
            tagged(&file, &file.hunks[1], &BTreeSet::new())
        };
        assert!(check("src/models/llama.cpp"));
        assert!(!check("src/llama-graph.cpp"));
    }

    #[test]
    fn trailers_by_name() {
        let header = "Subject: x\n\nWhy: a\nTest: b, c\nTest:\nTesting: d\n";
        assert_eq!(trailers(header, "Test"), ["b, c"]);
        assert_eq!(trailers(header, "Why"), ["a"]);
        assert!(trailers(header, "Anchor").is_empty());
    }
}
