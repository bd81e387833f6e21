//! The Rust and the C++ parser of `--repeat-layers` agree on every text.

use rys_tests::spec::{check, cpp};

use crate::table::{self, Row};

const ALPHABET: [u8; 12] = *b"0139,-;+ ()x";

#[test]
fn table_of_specs() {
    for row in table::rows() {
        match row {
            Row::Ok {
                spec, canonical, ..
            } => {
                check(&spec);
                let blocks = cpp(&spec).expect(&spec);
                let blocks: Vec<_> = blocks.iter().map(|(a, b)| format!("{a},{b}")).collect();
                assert_eq!(blocks.join(";"), canonical, "{spec:?}");
            }
            Row::Error { spec, span, .. } => {
                check(&spec);
                assert_eq!(cpp(&spec).expect_err(&spec).1, span.start, "{spec:?}");
            }
            Row::Model { spec, .. } => assert!(check(&spec), "{spec:?}"),
        }
    }
}

#[test]
fn every_short_text() {
    let mut n_accepted = 0;
    for len in 0..=6 {
        let mut digits = vec![0; len];
        loop {
            let text: Vec<u8> = digits.iter().map(|&d: &usize| ALPHABET[d]).collect();
            n_accepted += u32::from(check(str::from_utf8(&text).unwrap()));
            let Some(i) = digits.iter().rposition(|&d| d + 1 < ALPHABET.len()) else {
                break;
            };
            digits[i] += 1;
            digits[i + 1..].fill(0);
        }
    }
    // Counted once by a regular expression and a check of the order, apart from both parsers.
    assert_eq!(n_accepted, 10_200);
}

#[test]
fn random_texts() {
    const WORDS: [&str; 16] = [
        "0",
        "33",
        "34",
        "0012",
        "2147483647",
        "2147483648",
        "blocks:",
        "layers:",
        "repeats:",
        "..",
        ".",
        ":",
        "\t",
        "\0",
        "３",
        "é",
    ];
    let mut rng = fastrand::Rng::with_seed(1);
    let mut n_accepted = 0;
    for _ in 0..100_000 {
        let mut text = match rng.u8(..3) {
            0 => (0..rng.usize(7..60))
                .map(|_| char::from(ALPHABET[rng.usize(..12)]))
                .collect(),
            1 => (0..rng.usize(3..20))
                .map(|_| WORDS[rng.usize(..WORDS.len())])
                .collect(),
            _ => disjoint_blocks(&mut rng),
        };
        for _ in 0..rng.usize(..3) {
            edit(&mut text, &mut rng, &WORDS);
        }
        n_accepted += u32::from(check(&text));
    }
    assert!(
        (10_000..90_000).contains(&n_accepted),
        "{n_accepted} specs accepted"
    );
}

/// A valid spec, in any of the forms and in any order.
fn disjoint_blocks(rng: &mut fastrand::Rng) -> String {
    let mut next = 0;
    let mut blocks: Vec<String> = (0..rng.u32(1..9))
        .map(|_| {
            let start = next + rng.u32(..9);
            next = start + rng.u32(1..9);
            let range = format!("{start}{}{next}", if rng.bool() { "," } else { " -" });
            if rng.bool() {
                range
            } else {
                format!("( {range})")
            }
        })
        .collect();
    rng.shuffle(&mut blocks);
    let prefix = if rng.bool() { "" } else { "blocks:" };
    format!(
        "{prefix}{}",
        blocks.join(if rng.bool() { ";" } else { " + " })
    )
}

/// Inserts a letter of the alphabet or a word, or removes a character.
fn edit(text: &mut String, rng: &mut fastrand::Rng, words: &[&str]) {
    let at = text.floor_char_boundary(rng.usize(..=text.len()));
    match rng.u8(..3) {
        0 => text.insert(at, char::from(ALPHABET[rng.usize(..12)])),
        1 => text.insert_str(at, words[rng.usize(..words.len())]),
        _ if at < text.len() => {
            text.remove(at);
        }
        _ => {}
    }
}
