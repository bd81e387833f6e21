use rys_plan::Spec;

use crate::table::{self, Row};

#[test]
fn table_of_specs() {
    for row in table::rows() {
        check(&row);
    }
}

fn check(row: &Row) {
    match row {
        Row::Ok {
            spec,
            n_layer,
            canonical,
            plan,
        } => {
            let parsed: Spec = spec.parse().unwrap_or_else(|e| panic!("{e:#}"));
            assert_eq!(parsed.to_string(), *canonical);
            match (plan, parsed.plan(*n_layer, 0)) {
                (Some(expected), Ok(plan)) => {
                    assert_eq!(plan.as_slice(), expected, "{spec}");
                    assert_eq!(plan.n_layer_eff() as usize, expected.len(), "{spec}");
                }
                (None, Err(_)) => {}
                (_, plan) => panic!("{spec}: {plan:?}"),
            }
        }
        Row::Error {
            spec,
            kind,
            span,
            other,
        } => {
            let error = spec.parse::<Spec>().expect_err(spec);
            assert_eq!(format!("{:?}", error.kind()), *kind, "{spec}");
            assert_eq!(
                (error.span(), error.other_span()),
                (span.clone(), other.clone()),
                "{spec}"
            );
        }
        Row::Model {
            spec,
            n_layer,
            n_layer_nextn,
            kind,
            span,
        } => {
            let parsed: Spec = spec.parse().unwrap_or_else(|e| panic!("{e:#}"));
            let error = parsed.plan(*n_layer, *n_layer_nextn).expect_err(spec);
            assert_eq!(format!("{:?}", error.kind()), *kind, "{spec}");
            assert_eq!(error.span(), *span, "{spec}");
        }
    }
}

/// The compact form in the table is also what a plan prints.
#[test]
fn compact_form() {
    let check = |spec: &str, n_layer, expected| {
        let plan = spec.parse::<Spec>().unwrap().plan(n_layer, 0).unwrap();
        assert_eq!(plan.to_string(), expected);
    };
    check("26,34", 64, "0..=33 | 26..=33 | 34..=63");
    check("33,34", 64, "0..=33 | 33..=33 | 34..=63");
    check(
        "26,30;30,34",
        64,
        "0..=29 | 26..=29 | 30..=33 | 30..=33 | 34..=63",
    );
    check("0,3;3,6", 6, "0..=2 | 0..=2 | 3..=5 | 3..=5");
    assert_eq!(rys_plan::Plan::identity(64).unwrap().to_string(), "0..=63");
}
