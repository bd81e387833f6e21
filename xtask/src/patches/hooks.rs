//! The table of hooks in UPSTREAM_SYNC.md.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

/// One row: the hooks of one symbol of one file.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub file: String,
    pub symbol: String,
    pub hooks: usize,
    pub tests: Vec<String>,
}

/// Reads the table between `<!-- hooks -->` and `<!-- /hooks -->`.
pub fn parse(text: &str) -> Result<Vec<Row>> {
    let table = text
        .split_once("<!-- hooks -->")
        .and_then(|(_, rest)| rest.split_once("<!-- /hooks -->"))
        .map(|(table, _)| table)
        .context("no table between `<!-- hooks -->` and `<!-- /hooks -->`")?;
    let mut lines = table.lines().filter(|l| l.starts_with('|'));
    let head: Vec<&str> = lines.next().map(cells).unwrap_or_default();
    let column = |name: &str| {
        head.iter()
            .position(|h| *h == name)
            .with_context(|| format!("the table has no column `{name}`"))
    };
    let (file, symbol, hooks, test) = (
        column("file")?,
        column("symbol")?,
        column("hooks")?,
        column("test")?,
    );
    let mut rows: Vec<Row> = Vec::new();
    for line in lines.skip(1) {
        let cells = cells(line);
        ensure!(
            cells.len() == head.len(),
            "`{line}` has {} cells, the head has {}",
            cells.len(),
            head.len()
        );
        let plain = |i: usize| cells[i].trim_matches('`').to_owned();
        let row = Row {
            file: plain(file),
            symbol: plain(symbol),
            hooks: cells[hooks]
                .parse()
                .with_context(|| format!("`{}` in `{line}` is not a number", cells[hooks]))?,
            tests: names(&plain(test)),
        };
        if rows
            .iter()
            .any(|r| r.file == row.file && r.symbol == row.symbol)
        {
            bail!("two rows for {} in {}", row.symbol, row.file);
        }
        rows.push(row);
    }
    Ok(rows)
}

fn cells(line: &str) -> Vec<&str> {
    line.trim()
        .trim_matches('|')
        .split('|')
        .map(str::trim)
        .collect()
}

/// Names in a list such as `` `a`, `b` ``.
pub fn names(text: &str) -> Vec<String> {
    text.split(',')
        .map(|n| n.trim().trim_matches('`').to_owned())
        .filter(|n| !n.is_empty())
        .collect()
}

/// Compares the table with the tags; `tagged` gives the patched text of each file that has some.
pub fn compare(rows: &[Row], tagged: &BTreeMap<String, String>, tag: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (file, text) in tagged {
        let rows: Vec<&Row> = rows.iter().filter(|r| r.file == *file).collect();
        let lines: Vec<&str> = text.lines().collect();
        let tags: Vec<usize> = (0..lines.len())
            .filter(|i| lines[*i].contains(tag))
            .collect();
        let want: usize = rows.iter().map(|r| r.hooks).sum();
        if tags.len() != want {
            wrong.push(format!(
                "{file} has {} tags, its rows count {want}",
                tags.len()
            ));
        }
        for at in &tags {
            if !rows.iter().any(|r| belongs(&lines, *at, &r.symbol)) {
                wrong.push(format!(
                    "{file}: the tag at line {} of the patched file has no row",
                    at + 1
                ));
            }
        }
        for row in rows {
            let have = tags
                .iter()
                .filter(|at| belongs(&lines, **at, &row.symbol))
                .count();
            if have < row.hooks {
                wrong.push(format!(
                    "{file}: `{}` has {have} tags, its row counts {}",
                    row.symbol, row.hooks
                ));
            }
        }
    }
    for row in rows.iter().filter(|r| !tagged.contains_key(&r.file)) {
        wrong.push(format!(
            "{} has no tag, but a row for `{}`",
            row.file, row.symbol
        ));
    }
    wrong
}

/// Whether the tag at line `at` is at a symbol: just above or inside of its definition.
fn belongs(lines: &[&str], at: usize, symbol: &str) -> bool {
    /// Lines below a tag that may hold what it is about.
    const BELOW: usize = 7;
    match symbol {
        "file of ours" => true,
        "include" => lines[at..]
            .iter()
            .take(2)
            .any(|l| l.starts_with("#include")),
        _ => {
            let mut parts = symbol.split(|c: char| !c.is_alphanumeric() && c != '_');
            let Some(name) = parts.rfind(|p| !p.is_empty()) else {
                return false;
            };
            lines[at..]
                .iter()
                .take(BELOW)
                .chain(&enclosing(lines, at))
                .any(|l| has_word(l, name))
        }
    }
}

/// Heads of the blocks around a line: each less indented than the one before, and the
/// nearest line that starts with a name, which is what git shows as a hunk's function.
fn enclosing<'a>(lines: &[&'a str], at: usize) -> Vec<&'a str> {
    let indent = |l: &str| l.len() - l.trim_start().len();
    let mut heads = Vec::new();
    let mut least = indent(lines[at]);
    for line in lines[..at].iter().rev().filter(|l| !l.trim().is_empty()) {
        let label = ["public:", "private:", "protected:"].contains(&line.trim());
        if indent(line) < least && !line.starts_with('#') && !label {
            least = indent(line);
            heads.push(*line);
        }
        if line.starts_with(|c: char| c.is_alphabetic() || c == '_') && !label {
            heads.push(line);
            break;
        }
    }
    heads
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|w| w == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "x\n<!-- hooks -->\n| file | symbol | hooks | test |\n|---|---|---:|---|\n\
        | `a.cpp` | `f::g` | 2 | `one`, `two` |\n<!-- /hooks -->\n";

    fn check(text: &str, expect: &[&str]) {
        let tags = BTreeMap::from([("a.cpp".to_owned(), text.to_owned())]);
        assert_eq!(compare(&parse(TABLE).unwrap(), &tags, "TAG"), expect);
    }

    #[test]
    fn table_and_tags() {
        check(
            "void f::g() {\n    // TAG\n    if (x) {\n        // TAG\n    }\n}\n",
            &[],
        );
        check("// TAG\nstruct g {\n    // TAG\n    int x;\n};\n", &[]);
        check(
            "void f::g() {\n    // TAG\n}\n",
            &[
                "a.cpp has 1 tags, its rows count 2",
                "a.cpp: `f::g` has 1 tags, its row counts 2",
            ],
        );
        check(
            "void f::gg() {\n    // TAG\n    // TAG\n}\n",
            &[
                "a.cpp: the tag at line 2 of the patched file has no row",
                "a.cpp: the tag at line 3 of the patched file has no row",
                "a.cpp: `f::g` has 0 tags, its row counts 2",
            ],
        );
    }

    #[test]
    fn bad_tables() {
        assert!(parse("no table").is_err());
        assert!(parse(&TABLE.replace("| 2 |", "| x |")).is_err());
        assert!(parse(&TABLE.replace("| 2 |", "|")).is_err());
        let twice = TABLE.replace("<!-- /h", "| `a.cpp` | `f::g` | 1 | `x` |\n<!-- /h");
        assert_eq!(
            parse(&twice).unwrap_err().to_string(),
            "two rows for f::g in a.cpp"
        );
    }
}
