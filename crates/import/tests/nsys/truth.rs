//! Every public and own nsys export at hand against reference values computed independently.

use std::collections::{BTreeMap, HashMap, HashSet};

use steptally_import::nsys::NsysError;
use steptally_trace_model::Trace;
use steptally_trace_model::interval::{Interval, union_length_sorted};

use crate::support::{read, shared};

#[derive(Debug, Default, PartialEq, Eq)]
struct Reference {
    kernels: u64,
    copies: u64,
    kernel_sum: i64,
    kernel_union: i64,
    gpu_union: i64,
    span: i64,
}

/// Reference values by OS process id (empty when not recorded) and device.
fn expected(truth: &serde_json::Value) -> BTreeMap<(String, u32), Reference> {
    let devices = truth["devices"].as_object().unwrap();
    devices
        .iter()
        .map(|(key, value)| {
            let (pid, device) = key.strip_prefix("pid").unwrap().split_once("/dev").unwrap();
            let pid = match pid.parse::<i64>() {
                Ok(global) => ((global >> 24) & 0xFF_FFFF).to_string(),
                Err(_) => String::new(),
            };
            let number = |name: &str| value[name].as_i64().unwrap();
            let reference = Reference {
                kernels: number("kernels") as u64,
                copies: number("copies_sets") as u64,
                kernel_sum: number("kernel_sum_ns"),
                kernel_union: number("kernel_busy_union_ns"),
                gpu_union: number("gpu_busy_union_ns"),
                span: number("gpu_span_ns"),
            };
            ((pid, device.parse().unwrap()), reference)
        })
        .collect()
}

fn union(mut intervals: Vec<Interval>) -> i64 {
    intervals.sort();
    union_length_sorted(intervals).as_ns()
}

/// The same values of what was read.
fn measured(traces: &[Trace]) -> BTreeMap<(String, u32), Reference> {
    let mut result = BTreeMap::new();
    for trace in traces {
        let mut kernels: HashMap<(String, u32), Vec<Interval>> = HashMap::new();
        let mut copies: HashMap<(String, u32), Vec<Interval>> = HashMap::new();
        let key = |stream| {
            let stream = trace.streams[stream];
            let pid = trace.text(trace.processes[stream.process].pid).to_owned();
            (pid, stream.device.unwrap())
        };
        for row in trace.kernels.rows() {
            let interval = Interval::new(row.start, row.duration);
            kernels.entry(key(row.stream)).or_default().push(interval);
        }
        for row in trace.copies.rows() {
            let interval = Interval::new(row.start, row.duration);
            copies.entry(key(row.stream)).or_default().push(interval);
        }
        let mut keys: Vec<_> = kernels.keys().chain(copies.keys()).cloned().collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let kernels = kernels.remove(&key).unwrap_or_default();
            let copies = copies.remove(&key).unwrap_or_default();
            let all: Vec<Interval> = kernels.iter().chain(&copies).copied().collect();
            let first = all.iter().map(|interval| interval.start).min().unwrap();
            let last = all.iter().map(|interval| interval.end).max().unwrap();
            let reference = Reference {
                kernels: kernels.len() as u64,
                copies: copies.len() as u64,
                kernel_sum: kernels.iter().map(|interval| interval.length().as_ns()).sum(),
                kernel_union: union(kernels),
                gpu_union: union(all),
                span: (last - first).as_ns(),
            };
            assert!(result.insert(key, reference).is_none(), "one process in two traces");
        }
    }
    result
}

/// Total time of each of the kernels that the reference lists, with their counts.
fn check_top_kernels(traces: &[Trace], truth: &serde_json::Value) {
    let mut totals: HashMap<&str, (u64, i64)> = HashMap::new();
    for trace in traces {
        for row in trace.kernels.rows() {
            let total = totals.entry(trace.text(row.name)).or_default();
            total.0 += 1;
            total.1 += row.duration.as_ns();
        }
    }
    for top in truth["top5_kernels"].as_array().unwrap() {
        let (name, count) = (top[0].as_str().unwrap(), top[1].as_u64().unwrap());
        assert_eq!(totals.get(name), Some(&(count, top[2].as_i64().unwrap())), "{name}");
    }
}

#[test]
fn devices_equal_the_reference_to_the_nanosecond() {
    let Some(shared) = shared() else { return };
    let mut checked = 0;
    for folder in ["traces", "captures"] {
        let folder = shared.join(folder);
        let truth = std::fs::read_to_string(folder.join("truth.jsonl")).unwrap();
        for line in truth.lines() {
            let truth: serde_json::Value = serde_json::from_str(line).unwrap();
            let file = truth["file"].as_str().unwrap();
            if !file.ends_with(".sqlite") {
                continue;
            }
            let read = read(&folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert_eq!(measured(&read.traces), expected(&truth), "{file}");
            check_top_kernels(&read.traces, &truth);
            let replays: Vec<_> =
                read.traces.iter().flat_map(|trace| trace.graph_traces.rows()).collect();
            if let Some(rows) = truth["graph_trace_rows"].as_u64() {
                let sum: i64 = replays.iter().map(|row| row.duration.as_ns()).sum();
                assert_eq!(replays.len() as u64, rows);
                assert_eq!(Some(sum), truth["graph_trace_sum_ns"].as_i64());
            } else {
                assert!(replays.is_empty(), "{file}");
            }
            checked += 1;
        }
    }
    assert_eq!(checked, 13);
}

#[test]
fn a_capture_without_any_event_says_what_the_recorder_said() {
    let Some(shared) = shared() else { return };
    let path = shared.join("traces/D-W-Chiang__JACC.jl/report1.sqlite");
    let error = read(&path).unwrap_err();
    assert!(matches!(error, NsysError::NoEvents { .. }), "{error}");
    assert!(error.to_string().ends_with("without CUDA, NVTX or OS runtime events"), "{error}");
    assert_eq!(
        error.hint().unwrap(),
        "record with -t cuda,nvtx, and while the server works; the recorder says: Not all NVTX events might have been collected."
    );
}

#[test]
fn a_capture_of_the_host_only_is_one_trace_that_says_so() {
    let Some(shared) = shared() else { return };
    let path = shared.join("traces/YoonKyonghwan__EfficientCenterFormer/baseline.sqlite");
    let read = read(&path).unwrap();
    let [trace] = read.traces.as_slice() else { panic!("{} traces", read.traces.len()) };
    // SELECT count(*) FROM NVTX_EVENTS: 1824, all push/pop.
    assert_eq!((trace.ranges.len(), trace.gpu_event_count()), (1824, 0));
    assert!(trace.meta.diagnostics[0].starts_with("GPU not traced"));
    assert!(read.issues.find("gpu_not_traced").is_some());
    assert_eq!(read.format, "nsys SQLite 3.0.0");
}

#[test]
fn our_captures_have_their_graphs_threads_and_devices() {
    let Some(shared) = shared() else { return };
    let read = read(&shared.join("captures/nsys_sglang_graph_by_node.sqlite")).unwrap();
    let [trace] = read.traces.as_slice() else { panic!("{} traces", read.traces.len()) };
    // Counts by SQL over the file.
    let in_graph = trace.kernels.graph_node.iter().filter(|node| node.is_some()).count();
    assert_eq!((trace.kernels.len(), in_graph, trace.graph_nodes.len()), (932, 800, 1348));
    assert_eq!((trace.api_calls.len(), trace.syncs.len(), trace.ranges.len()), (507, 50, 8));
    assert!(trace.strings.find("cudaGraphLaunch").is_some());
    assert_eq!(trace.text(trace.ranges.domain[0]), "CCCL");
    assert_eq!(trace.meta.base_time_ns, Some(1_795_970_339_903_153_845));
    assert_eq!(trace.meta.window.unwrap().end.unwrap().as_ns(), 47_512_574);
    let device = trace.meta.device(0).unwrap();
    assert_eq!((device.name.as_str(), device.sm_count), ("NVIDIA H200", Some(132)));
    assert_eq!(device.memory_bandwidth_bytes_per_s, Some(4_814_304_000_000));
    assert_eq!(device.compute_capability, Some((9, 0)));
    let versions: HashMap<&str, &str> =
        trace.meta.versions.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(versions["nsys_version"], "2023.4.4.54");
    assert_eq!(versions["cuda_graph_trace"], "Node");
    assert_eq!(versions["driver_version"], "580.159.04");
    let titles: Vec<&str> = trace.process_names.values().map(|name| trace.text(*name)).collect();
    assert_eq!(titles, ["sglang::schedul"]);
    assert_eq!(trace.meta.rank, None);
    // Names of synchronisation, by the API call that shares the correlation id.
    let mut by_call: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    let calls: HashMap<_, _> =
        trace.api_calls.rows().map(|call| (call.correlation, call.name)).collect();
    for sync in trace.syncs.rows() {
        let call = calls.get(&sync.correlation).map_or("", |name| trace.text(*name));
        *by_call.entry((trace.text(sync.name), call)).or_default() += 1;
    }
    assert_eq!(
        by_call.into_iter().collect::<Vec<_>>(),
        [
            (("Context Synchronize", ""), 1),
            (("Event Synchronize", "cudaEventQuery"), 17),
            (("Event Synchronize", "cudaEventSynchronize"), 8),
            (("Stream Wait Event", "cudaStreamWaitEvent"), 24),
        ]
    );
}

#[test]
fn two_processes_are_two_ranks_by_their_gpus() {
    let Some(shared) = shared() else { return };
    let path = shared.join("traces/GindaChen__nsys-ai/tests/fixtures/mfu_2gpu_before.sqlite");
    let read = read(&path).unwrap();
    let ranks: Vec<_> = read
        .traces
        .iter()
        .map(|trace| (trace.rank(), trace.kernels.len(), trace.api_calls.len(), trace.ranges.len()))
        .collect();
    // By SQL: kernels by globalPid 1993 and 2017; calls 7466 and ranges 19118 in all.
    assert_eq!((ranks[0].0, ranks[0].1), (Some(0), 1993));
    assert_eq!((ranks[1].0, ranks[1].1), (Some(1), 2017));
    assert_eq!(ranks.iter().map(|rank| rank.2).sum::<usize>(), 7466);
    assert_eq!(ranks.iter().map(|rank| rank.3).sum::<usize>(), 19_118);
}

#[test]
fn a_whole_graph_capture_without_replay_rows_says_so() {
    let Some(shared) = shared() else { return };
    let read = read(&shared.join("captures/nsys_prog_graph_whole.sqlite")).unwrap();
    // Three replays: `graph step 0` to `2`.
    assert_eq!(read.issues.find("graph_replay_not_recorded").unwrap().count, 3);
    let read = self::read(&shared.join("captures/nsys_prog_graph_by_node.sqlite")).unwrap();
    assert!(read.issues.find("graph_replay_not_recorded").is_none());
}

/// NVIDIA's definition of projection: a kernel belongs to a range when the API call with its
/// correlation id is within the range on the same thread. The reference is that query in SQL.
#[test]
fn ranges_calls_and_kernels_join_as_in_sql() {
    let Some(shared) = shared() else { return };
    let path = shared.join("traces/GindaChen__nsys-ai/tests/fixtures/mfu_2gpu_before.sqlite");
    let mut projected = 0;
    for trace in &read(&path).unwrap().traces {
        let kernels: HashSet<_> = trace.kernels.correlation.iter().copied().collect();
        let calls: Vec<_> = trace
            .api_calls
            .rows()
            .filter(|call| kernels.contains(&call.correlation))
            .map(|call| (call.thread, call.start, call.start + call.duration))
            .collect();
        projected += trace
            .ranges
            .rows()
            .filter(|range| {
                let end = range.start + range.duration;
                calls.iter().any(|(thread, from, to)| {
                    *thread == range.thread && range.start <= *from && end >= *to
                })
            })
            .count();
    }
    assert_eq!(projected, 8444);
}
