//! Copies and casts: bytes, types, bandwidth, growth, pools.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod support;

use steptally_analyze::results::{Copies, CopySummary, SizeTrend};
use steptally_analyze::{Config, analyze};
use steptally_testkit::TraceDsl;
use steptally_trace_model::DeviceProperties;
use support::{fixture, fixture_with, run};

const CAST: &str = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda\
    (at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(c10::BFloat16)#1}>";

/// Three steps at 0, 1000, 2000 (the last has no period), each with what `work` adds to it.
fn steps(mark: &str, work: impl Fn(TraceDsl, i64) -> TraceDsl) -> TraceDsl {
    let mut dsl = TraceDsl::rank(0);
    for step in 0..3 {
        dsl = work(dsl.range(mark, step * 1000..step * 1000 + 500), step * 1000);
    }
    dsl
}

/// `aten::copy_` at `at` of a tensor of this shape from one type to another, 100 ns on the GPU.
fn cast(dsl: TraceDsl, at: i64, shape: &str, types: &str, name: &str) -> TraceDsl {
    dsl.op("aten::copy_", at..at + 20, &format!("[{shape}, {shape}, []]"))
        .input_types(types)
        .launch_kernel(name, at + 5..at + 10, at + 500..at + 600)
}

const FP8_TO_BF16: &str = r#"["c10::BFloat16", "c10::Float8_e5m2", "Scalar"]"#;

fn one(copies: &Copies) -> &CopySummary {
    assert_eq!(copies.rows.len(), 1, "{:?}", copies.rows);
    &copies.rows[0]
}

#[test]
fn a_cast_has_bytes_types_and_bandwidth() {
    // 100 x 8 elements: 800 bytes read, 1600 written, in 100 ns: 24 GB/s of 48.
    let dsl = steps("step[DECODE bs=1]", |dsl, at| cast(dsl, at, "[100, 8]", FP8_TO_BF16, CAST));
    let copies = run(dsl
        .device_properties(DeviceProperties {
            memory_bandwidth_bytes_per_s: Some(48_000_000_000),
            ..DeviceProperties::default()
        })
        .build())
    .copies;
    assert_eq!(copies.memory_bandwidth_bytes_per_s, Some(48e9));
    assert_eq!(copies.memory_bandwidth_source.as_deref(), Some("trace"));
    assert_eq!((copies.tokens_in_flight, copies.ns_per_step), (Some(1), 100.0));
    let row = one(&copies);
    assert_eq!((row.category.as_str(), row.op.as_deref()), ("copy.cast", Some("aten::copy_")));
    assert_eq!((row.calls, row.calls_per_step, row.total_ns), (2, 1.0, 200));
    assert_eq!((row.read_bytes, row.written_bytes), (Some(800.0), Some(1600.0)));
    assert_eq!(row.source_dtype.as_deref(), Some("float8_e5m2"));
    assert_eq!(row.destination_dtype.as_deref(), Some("bfloat16"));
    assert_eq!((row.achieved_bytes_per_s, row.bandwidth_ratio), (Some(24e9), Some(0.5)));
    assert_eq!((row.size_trend, row.pool_sized), (Some(SizeTrend::Constant), false));
}

#[test]
fn without_shapes_the_kernel_name_says_what_is_written() {
    let dsl = steps("step[DECODE bs=1]", |dsl, at| {
        dsl.graph_launch(at + 5..at + 10, at as u64)
            .kernel(CAST, at + 500..at + 600)
            .correlation(at as u64)
    });
    let copies = run(dsl.build()).copies;
    let row = one(&copies);
    assert_eq!(
        (row.source_dtype.as_deref(), row.destination_dtype.as_deref()),
        (None, Some("bfloat16"))
    );
    assert_eq!((row.read_bytes, row.achieved_bytes_per_s, row.size_trend), (None, None, None));
    assert!(row.bytes_unknown.as_deref().unwrap().contains("graph replay"));
    // The device is not described.
    assert_eq!(copies.memory_bandwidth_bytes_per_s, None);
}

#[test]
fn in_a_graph_replay_the_launch_says_how_large_a_cast_is() {
    // Two casts a step of 131072 x 128 x 4 elements and one of 1 x 128 x 4, at batch size 4.
    let name = CAST.replace("#1}>", "#1}, std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1>>");
    let dsl = steps("step[DECODE bs=4]", |dsl, at| {
        let mut dsl = dsl.graph_launch(at + 5..at + 10, at as u64);
        for (from, to, blocks) in [(500, 600, 131_072), (600, 700, 131_072), (700, 701, 1)] {
            dsl = dsl
                .kernel(&name, at + from..at + to)
                .correlation(at as u64)
                .grid([blocks, 1, 1])
                .block([128, 1, 1]);
        }
        dsl
    });
    let copies = run(dsl.build()).copies;
    let found: Vec<_> =
        copies.rows.iter().map(|r| (r.calls_per_step, r.elements, r.pool_sized)).collect();
    assert_eq!(found, [(2.0, Some(67_108_864), true), (1.0, Some(512), false)]);
    assert!(copies.rows[0].pool_reason.as_deref().unwrap().contains("16777216 for each token"));
}

#[test]
fn where_nothing_says_how_many_tokens_only_a_graph_replay_casts_a_pool() {
    // 131072 x 128 x 4 elements are 2^20 for each of 64 tokens, twice in each step; launched one by one
    // they can be anything, such as parameters of a training step.
    let name = CAST.replace("#1}>", "#1}, std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1>>");
    let reason = |call: &str| {
        let dsl = steps("step", |mut dsl, at| {
            for n in 0..2 {
                let id = if call == "cudaGraphLaunch" { at as u64 } else { (at + n) as u64 };
                if n == 0 || call != "cudaGraphLaunch" {
                    dsl = dsl.launch(call, at + 5 + n * 10..at + 10 + n * 10, id);
                }
                dsl = dsl
                    .kernel(&name, at + 500 + n * 100..at + 600 + n * 100)
                    .correlation(id)
                    .grid([131_072, 1, 1])
                    .block([128, 1, 1]);
            }
            dsl
        });
        let copies = run(dsl.build()).copies;
        assert_eq!(copies.tokens_in_flight, None);
        let row = one(&copies);
        assert_eq!((row.elements, row.calls_per_step), (Some(67_108_864), 2.0));
        assert_eq!(row.in_graph, call == "cudaGraphLaunch");
        row.pool_reason.clone()
    };
    assert!(reason("cudaGraphLaunch").unwrap().contains("a graph replay records no shapes"));
    assert_eq!(reason("cudaLaunchKernel"), None);
}

#[test]
fn copies_of_the_copy_engine_say_their_size() {
    let dsl = steps("step[DECODE bs=1]", |dsl, at| {
        dsl.launch("cudaMemcpyAsync", at + 5..at + 10, at as u64)
            .memcpy_d2h(at + 500..at + 600, 400)
            .correlation(at as u64)
            .launch("cudaMemsetAsync", at + 15..at + 20, at as u64 + 1)
            .memset(at + 650..at + 660, 50)
            .correlation(at as u64 + 1)
    });
    let copies = run(dsl.gpu("NVIDIA H200").build()).copies;
    let found: Vec<_> = copies
        .rows
        .iter()
        .map(|r| (r.category.as_str(), r.read_bytes, r.written_bytes, r.bandwidth_ratio.is_some()))
        .collect();
    // Bandwidth to the host is not that of the device's memory.
    assert_eq!(
        found,
        [("memcpy.d2h", Some(400.0), Some(400.0), false), ("memset", Some(0.0), Some(50.0), true)]
    );
    assert_eq!(copies.memory_bandwidth_source.as_deref(), Some("hardware_table"));
}

#[test]
fn sizes_that_grow_are_told_from_those_that_vary() {
    let trend = |sizes: [u64; 3]| {
        let dsl = steps("step[DECODE bs=1]", |dsl, at| {
            let shape = format!("[{}, 8]", sizes[(at / 1000) as usize]);
            cast(dsl, at, &shape, FP8_TO_BF16, CAST)
        });
        // A fourth step, so that three have a period.
        let dsl =
            cast(dsl.range("step[DECODE bs=1]", 3000..3500), 3000, "[1, 8]", FP8_TO_BF16, CAST);
        let copies = run(dsl.build()).copies;
        let trends: Vec<_> = copies.rows.iter().map(|row| row.size_trend).collect();
        assert!(trends.windows(2).all(|pair| pair[0] == pair[1]));
        trends[0]
    };
    assert_eq!(trend([100, 100, 100]), Some(SizeTrend::Constant));
    assert_eq!(trend([100, 101, 102]), Some(SizeTrend::Growing));
    assert_eq!(trend([100, 99, 102]), Some(SizeTrend::Varying));
}

/// Two casts a step of one shape.
fn twice(shape: &'static str) -> TraceDsl {
    steps("step[DECODE bs=4]", move |dsl, at| {
        let dsl = cast(dsl, at, shape, FP8_TO_BF16, CAST);
        cast(dsl, at + 100, shape, FP8_TO_BF16, CAST)
    })
}

#[test]
fn a_pool_is_told_from_activations_and_weights() {
    let reason = |shape| one(&run(twice(shape).build()).copies).pool_reason.clone();
    // 131072 / 4 tokens in flight = 32768.
    assert_eq!(
        reason("[131072, 4, 128]").unwrap(),
        "its operand [131072, 4, 128] has the same first dimension in every layer and step, and \
         32768 times the tokens in flight (4)"
    );
    assert_eq!(reason("[4, 4, 128]"), None);
    assert!(reason("[4096, 4, 128]").is_some());
    assert_eq!(reason("[4095, 4, 128]"), None);
    assert_eq!(reason("[32000, 2048]"), None);
    // Once per step is not in every layer.
    let once =
        steps("step[DECODE bs=4]", |dsl, at| cast(dsl, at, "[131072, 4, 128]", FP8_TO_BF16, CAST));
    assert!(!one(&run(once.build()).copies).pool_sized);
}

#[test]
fn the_server_capacity_recognises_its_pool() {
    let config = |tokens| Config { kv_token_capacity: Some(tokens), ..Config::default() };
    let reason = |shape, tokens| {
        let copies = analyze(&[twice(shape).build()], &config(tokens)).copies;
        one(&copies).pool_reason.clone()
    };
    // SGLang's pool has a page more than its capacity; pages of 64 tokens: 2048 x 64.
    for shape in ["[131073, 576]", "[131072, 1, 576]", "[2048, 64, 4, 128]"] {
        let found = reason(shape, 131_072).unwrap();
        assert!(found.contains("131072 tokens that the server can hold"), "{found}");
    }
    assert_eq!(reason("[32000, 2048]", 131_072), None);
}

#[test]
fn the_planted_fault_is_sixteen_casts_of_the_pool_per_step() {
    let copies = fixture("torch-h200/pool-cast.trace.json.gz").copies;
    let pools: Vec<_> = copies.rows.iter().filter(|row| row.pool_sized).collect();
    let [cast] = pools[..] else { panic!("{pools:?}") };
    assert_eq!(cast as *const _, &copies.rows[0] as *const _);
    assert_eq!((cast.calls, cast.calls_per_step), (144, 16.0));
    assert_eq!(cast.op_dims.as_deref(), Some("[[131072, 4, 128], [131072, 4, 128], []]"));
    // 131072 x 4 x 128 = 67108864 elements: 1 byte read, 2 written; 201326592 bytes a call.
    assert_eq!((cast.read_bytes, cast.written_bytes), (Some(67_108_864.0), Some(134_217_728.0)));
    assert_eq!(cast.source_dtype.as_deref(), Some("float8_e5m2"));
    assert_eq!(cast.destination_dtype.as_deref(), Some("bfloat16"));
    assert_eq!(cast.layers, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(cast.size_trend, Some(SizeTrend::Constant));
    assert_eq!(copies.tokens_in_flight, Some(4));
    // H200: 4.8 TB/s. 201 MB in about 0.193 ms are 1.04 TB/s.
    assert_eq!(copies.memory_bandwidth_bytes_per_s, Some(4.8e12));
    let achieved = 144.0 * 201_326_592.0 * 1e9 / cast.total_ns as f64;
    assert_eq!(cast.achieved_bytes_per_s, Some(achieved));
    assert!((1.0e12..1.1e12).contains(&achieved), "{achieved}");
}

#[test]
fn nothing_else_is_taken_for_a_pool() {
    for name in [
        "torch-h200/pool-cast-fixed.trace.json.gz",
        "sglang-h200/decode-eager-TP-0.trace.json.gz",
        "sglang-h200/decode-graphs-TP-0.trace.json.gz",
        "sglang-h200/decode-graphs-fp8-kv-TP-0.trace.json.gz",
        "sglang-h200-tp2/eager",
        "nsys-h200/sglang-graph-by-node.sqlite",
    ] {
        let config = Config { kv_token_capacity: Some(131_072), ..Config::default() };
        let copies = fixture_with(name, &config).copies;
        assert!(copies.rows.iter().all(|row| !row.pool_sized), "{name}");
    }
}
