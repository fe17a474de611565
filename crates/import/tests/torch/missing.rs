//! Events that are missing, strange or misleading: all are kept as recorded.

use crate::support::{check_events, read};

fn kernel(ts: &str, dur: &str, args: &str) -> String {
    format!(
        r#"{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{ts},"dur":{dur},"args":{{{args}}}}}"#
    )
}

fn launch(ts: &str, dur: &str, args: &str) -> String {
    format!(
        r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":5,"tid":5,"ts":{ts},"dur":{dur},"args":{{{args}}}}}"#
    )
}

#[test]
fn launches_without_kernels_are_kept() {
    let launches: Vec<String> =
        (0..100).map(|i| launch(&i.to_string(), "1", &format!("\"correlation\":{i}"))).collect();
    let kernels: Vec<String> =
        (30..70).map(|i| kernel(&i.to_string(), "1", &format!("\"correlation\":{i}"))).collect();
    let read = read(format!("[{},{}]", launches.join(","), kernels.join(",")));
    let trace = &read.lanes[0].trace;
    assert_eq!((trace.api_calls.len(), trace.kernels.len()), (100, 40));
    assert!(read.issues.is_empty());
}

#[test]
fn a_kernel_at_time_zero_is_kept_as_recorded() {
    check_events(
        [kernel("0", "0", ""), kernel("1600000000000000", "5", "")].join(","),
        &[
            "kernel `k` 0+0 device 0 stream 7",
            "kernel `k` 1600000000000000000+5000 device 0 stream 7",
        ],
    );
}

#[test]
fn a_trace_without_kernels_is_still_a_trace() {
    let read = read(format!(
        r#"{{"deviceProperties":[{{"id":0,"name":"NVIDIA H200"}}],"traceEvents":[{}]}}"#,
        launch("1", "2", "\"correlation\":7")
    ));
    let trace = &read.lanes[0].trace;
    assert_eq!((trace.kernels.len(), trace.api_calls.len()), (0, 1));
    assert_eq!(trace.meta.devices[0].name, "NVIDIA H200");
}

#[test]
fn a_kernel_before_its_launch_keeps_both_times() {
    check_events(
        [launch("100.000", "5", "\"correlation\":1"), kernel("99.2", "3", "\"correlation\":1")]
            .join(","),
        &[
            "kernel `k` 99200+3000 device 0 stream 7 correlation 1",
            "api `cudaLaunchKernel` 100000+5000 on 5/5 correlation 1",
        ],
    );
}

#[test]
fn correlation_and_external_ids_are_two_things() {
    check_events(
        [
            launch("1", "2", r#""External id":7,"correlation":7"#),
            kernel("9", "3", r#""External id":7,"correlation":8"#),
        ]
        .join(","),
        &[
            "kernel `k` 9000+3000 device 0 stream 7 correlation 8 external 7",
            "api `cudaLaunchKernel` 1000+2000 on 5/5 correlation 7 external 7",
        ],
    );
}

#[test]
fn a_hip_call_may_lie_outside_its_operator() {
    check_events(
        r#"{"ph":"X","cat":"cpu_op","name":"aten::add","pid":5,"tid":5,"ts":10,"dur":5},
           {"ph":"X","cat":"cuda_runtime","name":"hipLaunchKernel","pid":5,"tid":5,"ts":9.7,
            "dur":5.6,"args":{"cid":107,"correlation":3,"kernel":"k","grid":"[1, 1, 1]"}}"#,
        &[
            "api `hipLaunchKernel` 9700+5600 on 5/5 correlation 3",
            "op `aten::add` 10000+5000 on 5/5",
        ],
    );
}

#[test]
fn every_argument_is_optional() {
    check_events(
        r#"{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":2},
           {"ph":"X","cat":"gpu_memcpy","ts":3,"dur":2,"args":null},
           {"ph":"X","cat":"cuda_runtime","ts":4,"dur":1,"args":{}},
           {"ph":"X","cat":"cpu_op","ts":5,"dur":1,"args":[1]}"#,
        &[
            "kernel `k` 1000+2000",
            "copy `` 3000+2000 Unknown",
            "api `` 4000+1000 on /",
            "op `` 5000+1000 on /",
        ],
    );
}

#[test]
fn without_arguments_the_track_says_device_and_stream() {
    check_events(
        r#"{"ph":"X","cat":"kernel","name":"k","pid":3,"tid":7,"ts":1,"dur":2},
           {"ph":"X","cat":"kernel","name":"k","pid":"x","tid":"stream 7","ts":1,"dur":2}"#,
        &["kernel `k` 1000+2000 device 3 stream 7", "kernel `k` 1000+2000"],
    );
}

#[test]
fn ids_beyond_floating_point_survive_and_others_are_noted() {
    let first = kernel("1", "1", r#""correlation":10159970886766084423"#).len()
        + kernel("2", "1", r#""correlation":"9007199254740993""#).len();
    check_events(
        [
            kernel("1", "1", r#""correlation":10159970886766084423"#),
            kernel("2", "1", r#""correlation":"9007199254740993""#),
            kernel("3", "1", r#""correlation":-7"#),
            kernel("4", "1", r#""correlation":18446744073709551616"#),
            kernel("5", "1", r#""correlation":-1"#),
        ]
        .join(","),
        &[
            "kernel `k` 1000+1000 device 0 stream 7 correlation 10159970886766084423",
            "kernel `k` 2000+1000 device 0 stream 7 correlation 9007199254740993",
            "kernel `k` 3000+1000 device 0 stream 7",
            "kernel `k` 4000+1000 device 0 stream 7",
            "kernel `k` 5000+1000 device 0 stream 7",
            &format!("Warning bad_id x2 at {}", 16 + first + 2),
        ],
    );
}

#[test]
fn events_of_unknown_phase_are_counted() {
    check_events(
        r#"{"ph":"N","name":"a","ts":1},{"name":"b","ts":1},{"ph":"M","name":"process_name"}"#,
        &["Info unknown_phase x2 at 16"],
    );
}
