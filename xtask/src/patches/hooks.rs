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

/// Compares the table with the tags; `tags` gives the patched text of each file that has some.
pub fn compare(rows: &[Row], tags: &BTreeMap<String, String>, tag: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (file, text) in tags {
        let have = text.matches(tag).count();
        let want: usize = rows
            .iter()
            .filter(|r| r.file == *file)
            .map(|r| r.hooks)
            .sum();
        if have != want {
            wrong.push(format!(
                "{file} has {have} tags, its rows in UPSTREAM_SYNC.md count {want}"
            ));
        }
    }
    for row in rows {
        match tags.get(&row.file) {
            None => wrong.push(format!("UPSTREAM_SYNC.md: {} has no tag", row.file)),
            Some(text) if !mentions(text, &row.symbol) => {
                wrong.push(format!(
                    "UPSTREAM_SYNC.md: {} has no symbol `{}`",
                    row.file, row.symbol
                ));
            }
            Some(_) => (),
        }
    }
    wrong
}

/// Whether a text has every name of a symbol such as `a::b<c>`.
fn mentions(text: &str, symbol: &str) -> bool {
    symbol == "file of ours"
        || symbol
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|n| !n.is_empty())
            .all(|n| text.contains(n))
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
        check("f::g() TAG TAG", &[]);
        check(
            "f::g() TAG",
            &["a.cpp has 1 tags, its rows in UPSTREAM_SYNC.md count 2"],
        );
        check(
            "f::h() TAG TAG",
            &["UPSTREAM_SYNC.md: a.cpp has no symbol `f::g`"],
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
