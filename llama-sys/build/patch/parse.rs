//! Reads git's patch format.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::{Change, FilePatch, Hunk, Patch, Side, text};

impl Patch {
    /// Parses the text of one patch in git's format.
    pub fn parse(name: &str, bytes: Vec<u8>) -> Result<Patch> {
        let mut lines = Lines {
            rest: &bytes,
            number: 0,
        };
        let mut header = Vec::new();
        while let Some(line) = lines.peek() {
            if line.starts_with(b"diff --git ") {
                break;
            }
            header.extend_from_slice(line);
            lines.next();
        }
        let mut files = Vec::new();
        while let Some(line) = lines.peek() {
            if line.starts_with(b"diff --git ") {
                files.push(parse_file(&mut lines)?);
            } else if line.trim_ascii().is_empty() || line == b"-- \n" {
                // What `git format-patch` writes after the last hunk: a signature, empty lines.
                break;
            } else {
                bail!(
                    "line {}: expected `diff --git`, found `{}`",
                    lines.number + 1,
                    text(line)
                );
            }
        }
        ensure!(!files.is_empty(), "it changes no file");
        let header = String::from_utf8(header).context("its header is not UTF-8")?;
        Ok(Patch {
            name: name.into(),
            header,
            files,
            bytes: bytes.clone(),
        })
    }
}
struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Lines<'a> {
    fn peek(&self) -> Option<&'a [u8]> {
        let end = self
            .rest
            .iter()
            .position(|b| *b == b'\n')
            .map_or(self.rest.len(), |i| i + 1);
        (end > 0).then(|| &self.rest[..end])
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        let line = self.peek()?;
        self.rest = &self.rest[line.len()..];
        self.number += 1;
        Some(line)
    }
}
fn parse_file(lines: &mut Lines) -> Result<FilePatch> {
    let first = text(lines.next().unwrap_or_default());
    let mut change = Change::Modify;
    let (mut old, mut new) = (None, None);
    while let Some(line) = lines.peek() {
        let line = text(line);
        if line.starts_with("@@ ") || line.starts_with("diff --git ") {
            break;
        }
        if line.starts_with("new file mode ") {
            change = Change::Create;
        } else if line.starts_with("deleted file mode ") {
            change = Change::Delete;
        } else if let Some(path) = line.strip_prefix("--- ") {
            old = Some(path.to_owned());
        } else if let Some(path) = line.strip_prefix("+++ ") {
            new = Some(path.to_owned());
        } else if !line.starts_with("index ") {
            bail!(
                "line {}: `{line}` is not supported (no renames, copies, mode changes or binary files)",
                lines.number + 1
            );
        }
        lines.next();
    }
    let named = |path: Option<String>, prefix: &str| {
        path.as_deref()
            .and_then(|p| p.strip_prefix(prefix))
            .map(str::to_owned)
    };
    let path = if change == Change::Delete {
        named(old.clone(), "a/")
    } else {
        named(new.clone(), "b/")
    };
    let path = path.with_context(|| format!("`{first}` has no usable ---/+++ lines"))?;
    ensure!(
        first == format!("diff --git a/{path} b/{path}"),
        "`{first}` and its ---/+++ lines name different files"
    );
    ensure!(
        Path::new(&path)
            .components()
            .all(|c| matches!(c, std::path::Component::Normal(_))),
        "unsafe path `{path}`"
    );
    let mut hunks = Vec::new();
    while lines.peek().is_some_and(|l| l.starts_with(b"@@ ")) {
        hunks.push(parse_hunk(lines)?);
    }
    ensure!(!hunks.is_empty(), "`{first}` has no hunks");
    Ok(FilePatch {
        path,
        change,
        hunks,
    })
}

fn parse_hunk(lines: &mut Lines) -> Result<Hunk> {
    let head = text(lines.next().unwrap_or_default());
    let at = lines.number;
    let range = |s: &str, sign: char| -> Option<(usize, usize)> {
        let s = s.strip_prefix(sign)?;
        let (start, len) = s.split_once(',').unwrap_or((s, "1"));
        Some((start.parse().ok()?, len.parse().ok()?))
    };
    let mut words = head.split(' ').skip(1);
    let (Some((old_start, mut old_len)), Some((new_start, mut new_len)), Some("@@")) = (
        words.next().and_then(|w| range(w, '-')),
        words.next().and_then(|w| range(w, '+')),
        words.next(),
    ) else {
        bail!("line {at}: bad hunk header `{head}`");
    };
    let mut hunk: Vec<(Side, Vec<u8>)> = Vec::new();
    while old_len > 0 || new_len > 0 {
        let line = lines
            .next()
            .with_context(|| format!("line {at}: the hunk is cut short"))?;
        let side = match line[0] {
            b' ' => Side::Both,
            b'-' => Side::Old,
            b'+' => Side::New,
            b'\\' => {
                no_newline(&mut hunk);
                continue;
            }
            _ => bail!(
                "line {}: `{}` does not belong to a hunk; its header at line {at} promises more lines",
                lines.number,
                text(line)
            ),
        };
        let count = |len: &mut usize, used: bool| -> Result<()> {
            if used {
                *len = len.checked_sub(1).with_context(|| {
                    format!(
                        "line {}: more lines than the hunk header at line {at} says",
                        lines.number
                    )
                })?;
            }
            Ok(())
        };
        count(&mut old_len, side != Side::New)?;
        count(&mut new_len, side != Side::Old)?;
        ensure!(
            line.ends_with(b"\n"),
            "line {}: the file is cut short",
            lines.number
        );
        hunk.push((side, line[1..].to_vec()));
    }
    if lines.peek().is_some_and(|l| l.starts_with(b"\\")) {
        lines.next();
        no_newline(&mut hunk);
    }
    Ok(Hunk {
        old_start,
        new_start,
        lines: hunk,
    })
}

fn no_newline(hunk: &mut [(Side, Vec<u8>)]) {
    if let Some((_, line)) = hunk.last_mut() {
        line.pop();
    }
}
