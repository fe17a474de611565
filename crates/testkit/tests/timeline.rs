//! The DSL, the JSON writer and the generator against values worked out by hand.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use steptally_testkit::{AllReduce, DecodeMode, TraceDsl, decode_run, write_torch_json};
use steptally_trace_model::interval::Interval;
use steptally_trace_model::{CopyKind, FlowPhase, Timestamp, interval};

fn parse(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

fn events<'a>(json: &'a Value, category: &str) -> Vec<&'a Value> {
    let all = json["traceEvents"].as_array().unwrap();
    all.iter().filter(|event| event["cat"] == category).collect()
}

#[test]
fn a_timeline_lands_in_the_right_tables() {
    let trace = TraceDsl::rank(3)
        .gpu("NVIDIA H200")
        .range("step[DECODE bs=1]", 0..100)
        .op("aten::mm", 5..40, "[[1, 2], [2, 3]]")
        .external(4)
        .launch("cudaLaunchKernel", 10..15, 9)
        .kernel("gemm", 20..60)
        .correlation(9)
        .grid([4, 2, 1])
        .block([128, 1, 1])
        .on_stream(22)
        .memcpy_d2h(60..70, 4096)
        .pageable(true)
        .thread("worker")
        .frame("a.py(3): f", 1..2)
        .python_ids(8, Some(7))
        .build();
    assert_eq!(trace.rank(), Some(3));
    let kernel = trace.kernels.row(0);
    assert_eq!((kernel.start.as_ns(), kernel.duration.as_ns()), (20, 40));
    assert_eq!(kernel.correlation, trace.api_calls.correlation[0]);
    assert_eq!(trace.streams[kernel.stream].stream.value(), Some(22));
    assert_eq!(trace.configs[kernel.config].grid, [4, 2, 1]);
    assert_eq!(trace.configs[kernel.config].block, [128, 1, 1]);
    let copy = trace.copies.row(0);
    assert_eq!((copy.kind, copy.bytes.value()), (CopyKind::DeviceToHost, Some(4096)));
    assert_eq!(trace.text(copy.name), "Memcpy DtoH (Device -> Pageable)");
    // The copy stayed on the current stream: `on_stream` moved the kernel only.
    assert_eq!(trace.streams[copy.stream].stream.value(), Some(7));
    assert_ne!(trace.frames.thread[0], trace.cpu_ops.thread[0]);
    assert_eq!(trace.frames.parent[0].value(), Some(7));
}

#[test]
#[should_panic(expected = "correlation is not a column of Range")]
fn a_modifier_of_the_wrong_event_is_refused() {
    let _ = TraceDsl::new().range("step", 0..1).correlation(1);
}

#[test]
fn launch_kernel_ties_a_call_to_its_kernel() {
    let trace =
        TraceDsl::new().launch_kernel("a", 0..5, 10..20).launch_kernel("b", 5..9, 20..30).build();
    assert_eq!(trace.api_calls.correlation, trace.kernels.correlation);
    assert_ne!(trace.kernels.correlation[0], trace.kernels.correlation[1]);
}

#[test]
fn json_times_are_exact_and_texts_survive() {
    // A clock near 2^53 microseconds, where a float would round.
    let start = 9_007_199_254_740_993_001;
    let trace = TraceDsl::rank(1)
        .world_size(2)
        .device(1)
        .gpu("NVIDIA H200")
        .kernel("a\"b\\c\u{1}<é>", start..start + 1_250)
        .correlation(u64::MAX - 1)
        .grid([1, 2, 3])
        .all_reduce(AllReduce {
            elements: 2048,
            dtype: "BFloat16",
            process_group: "3",
            group_size: 2,
            sequence: None,
        })
        .launch("cuLaunchKernelEx", -1_500..-499, u64::MAX - 1)
        .flow("fwdbwd", 1_000, 6, FlowPhase::Start)
        .memset(0..2_000, 64)
        .build();
    let text = write_torch_json(&trace);
    assert!(text.contains("\"ts\": 9007199254740993.001, \"dur\": 1.25"), "{text}");
    assert!(text.contains("\"ts\": -1.5, \"dur\": 1.001"), "{text}");
    let json = parse(&text);
    assert_eq!(json["distributedInfo"]["rank"], 1);
    assert_eq!(json["distributedInfo"]["world_size"], 2);
    assert_eq!(json["deviceProperties"][0]["id"], 1);
    let kernel = events(&json, "kernel")[0];
    assert_eq!(kernel["name"], "a\"b\\c\u{1}<é>");
    assert_eq!(kernel["pid"], 1);
    assert_eq!(kernel["args"]["correlation"], u64::MAX - 1);
    assert_eq!(kernel["args"]["grid"], serde_json::json!([1, 2, 3]));
    assert_eq!(kernel["args"]["Process Group Ranks"], "[0, 1]");
    assert_eq!(events(&json, "cuda_driver").len(), 1);
    assert_eq!(events(&json, "gpu_memset")[0]["dur"], 2);
    assert_eq!(events(&json, "fwdbwd")[0]["ts"], 1);
    // One arrow from the call to the kernel; none to the fill, which has no correlation id.
    let arrows: Vec<_> = events(&json, "ac2g").iter().map(|arrow| arrow["ph"].clone()).collect();
    assert_eq!(arrows, ["s", "f"]);
}

fn gpu_intervals(trace: &steptally_trace_model::Trace) -> Vec<Interval> {
    let kernels = trace.kernels.rows().map(|row| Interval::new(row.start, row.duration));
    let copies = trace.copies.rows().map(|row| Interval::new(row.start, row.duration));
    let mut all: Vec<_> = kernels.chain(copies).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_generated_run_is_what_it_says() {
    for mode in [DecodeMode::Eager, DecodeMode::Graph] {
        let run = decode_run(mode, 2, 4, 3, 11);
        assert_eq!(run.traces.len(), 2);
        for (trace, steps) in run.traces.iter().zip(&run.steps) {
            // 3 layers of 7 kernels, logits, argmax.
            assert_eq!(trace.kernels.len(), 4 * (3 * 7 + 2));
            assert_eq!(trace.copies.len(), 4);
            let launches = if mode == DecodeMode::Eager { 23 } else { 1 };
            // Launches, the copy's call, the wait.
            assert_eq!(trace.api_calls.len(), 4 * (launches + 2));
            let all = gpu_intervals(trace);
            let busy: i64 = steps.iter().map(|step| step.gpu_busy_ns).sum();
            assert_eq!(all.iter().map(|work| work.length().as_ns()).sum::<i64>(), busy);
            assert_eq!(interval::union_length_sorted(all.iter().copied()).as_ns(), busy);
            for pair in steps.windows(2) {
                assert!(pair[0].last_gpu_end_ns < pair[1].first_gpu_start_ns);
            }
            assert_eq!(all[0].start, Timestamp::from_ns(steps[0].first_gpu_start_ns));
            assert!(trace.kernels.rows().all(|kernel| {
                let call = trace.api_calls.rows().find(|c| c.correlation == kernel.correlation);
                call.is_some_and(|call| call.start < kernel.start)
            }));
        }
        let ends: Vec<Vec<_>> = run
            .traces
            .iter()
            .map(|trace| {
                let kernels = &trace.kernels;
                let met = (0..kernels.len()).filter(|&row| kernels.collective[row].0 != 0);
                met.map(|row| kernels.end(row)).collect()
            })
            .collect();
        assert_eq!(ends[0].len(), 4 * 3);
        assert_eq!(ends[0], ends[1]);
    }
}

#[test]
fn a_seed_gives_one_run() {
    let write = |seed| write_torch_json(&decode_run(DecodeMode::Graph, 1, 2, 1, seed).traces[0]);
    assert_eq!(write(5), write(5));
    assert_ne!(write(5), write(6));
    assert_eq!(events(&parse(&write(5)), "kernel").len(), 2 * (6 + 2));
}
