//! Reader of `repeat-layers.txt`.

use std::ops::Range;

/// A row of the table; the fields are described at its top.
#[allow(dead_code, reason = "each of the two users reads its part")]
#[derive(Debug)]
pub enum Row {
    Ok {
        spec: String,
        n_layer: u32,
        canonical: String,
        plan: Option<Vec<u32>>,
    },
    Error {
        spec: String,
        kind: String,
        span: Range<usize>,
        other: Option<Range<usize>>,
    },
    Model {
        spec: String,
        n_layer: u32,
        n_layer_nextn: u32,
        kind: String,
        span: Range<usize>,
    },
}

/// Every row, in order.
pub fn rows() -> Vec<Row> {
    include_str!("repeat-layers.txt")
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(i, line)| row(line).unwrap_or_else(|| panic!("repeat-layers.txt:{}: {line}", i + 1)))
        .collect()
}

fn row(line: &str) -> Option<Row> {
    let (verdict, rest) = line.split_once(' ')?;
    let (spec, rest) = quoted(rest.trim_start())?;
    let mut fields = rest.split_ascii_whitespace();
    let row = match verdict {
        "ok" => Row::Ok {
            spec,
            n_layer: fields.next()?.parse().ok()?,
            canonical: fields.next()?.into(),
            plan: runs(fields.by_ref())?,
        },
        "error" => Row::Error {
            spec,
            kind: fields.next()?.into(),
            span: range(fields.next()?)?,
            other: fields
                .next()
                .map(range)
                .map_or(Some(None), |r| r.map(Some))?,
        },
        "model" => Row::Model {
            spec,
            n_layer: fields.next()?.parse().ok()?,
            n_layer_nextn: fields.next()?.parse().ok()?,
            kind: fields.next()?.into(),
            span: range(fields.next()?)?,
        },
        _ => return None,
    };
    fields.next().is_none().then_some(row)
}

/// The text between double quotes, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.strip_prefix('"')?.chars();
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => value.push(match chars.next()? {
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                'u' => {
                    let (code, rest) = chars.as_str().strip_prefix('{')?.split_once('}')?;
                    chars = rest.chars();
                    char::from_u32(u32::from_str_radix(code, 16).ok()?)?
                }
                c @ ('"' | '\\') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
}

fn range(text: &str) -> Option<Range<usize>> {
    let (start, end) = text.split_once("..")?;
    Some(start.parse().ok()?..end.parse().ok()?)
}

/// `0..=3 | 2..=3` as a list; `-` stands for a plan that no model can have.
fn runs<'a>(fields: impl Iterator<Item = &'a str>) -> Option<Option<Vec<u32>>> {
    let mut plan = Vec::new();
    for field in fields {
        match field {
            "-" => return Some(None),
            "|" => {}
            run => {
                let (first, last) = run.split_once("..=")?;
                plan.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
            }
        }
    }
    Some(Some(plan))
}
