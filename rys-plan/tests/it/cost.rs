use rys_plan::cost::{self, CacheType, ContextParams, CostError, LayerFacts};
use rys_plan::{Plan, Spec};

const ATTENTION: LayerFacts = LayerFacts {
    is_swa: false,
    is_recr: false,
    n_embd_k: 1024,
    n_embd_v: 512,
    rs_bytes: 0,
};
const RECURRENT: LayerFacts = LayerFacts {
    is_swa: false,
    is_recr: true,
    n_embd_k: 0,
    n_embd_v: 0,
    rs_bytes: 1000,
};

const CTX: ContextParams = ContextParams {
    type_k: CacheType::F16,
    type_v: CacheType::F16,
    n_cells: 512,
    n_cells_swa: 256,
    n_rs_slots: 2,
};

fn plan(spec: &str, n_layer: u32) -> Plan {
    spec.parse::<Spec>().unwrap().plan(n_layer, 0).unwrap()
}

/// Qwen3.5: every fourth layer is full attention, the others are recurrent.
#[test]
fn hybrid_model() {
    let layers: Vec<_> = (0..64)
        .map(|il| {
            if (il + 1) % 4 == 0 {
                ATTENTION
            } else {
                RECURRENT
            }
        })
        .collect();
    let check = |plan: Plan, n_layer_eff, n_kv, n_rs| {
        let cost = cost::compare(&plan, &layers, &CTX).unwrap();
        assert_eq!(
            (cost.base.n_passes, cost.base.n_kv, cost.base.n_rs),
            (64, 16, 48)
        );
        assert_eq!(
            (cost.plan.n_passes, cost.plan.n_kv, cost.plan.n_rs),
            (n_layer_eff, n_kv, n_rs)
        );
        assert_eq!(cost.plan.kv_bytes, u64::from(n_kv) * 512 * (1024 + 512) * 2);
        assert_eq!(cost.plan.rs_bytes, u64::from(n_rs) * 2 * 1000);
        assert_eq!(cost.kv_ratio(), Some(f64::from(n_kv) / 16.0));
        assert_eq!(cost.rs_ratio(), Some(f64::from(n_rs) / 48.0));
        assert_eq!(cost.pass_ratio(), Some(f64::from(n_layer_eff) / 64.0));
    };
    check(Plan::identity(64).unwrap(), 64, 16, 48);
    check(plan("33,34", 64), 65, 16, 49);
    check(plan("31,34", 64), 67, 17, 50);
    check(plan("30,35", 64), 69, 17, 52);
    check(plan("26,34", 64), 72, 18, 54);
}

/// A sliding-window layer has the cells of the SWA cache; a layer can have both kinds of memory.
#[test]
fn mixed_layers() {
    let swa = LayerFacts {
        is_swa: true,
        ..ATTENTION
    };
    let both = LayerFacts {
        is_recr: true,
        rs_bytes: 10,
        ..ATTENTION
    };
    let shared = LayerFacts {
        n_embd_k: 0,
        n_embd_v: 0,
        ..ATTENTION
    };
    let layers = [swa, ATTENTION, both, shared];
    let row = 2 * (1024 + 512);

    let check = |spec: &str, kv_bytes: u64, rs_bytes: u64| {
        let cost = cost::compare(&plan(spec, 4), &layers, &CTX).unwrap();
        assert_eq!(
            (cost.extra_kv_bytes(), cost.extra_rs_bytes()),
            (kv_bytes, rs_bytes),
            "{spec}"
        );
    };
    check("0,1", 256 * row, 0);
    check("1,2", 512 * row, 0);
    check("2,3", 512 * row, 20);
    check("3,4", 0, 0);
    check("0,4", (256 + 512 + 512) * row, 20);

    let dense = cost::compare(&plan("0,1", 1), &[ATTENTION], &CTX).unwrap();
    assert_eq!((dense.kv_ratio(), dense.rs_ratio()), (Some(2.0), None));
}

/// SmolLM2-135M: 30 layers, 3 KV heads of 64.
#[test]
fn cache_types() {
    let check = |name: &str, row_bytes: u64| {
        let cache_type: CacheType = name.parse().unwrap();
        assert_eq!(cache_type.to_string(), name);
        assert_eq!(cache_type.row_bytes(192), Ok(row_bytes), "{name}");
    };
    check("f32", 768);
    check("f16", 384);
    check("bf16", 384);
    check("q8_0", 204);
    check("q4_0", 108);
    check("q4_1", 120);
    check("iq4_nl", 108);
    check("q5_0", 132);
    check("q5_1", 144);

    let layer = LayerFacts {
        n_embd_k: 192,
        n_embd_v: 192,
        ..LayerFacts::default()
    };
    let ctx = ContextParams {
        type_v: CacheType::Q8_0,
        n_cells: 4096,
        ..CTX
    };
    let cost = cost::compare(&plan("10,14", 30), &[layer; 30], &ctx).unwrap();
    assert_eq!(cost.base.kv_bytes, 30 * 4096 * (384 + 204));
    assert_eq!(cost.extra_kv_bytes(), 4 * 4096 * (384 + 204));
}

#[test]
fn impossible_facts() {
    let q8_0 = ContextParams {
        type_k: CacheType::Q8_0,
        ..CTX
    };
    let huge = ContextParams {
        n_cells: u64::MAX / 2,
        ..CTX
    };
    let odd = LayerFacts {
        n_embd_k: 80,
        ..ATTENTION
    };
    let check = |layers: &[LayerFacts], ctx, expected: &str| {
        let error = cost::compare(&plan("0,1", 2), layers, ctx).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(
        &[ATTENTION],
        &CTX,
        "facts are given for 1 layers: the plan's model has 2",
    );
    check(
        &[ATTENTION, odd],
        &q8_0,
        "a row of 80 elements does not fit cache type q8_0: \
         it must be a multiple of 32, choose f16 or another type",
    );
    check(
        &[ATTENTION; 2],
        &huge,
        "the memory would exceed 2^64 bytes: lower the context size",
    );
    assert_eq!(
        "q3_k".parse::<CacheType>(),
        Err(CostError::UnknownType("q3_k".into()))
    );
    assert_eq!(
        "q3_k".parse::<CacheType>().unwrap_err().to_string(),
        "unknown cache type `q3_k`: use one of f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1",
    );
}
