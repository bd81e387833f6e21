//! Reads the patch series and applies it in memory: the one apply code path of the build
//! script and `cargo xtask patches`.
//!
//! A hunk fits only where every one of its old lines is. It must be at the line its header
//! names, unless the caller allows offsets; then the place must be unambiguous.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// The patches of a folder, in the order of its file `series`.
#[derive(Debug, Default)]
pub struct Series {
    pub patches: Vec<Patch>,
}

/// One file of the series.
#[derive(Debug)]
pub struct Patch {
    /// File name, for example `0001-layer-plan.patch`.
    pub name: String,
    /// Everything before the first `diff --git`.
    pub header: String,
    pub files: Vec<FilePatch>,
    pub bytes: Vec<u8>,
}

/// The change of one file.
#[derive(Debug)]
pub struct FilePatch {
    pub path: String,
    pub change: Change,
    pub hunks: Vec<Hunk>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Create,
    Modify,
    Delete,
}

/// Lines keep their `\n`; `old_start` is one-based, as in the header.
#[derive(Debug)]
pub struct Hunk {
    pub old_start: usize,
    pub new_start: usize,
    pub lines: Vec<(Side, Vec<u8>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Both,
    Old,
    New,
}

/// Whether hunks must be exactly where their headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Exact,
    OffsetAllowed,
}

/// Result of applying a series.
#[derive(Debug, Default)]
pub struct Applied {
    /// New content of every file the series touches; `None` for a deleted one.
    pub files: BTreeMap<String, Option<Vec<u8>>>,
    /// One line for every hunk that applied at an offset.
    pub notes: Vec<String>,
}

impl Series {
    /// Reads `dir/series` and the patches it lists. A missing `series` in a folder without
    /// patches is an empty series.
    pub fn read(dir: &Path) -> Result<Series> {
        let listed: Vec<String> = match fs::read_to_string(dir.join("series")) {
            Ok(text) => text
                .lines()
                .map(str::trim)
                .filter(|l| !l.is_empty() && !l.starts_with('#'))
                .map(Into::into)
                .collect(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => {
                return Err(e)
                    .with_context(|| format!("cannot read {}", dir.join("series").display()));
            }
        };
        for name in patch_files(dir)? {
            ensure!(
                listed.contains(&name),
                "{} is not listed in series",
                dir.join(name).display()
            );
        }
        let patches = listed
            .iter()
            .map(|name| {
                let path = dir.join(name);
                let bytes = fs::read(&path).with_context(|| {
                    format!("cannot read {} (listed in series)", path.display())
                })?;
                Patch::parse(name, bytes)
                    .with_context(|| format!("{} is not a valid patch", path.display()))
            })
            .collect::<Result<_>>()?;
        Ok(Series { patches })
    }

    /// Applies every patch in order. `read` gives the pristine content of a file, `None` if
    /// there is none.
    pub fn apply(
        &self,
        place: Place,
        mut read: impl FnMut(&str) -> Result<Option<Vec<u8>>>,
    ) -> Result<Applied> {
        let mut applied = Applied::default();
        for patch in &self.patches {
            patch.apply_to(place, &mut applied, &mut read)?;
        }
        Ok(applied)
    }
}

/// Names of the `*.patch` files in `dir`, sorted.
pub fn patch_files(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    match fs::read_dir(dir) {
        Ok(items) => {
            for item in items {
                let name = item?.file_name().to_string_lossy().into_owned();
                if Path::new(&name).extension().is_some_and(|e| e == "patch") {
                    names.push(name);
                }
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => (),
        Err(e) => return Err(e).with_context(|| format!("cannot list {}", dir.display())),
    }
    names.sort();
    Ok(names)
}

/// Reads a file of a source tree for [`Series::apply`].
pub fn read_from(root: &Path) -> impl FnMut(&str) -> Result<Option<Vec<u8>>> {
    let root: PathBuf = root.to_owned();
    move |path| match fs::read(root.join(path)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| format!("cannot read {}", root.join(path).display())),
    }
}

impl Patch {
    /// Applies this patch on top of `applied`.
    pub fn apply_to(
        &self,
        place: Place,
        applied: &mut Applied,
        read: &mut impl FnMut(&str) -> Result<Option<Vec<u8>>>,
    ) -> Result<()> {
        for file in &self.files {
            let old = match applied.files.get(&file.path) {
                Some(content) => content.clone(),
                None => read(&file.path)?,
            };
            let new = file
                .apply(old.as_deref(), place, &mut applied.notes)
                .with_context(|| format!("{} does not apply to {}", self.name, file.path))?;
            applied.files.insert(file.path.clone(), new);
        }
        Ok(())
    }

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

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end().to_owned()
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

impl FilePatch {
    /// New content of the file; `old` is its content before.
    fn apply(
        &self,
        old: Option<&[u8]>,
        place: Place,
        notes: &mut Vec<String>,
    ) -> Result<Option<Vec<u8>>> {
        let old = match (self.change, old) {
            (Change::Create, Some(_)) => bail!("the file is already there"),
            (Change::Create, None) => b"",
            (_, Some(old)) => old,
            (_, None) => bail!("there is no such file"),
        };
        let old: Vec<&[u8]> = old.split_inclusive(|b| *b == b'\n').collect();
        let mut new = Vec::new();
        let mut used = 0; // old lines already copied or replaced
        let mut offset = 0isize;
        let mut grown = 0isize; // new lines minus old lines so far
        for hunk in &self.hunks {
            let want = hunk.old_lines();
            // A hunk without old lines names the line *before* it.
            let named = if want.is_empty() {
                hunk.old_start
            } else {
                hunk.old_start
                    .checked_sub(1)
                    .context("a hunk starts at line 0")?
            };
            let at = match place {
                Place::Exact => {
                    ensure!(
                        fits(&old, named, &want) && named >= used,
                        "{}",
                        misfit(&old, hunk, &want)
                    );
                    let new_named = if hunk.new_lines().is_empty() {
                        hunk.new_start
                    } else {
                        hunk.new_start.wrapping_sub(1)
                    };
                    ensure!(
                        named.checked_add_signed(grown) == Some(new_named),
                        "the hunk at line {} gives line {} as its place in the new file, which does not add up",
                        hunk.old_start,
                        hunk.new_start
                    );
                    named
                }
                Place::OffsetAllowed => locate(&old, named, offset, used, &want)
                    .with_context(|| misfit(&old, hunk, &want))?,
            };
            let moved = at as isize - named as isize;
            if moved != 0 {
                notes.push(format!(
                    "{}: hunk at line {} applied at line {} (offset {moved})",
                    self.path,
                    hunk.old_start,
                    at + 1
                ));
            }
            offset = moved;
            for line in &old[used..at] {
                new.extend_from_slice(line);
            }
            let added = hunk.new_lines();
            grown += added.len() as isize - want.len() as isize;
            for line in added {
                new.extend_from_slice(line);
            }
            used = at + want.len();
        }
        for line in &old[used..] {
            new.extend_from_slice(line);
        }
        if self.change == Change::Delete {
            ensure!(
                new.is_empty(),
                "the file has lines that the patch does not delete"
            );
            return Ok(None);
        }
        Ok(Some(new))
    }
}

impl Hunk {
    fn side(&self, not: Side) -> Vec<&[u8]> {
        self.lines
            .iter()
            .filter(|(s, _)| *s != not)
            .map(|(_, l)| l.as_slice())
            .collect()
    }

    /// Lines before the change.
    pub fn old_lines(&self) -> Vec<&[u8]> {
        self.side(Side::New)
    }

    /// Lines after the change.
    pub fn new_lines(&self) -> Vec<&[u8]> {
        self.side(Side::Old)
    }
}

fn fits(old: &[&[u8]], at: usize, want: &[&[u8]]) -> bool {
    old.get(at..at + want.len())
        .is_some_and(|have| have == want)
}

/// Place of `want` when offsets are allowed: where the previous hunk's offset puts it, else
/// the only place where it fits.
fn locate(
    old: &[&[u8]],
    named: usize,
    offset: isize,
    used: usize,
    want: &[&[u8]],
) -> Result<usize> {
    if let Some(at) = named
        .checked_add_signed(offset)
        .filter(|at| *at >= used && fits(old, *at, want))
    {
        return Ok(at);
    }
    ensure!(
        !want.is_empty(),
        "it has no context lines to find its place by"
    );
    let mut places = (used..old.len()).filter(|at| fits(old, *at, want));
    match (places.next(), places.next()) {
        (Some(at), None) => Ok(at),
        (None, _) => bail!("its old lines are nowhere in the file"),
        (Some(a), Some(b)) => bail!(
            "its old lines are at line {} and at line {}: the place is ambiguous",
            a + 1,
            b + 1
        ),
    }
}

fn misfit(old: &[&[u8]], hunk: &Hunk, want: &[&[u8]]) -> String {
    let start = hunk.old_start.saturating_sub(1);
    let bad = want
        .iter()
        .enumerate()
        .find(|(i, w)| old.get(start + i) != Some(w));
    match bad {
        Some((i, w)) => format!(
            "the hunk at line {} does not fit: line {} should be `{}`, found {}",
            hunk.old_start,
            start + i + 1,
            text(w),
            old.get(start + i)
                .map_or("the end of the file".into(), |l| format!("`{}`", text(l)))
        ),
        None => format!(
            "the hunk at line {} overlaps the one before it",
            hunk.old_start
        ),
    }
}
