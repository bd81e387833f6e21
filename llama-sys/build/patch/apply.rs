//! Applies one file's hunks.

use anyhow::{Context, Result, bail, ensure};

use super::{Change, FilePatch, HOOK, Hunk, Place, Side, text};

impl FilePatch {
    /// New content of the file; `old` is its content before.
    pub(super) fn apply(
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

fn tagged(line: &[u8]) -> bool {
    line.windows(HOOK.len()).any(|w| w == HOOK.as_bytes())
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
        (None, _) if old.iter().any(|l| tagged(l)) => {
            bail!("the file is patched already; use a pristine llama.cpp")
        }
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
