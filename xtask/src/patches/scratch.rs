//! `cargo xtask patches apply`: the series as commits.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::git::Git;
use super::{AUTHOR, DATE};
use crate::patch::{Applied, Patch, Place, Series, read_from};
use crate::progress::Step;
use crate::source::{Pin, Source};
use crate::{paths, vendor};

/// Tag of the commit with the pristine source.
pub const PRISTINE: &str = "pristine";
/// Tag of the last commit that is known to be in the series.
pub const EXPORTED: &str = "exported";

/// Makes or continues the tree.
pub fn apply(tree: &Path, force: bool, go_on: bool) -> Result<()> {
    let source = vendor::verify(&Pin::read(&paths::vendor())?)?;
    let series = Series::read(&paths::patches())?;
    let (git, done) = if go_on {
        let git = Git::open(tree)?;
        ensure!(
            git.run(&["status", "--porcelain"])?.is_empty(),
            "{} has changes that are not committed",
            tree.display()
        );
        let done = git.run(&["rev-list", "--count", &format!("{PRISTINE}..HEAD")])?;
        (git, done.trim().parse().context("git counts no commits")?)
    } else {
        if tree.exists() {
            ensure!(
                force || unchanged(tree)?,
                "{} holds work that is not exported; run `cargo xtask patches export`, or `apply --force` to drop it",
                tree.display()
            );
            fs::remove_dir_all(tree)
                .with_context(|| format!("cannot remove {}", tree.display()))?;
        }
        (pristine(tree, &source)?, 0)
    };
    let place = if source.pinned {
        Place::Exact
    } else {
        Place::OffsetAllowed
    };
    for (number, patch) in series.patches.iter().enumerate().skip(done) {
        for note in commit(&git, patch, place).with_context(|| {
            format!(
                "{number} of {} patches are commits in {}; make the commit for this one by hand, then run `cargo xtask patches apply --continue`",
                series.patches.len(),
                tree.display()
            )
        })? {
            eprintln!("note: {note}");
        }
    }
    if !go_on {
        git.run(&["tag", "--force", EXPORTED])?;
    }
    println!(
        "{}: {} patches on the tag `{PRISTINE}`",
        tree.display(),
        series.patches.len()
    );
    Ok(())
}

fn unchanged(tree: &Path) -> Result<bool> {
    let git = Git::open(tree)?;
    let head = git.run(&["rev-parse", "HEAD"])?;
    let exported = git.run(&["rev-parse", "--verify", "--quiet", EXPORTED]);
    Ok(git.run(&["status", "--porcelain"])?.is_empty() && exported.is_ok_and(|e| e == head))
}

fn pristine(tree: &Path, source: &Source) -> Result<Git> {
    let _step = Step::spinner("copying the source");
    for entry in &source.files {
        let to = tree.join(&entry.path);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(source.root.join(&entry.path), &to)
            .with_context(|| format!("cannot copy {}", entry.path))?;
    }
    let git = Git::init(tree)?;
    git.run(&["add", "--all", "--force"])?;
    git.run(&[
        "commit",
        "--quiet",
        "--no-verify",
        "--author",
        AUTHOR,
        "--date",
        DATE,
        "--message",
        PRISTINE,
    ])?;
    git.run(&["tag", PRISTINE])?;
    Ok(git)
}

/// Applies one patch to the work tree and commits it; returns notes about offsets.
pub fn commit(git: &Git, patch: &Patch, place: Place) -> Result<Vec<String>> {
    let mut applied = Applied::default();
    patch.apply_to(place, &mut applied, &mut read_from(&git.tree))?;
    for (path, content) in &applied.files {
        let full = git.tree.join(path);
        match content {
            Some(bytes) => {
                if let Some(parent) = full.parent() {
                    fs::create_dir_all(parent)?;
                }
                fs::write(&full, bytes)
            }
            None => fs::remove_file(&full),
        }
        .with_context(|| format!("cannot change {}", full.display()))?;
    }
    git.run(&["add", "--all", "--force"])?;
    let message = Message::of(patch)?;
    git.feed(
        &[
            "commit",
            "--quiet",
            "--no-verify",
            "--cleanup=verbatim",
            "--author",
            &message.author,
            "--date",
            &message.date,
            "--file",
            "-",
        ],
        message.text.as_bytes(),
    )?;
    let mut read = read_from(&git.tree);
    for (path, content) in &applied.files {
        ensure!(
            read(path)? == *content,
            "{path} changed while it was committed"
        );
    }
    Ok(applied.notes)
}

/// Author, date and text of the commit that a patch was made from.
struct Message {
    author: String,
    date: String,
    text: String,
}

impl Message {
    fn of(patch: &Patch) -> Result<Message> {
        let (head, body) = patch
            .header
            .split_once("\n\n")
            .with_context(|| format!("{} has no empty line after its headers", patch.name))?;
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in head.lines().skip(1) {
            match (
                line.strip_prefix(' '),
                fields.last_mut(),
                line.split_once(": "),
            ) {
                // A long subject goes on in lines that start with a space.
                (Some(more), Some((_, value)), _) => {
                    value.push(' ');
                    value.push_str(more);
                }
                (None, _, Some((name, value))) => fields.push((name.into(), value.into())),
                _ => bail!("{}: `{line}` is not a mail header", patch.name),
            }
        }
        let field = |name: &str| {
            let found = fields
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| v.clone());
            found.with_context(|| format!("{} has no `{name}:`", patch.name))
        };
        let subject = field("Subject")?;
        let subject = subject.strip_prefix("[PATCH] ").unwrap_or(&subject);
        // `git format-patch` puts `---` and a list of files between text and diff unless told not to.
        let body = body.split("\n---\n").next().unwrap_or_default().trim_end();
        Ok(Message {
            author: field("From")?,
            date: field("Date")?,
            text: format!("{subject}\n\n{body}\n"),
        })
    }
}
