//! Numbers per device against those that an independent program worked out.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use steptally_import::torch::TorchError;
use steptally_import::{ImportOptions, torch::read_torch};
use steptally_trace_model::interval::{Interval, union_length_sorted};
use steptally_trace_model::{Timestamp, Trace};

use crate::support::{decompressed, shared};

/// Kernels, copies, kernel sum, kernel union, GPU union, span, as the reference names them.
type Numbers = BTreeMap<String, i64>;

fn numbers(trace: &Trace) -> BTreeMap<String, Numbers> {
    #[derive(Default)]
    struct Device {
        kernels: Vec<Interval>,
        copies: Vec<Interval>,
    }
    let mut devices: BTreeMap<String, Device> = BTreeMap::new();
    let key = |stream| trace.device_of(stream).map_or("None".into(), |device| device.to_string());
    for row in trace.kernels.rows() {
        let interval = Interval::new(row.start, row.duration);
        devices.entry(key(row.stream)).or_default().kernels.push(interval);
    }
    for row in trace.copies.rows() {
        let interval = Interval::new(row.start, row.duration);
        devices.entry(key(row.stream)).or_default().copies.push(interval);
    }
    devices
        .into_iter()
        .map(|(key, device)| {
            let mut all = [&device.kernels[..], &device.copies[..]].concat();
            all.sort_unstable();
            let mut kernels = device.kernels;
            kernels.sort_unstable();
            let start = all.iter().map(|interval| interval.start).min().unwrap();
            let end = all.iter().map(|interval| interval.end).max().unwrap_or(Timestamp::MIN);
            let sum: i64 = kernels.iter().map(|interval| interval.length().as_ns()).sum();
            let numbers = [
                ("kernels", kernels.len() as i64),
                ("copies_sets", device.copies.len() as i64),
                ("kernel_sum_ns", sum),
                ("kernel_busy_union_ns", union_length_sorted(kernels).as_ns()),
                ("gpu_busy_union_ns", union_length_sorted(all).as_ns()),
                ("gpu_span_ns", (end - start).as_ns()),
            ];
            (key, numbers.map(|(name, value)| (name.to_owned(), value)).into())
        })
        .collect()
}

fn expected(line: &Value) -> BTreeMap<String, Numbers> {
    let devices = line["devices"].as_object().unwrap();
    devices
        .iter()
        .map(|(device, numbers)| {
            let numbers = numbers.as_object().unwrap().iter();
            (device.clone(), numbers.map(|(k, v)| (k.clone(), v.as_i64().unwrap())).collect())
        })
        .collect()
}

fn check_folder(folder: &Path, least: usize) {
    let truth = std::fs::read_to_string(folder.join("truth.jsonl")).unwrap();
    let mut checked = 0;
    for line in truth.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let name = line["file"].as_str().unwrap();
        if !name.contains(".json") {
            continue;
        }
        let text = decompressed(&folder.join(name));
        let read = read_torch(&text[..], &ImportOptions::default()).unwrap();
        let mut found = BTreeMap::new();
        for lane in &read.lanes {
            for (device, numbers) in numbers(&lane.trace) {
                // The ranks of the merged file use one device each.
                assert_eq!(found.insert(device, numbers), None, "{name}");
            }
        }
        assert_eq!(found, expected(&line), "{name}");
        checked += 1;
    }
    assert!(checked >= least, "only {checked} files");
}

#[test]
fn public_traces_give_the_reference_numbers() {
    if let Some(shared) = shared() {
        check_folder(&shared.join("traces"), 20);
    }
}

#[test]
fn captures_give_the_reference_numbers() {
    if let Some(shared) = shared() {
        check_folder(&shared.join("captures"), 19);
    }
}

/// Files without GPU work in them: right rows, or one clear error.
#[test]
fn other_public_files_are_told_apart() {
    let Some(shared) = shared() else { return };
    let check = |name: &str, expected: Result<(usize, usize), &str>| {
        let text = decompressed(&shared.join("traces").join(name));
        let found = read_torch(&text[..], &ImportOptions::default())
            .map(|read| {
                let trace = &read.lanes[0].trace;
                assert_eq!(trace.gpu_event_count(), 0, "{name}");
                (trace.cpu_ops.len(), trace.api_calls.len())
            })
            .map_err(|error: TorchError| error.to_string());
        assert_eq!(found, expected.map_err(Into::into), "{name}");
    };
    check(
        "facebookresearch__param/et_replay/tests/inputs/linear_et.json.gz",
        Err("JSON without `traceEvents`, looks like a PyTorch execution trace (Chakra) \
             (top-level keys: schema, pid, time, start_ts, nodes, finish_ts)"),
    );
    // Ten events of phase X without a category.
    let intel = "intel__torch-xpu-ops/test/agentic/parse-unitrace/fixtures";
    check(&format!("{intel}/basic_unitrace.json"), Ok((10, 0)));
    // As counted with Python: 10346 of category cpu_op, 823 of mtia_runtime.
    let hta = "facebookresearch__HolisticTraceAnalysis/tests/data";
    check(&format!("{hta}/mtia_inference_trace/mtia_inference_rank_0.json.gz"), Ok((10_346, 823)));
    check(&format!("{hta}/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz"), Ok((4, 0)));
    let speedscope = "jlfwong__speedscope/sample/profiles";
    check(&format!("{speedscope}/trace-event/simple.json"), Ok((4, 0)));
    check(&format!("{speedscope}/trace-event/simple-partial-trailing-comma.json"), Ok((4, 0)));
    check(&format!("{speedscope}/trace-event/out-of-order.json"), Ok((3, 0)));
    check(&format!("{speedscope}/trace-event/multiprocess.json"), Ok((8, 0)));
}
