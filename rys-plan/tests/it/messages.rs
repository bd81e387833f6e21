use std::fmt::Write;

use rys_plan::{Plan, Spec};

use crate::table::{self, Row};

/// Every error of the table as a person reads it.
#[test]
fn table_of_messages() {
    let mut all = String::new();
    for row in table::rows() {
        let error: Box<dyn std::fmt::Display> = match &row {
            Row::Ok { .. } => continue,
            Row::Error { spec, .. } => Box::new(spec.parse::<Spec>().expect_err(spec)),
            Row::Model {
                spec,
                n_layer,
                n_layer_nextn,
                ..
            } => {
                let spec: Spec = spec.parse().unwrap();
                Box::new(spec.plan(*n_layer, *n_layer_nextn).unwrap_err())
            }
        };
        writeln!(all, "{error:#}\n").unwrap();
    }
    writeln!(all, "{:#}", Plan::identity(600).unwrap_err()).unwrap();
    insta::assert_snapshot!(all);
}

/// A long spec is shown around the error, in bounded space and without raw control characters.
#[test]
fn long_specs() {
    let mut all = String::new();
    let mut check = |spec: &str| {
        let Err(error) = spec.parse::<Spec>() else {
            panic!("accepted")
        };
        let shown = format!("{error:#}");
        assert!(shown.len() < 600, "{shown}");
        assert!(
            !shown.contains(|c: char| c.is_control() && c != '\n'),
            "{shown:?}"
        );
        assert_eq!(shown.lines().next(), Some(error.to_string().as_str()));
        writeln!(all, "{shown}\n").unwrap();
    };
    let blocks = |n: u32| {
        (0..n)
            .map(|i| format!("{},{};", 2 * i, 2 * i + 1))
            .collect::<String>()
    };

    check(&blocks(12_000)); // 100 kB
    check(&format!("{}x,1;{}", blocks(12_000), blocks(12_000)));
    check(&blocks(700_000)); // 10 MB
    check(&format!("{}0,3", blocks(700_000)));
    check(&format!("500,1;{}", blocks(100)));
    check(&"9".repeat(10_000_000));
    check(&"x".repeat(10_000_000));
    check(&" ".repeat(10_000_000));
    check(&"(".repeat(10_000_000));
    check(&format!("26,34{}x", " ".repeat(10_000_000)));
    check(&format!("1{}2", "-".repeat(100_000)));
    check(&format!("26..{}", "3".repeat(100_000)));
    check(&format!("{}34,26", "0".repeat(100_000)));
    check(&"\u{1b}[2J\u{7}".repeat(30_000));
    check(&"３".repeat(30_000));
    check("１２,34");
    check("26,34;  ２６,34");
    check("1,2;\t\t3,4");
    check("1,2;\u{1b}[31m3,4");
    check("1,2;3\0,4");
    check("1,2;e\u{301}\u{200b}\u{feff},4");
    check("1,2;👍,4;漢字x,9");
    insta::assert_snapshot!(all);
}

#[test]
fn boundary_advice() {
    let check = |spec: &str, n_layer, expected: Option<&str>| {
        let plan = spec.parse::<Spec>().unwrap().plan(n_layer, 0).unwrap();
        let advice = plan.advice().map(|a| a.to_string());
        assert_eq!(advice.as_deref(), expected);
    };
    check("26,34", 64, None);
    check("8,56", 64, None);
    check("3,27", 30, None);
    check(
        "2,4",
        30,
        Some(
            "block `2,4` repeats layers among the first or last 3 of 30, \
             which usually breaks a model: prefer blocks within `3,27`",
        ),
    );
    check(
        "26-34+55-57",
        64,
        Some(
            "block `55,57` repeats layers among the first or last 8 of 64, \
             which usually breaks a model: prefer blocks within `8,56`",
        ),
    );
    check(
        "0,1;2,3;4,5;60,61;62,63",
        64,
        Some(
            "blocks `0,1`, `2,3`, `4,5` and 2 more repeat layers among the first or last 8 of 64, \
             which usually breaks a model: prefer blocks within `8,56`",
        ),
    );
    check(
        "2,3",
        6,
        Some(
            "block `2,3` repeats layers among the first or last 3 of 6, which usually breaks a \
             model: a model of so few layers has no others, compare its answers",
        ),
    );
    assert!(Plan::identity(64).unwrap().advice().is_none());
}

/// A number is a kind's identity in C++.
#[test]
fn kinds_are_numbered_as_in_cpp() {
    use rys_plan::SpecErrorKind::*;
    let kinds = [
        Empty,
        MissingIndex,
        ExtraIndex,
        NotANumber,
        Negative,
        TooLarge,
        BadSeparator,
        RangeDots,
        UnbalancedParen,
        EmptyBlock,
        NotAscending,
        ZeroBlock,
        TrailingGarbage,
        OtherForm,
        Overlap,
    ];
    assert!(kinds.iter().map(|k| k.code()).eq(1..=15));
    for kind in kinds {
        let name = format!("{kind:?}");
        let listed = |row: &Row| matches!(row, Row::Error { kind, .. } if *kind == name);
        assert!(
            table::rows().iter().any(listed),
            "{name} is not in the table"
        );
    }
}
