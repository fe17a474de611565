//! Forms of traces: old and new recorders, merged ranks, other accelerators.

use steptally_trace_model::{RankSource, Timestamp};

use crate::support::{check, check_events, lines, read};

#[test]
fn the_array_form_of_old_autograd_has_operators_and_cuda_functions() {
    check(
        r#"[{"name":"aten::mul","ph":"X","ts":1,"dur":2,"tid":3,"pid":"CPU functions","args":{}},
            {"name":"add_kernel","ph":"X","ts":2,"dur":1,"tid":0,"pid":"CUDA functions","args":{}},
            {"name":"aten::mul","ph":"s","ts":1,"tid":3,"pid":"CPU functions","id":9,
             "cat":"cpu_to_cuda","args":{}}]"#,
        &[
            "kernel `add_kernel` 2000+1000 device 0 stream 0",
            "op `aten::mul` 1000+2000 on CPU functions/3",
            "flow cpu_to_cuda Start 1000 on CPU functions/3 id 9",
        ],
    );
}

#[test]
fn legacy_categories_and_keys_are_known() {
    check_events(
        r#"{"ph": "X", "cat": "Operator", "name": "aten::zero_", "pid": 5, "tid": "5",
            "ts": 1, "dur": 25, "args": {"Device": 5, "External id": 2}},
           {"ph": "X", "cat": "Runtime", "name": "cudaMemsetAsync", "pid": 5, "tid": "5",
            "ts": 2, "dur": 3, "args": {"cbid": 51, "correlation": 9, "external id": 2}},
           {"ph": "X", "cat": "Memset", "name": "Memset (Device)", "pid": 0, "tid": "stream 7",
            "ts": 4, "dur": 1, "args": {"device": 0, "context": 1, "stream": 7, "correlation": 9,
            "external id": 2, "bytes": 64}},
           {"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": "stream 7", "ts": 6,
            "dur": 2, "args": {"device": 0, "context": 1, "stream": 7, "correlation": 10}}"#,
        &[
            "kernel `k` 6000+2000 device 0 context 1 stream 7 correlation 10",
            "copy `Memset (Device)` 4000+1000 Memset device 0 context 1 stream 7 bytes 64 \
             correlation 9 external 2",
            "api `cudaMemsetAsync` 2000+3000 on 5/5 correlation 9 external 2",
            "op `aten::zero_` 1000+25000 on 5/5 external 2",
        ],
    );
}

#[test]
fn a_merged_file_has_a_lane_per_prefix() {
    let event = |pid: &str, stream: u32| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "k", "pid": "{pid}", "tid": {stream},
            "ts": 1, "dur": 2, "args": {{"device": 0, "stream": 7, "correlation": 1}}}}"#
        )
    };
    let text = format!(
        r#"{{"distributedInfo": {{"rank": 0, "world_size": 2}}, "traceEvents": [{},{},{},
        {{"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 9}}]}}"#,
        event("[TP00-DP01-PP00-EP00] 0", 7),
        event("[TP01-DP01-PP00-EP00] 0", 7),
        event("[TP00-DP01-PP00-EP00] 0", 7),
    );
    let read = read(text);
    let kernel = "kernel `k` 1000+2000 device 0 stream 7 correlation 1";
    let expected = ["lane TP00-DP01-PP00-EP00", kernel, kernel, "lane TP01-DP01-PP00-EP00", kernel];
    assert_eq!(lines(&read), expected);
    // Which rank is whose is in the prefix; the header's is that of one of them.
    assert!(read.lanes.iter().all(|lane| lane.trace.meta.rank.is_none()));
    assert!(read.lanes.iter().all(|lane| lane.trace.meta.world_size == Some(2)));
}

#[test]
fn no_file_has_thousands_of_ranks() {
    let event = |lane: usize| {
        format!(r#"{{"ph":"X","cat":"kernel","name":"k","pid":"[{lane}] 0","ts":1,"dur":2}}"#)
    };
    let events: Vec<String> = (0..2000).map(event).collect();
    let read = read(format!("[{}]", events.join(",")));
    assert_eq!(read.lanes.len(), 1024);
    assert_eq!(read.issues.find("too_many_lanes").unwrap().count, 976);
    let kernels: usize = read.lanes.iter().map(|lane| lane.trace.kernels.len()).sum();
    assert_eq!(kernels, 2000);
}

#[test]
fn the_header_says_who_recorded_what() {
    let read = read(
        r#"{"schemaVersion": 1, "deviceProperties": [{"id": 1, "name": "NVIDIA H200",
        "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
        "record_shapes": 1, "with_stack": 0, "cuda_runtime_version": 13000,
        "distributedInfo": {"backend": "nccl", "rank": 5, "world_size": 8, "nccl_version": "2.28.9",
        "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [4, 5]}]},
        "displayTimeUnit": "ns", "baseTimeNanoseconds": 1790857026000000000,
        "traceEvents": [{"name": "Iteration Start: PyTorch Profiler", "ph": "i", "ts": 1.5},
        {"name": "Record Window End", "ph": "i", "pid": "", "ts": 90}],
        "traceName": "/tmp/x.json", "ERROR": ["cupti failed"], "vllm_version": "0.9"}"#,
    );
    let meta = &read.lanes[0].trace.meta;
    assert!(read.issues.is_empty());
    let rank = meta.rank.as_ref().unwrap();
    assert_eq!((rank.number, rank.source), (5, RankSource::DistributedInfo));
    assert_eq!(meta.world_size, Some(8));
    assert_eq!((meta.record_shapes, meta.with_stack), (Some(true), Some(false)));
    assert_eq!(meta.base_time_ns, Some(1_790_857_026_000_000_000));
    let device = meta.device(1).unwrap();
    assert_eq!((&*device.name, device.sm_count), ("NVIDIA H200", Some(132)));
    assert_eq!(device.total_memory_bytes, Some(150_109_880_320));
    assert_eq!(device.compute_capability, Some((9, 0)));
    assert_eq!(meta.process_groups[0].ranks, [4, 5]);
    let window = meta.window.unwrap();
    assert_eq!(window.start, Timestamp::from_ns(1_500));
    assert_eq!(window.end, Some(Timestamp::from_ns(90_000)));
    let versions: Vec<_> = meta.versions.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        versions,
        [
            "schemaVersion=1",
            "cuda_runtime_version=13000",
            "nccl_version=2.28.9",
            "backend=nccl",
            "vllm_version=0.9"
        ]
    );
    assert_eq!(meta.diagnostics, ["cupti failed"]);
}

#[test]
fn an_npu_names_its_work_by_task_type() {
    check(
        r#"[{"ph":"X","name":"MatMul","pid":90,"tid":3,"ts":"1715580000123456.789","dur":1.5,
             "args":{"Task Type":"AI_CORE","Stream Id":3,"Task Id":17}},
            {"ph":"X","name":"Add","pid":90,"tid":3,"ts":"1715580000123456.792","dur":"0.5",
             "args":{"Task Type":"AI_VECTOR_CORE","Stream Id":3}},
            {"ph":"X","name":"EVENT_WAIT","pid":90,"tid":3,"ts":"1715580000123457","dur":1,
             "args":{"Task Type":"EVENT_WAIT","Stream Id":3}},
            {"ph":"s","cat":"async_npu","id":"9007199254740993","name":"x","pid":1,"tid":2,
             "ts":"1715580000123450.001"}]"#,
        &[
            "kernel `MatMul` 1715580000123456789+1500 device 90 stream 3",
            "kernel `Add` 1715580000123456792+500 device 90 stream 3",
            "flow async_npu Start 1715580000123450001 on 1/2 id 9007199254740993",
        ],
    );
}

#[test]
fn begins_and_ends_become_one_event() {
    let text = r#"[{"ph":"B","name":"outer","pid":1,"tid":2,"ts":1,"cat":"cpu_op","args":{"External id":4}},
            {"ph":"B","name":"inner","pid":1,"tid":2,"ts":2},
            {"ph":"B","name":"other thread","pid":1,"tid":3,"ts":2},
            {"ph":"E","pid":1,"tid":2,"ts":3},
            {"ph":"E","name":"nobody","pid":1,"tid":2,"ts":4},
            {"ph":"E","name":"outer","pid":1,"tid":2,"ts":9}]"#;
    // The end that has no begin is met first, the begin that has no end is known at the last.
    let at = text.find(r#"{"ph":"E","name":"nobody""#).unwrap();
    check(
        text,
        &[
            "op `outer` 1000+8000 on 1/2 external 4",
            "op `inner` 2000+1000 on 1/2",
            &format!("Warning unmatched_begin_end x2 at {at}"),
        ],
    );
}

#[test]
fn an_end_before_its_begin_is_left_out() {
    check(
        r#"[{"ph":"B","name":"a","pid":1,"tid":2,"ts":5},{"ph":"E","pid":1,"tid":2,"ts":4}]"#,
        &["Warning negative_duration x1 at 1"],
    );
}
