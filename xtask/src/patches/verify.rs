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
        for name in trailers(&patch.header, "Test")
            .iter()
            .flat_map(|t| hooks::names(t))
        {
            if !test_exists(&name) {
                say(format!("Test: there is no test `{name}`"));
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
    let guard = file.hunks.len() > 1 && added.len() == 1 && added[0].contains("n_layer_eff");
    tag || later || guard || added.is_empty() || file.path.ends_with("CMakeLists.txt")
}

/// A test is a module of the integration tests, or `module::function`.
fn test_exists(name: &str) -> bool {
    let (module, function) = name
        .split_once("::")
        .map_or((name, None), |(m, f)| (m, Some(f)));
    let dir = paths::root().join("tests/tests/it");
    let text = [
        dir.join(format!("{module}.rs")),
        dir.join(module).join("mod.rs"),
    ]
    .iter()
    .find_map(|p| fs::read_to_string(p).ok());
    text.is_some_and(|t| function.is_none_or(|f| t.contains(&format!("fn {f}("))))
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
    fn trailers_by_name() {
        let header = "Subject: x\n\nWhy: a\nTest: b, c\nTest:\nTesting: d\n";
        assert_eq!(trailers(header, "Test"), ["b, c"]);
        assert_eq!(trailers(header, "Why"), ["a"]);
        assert!(trailers(header, "Anchor").is_empty());
    }
}
