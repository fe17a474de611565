//! Every real file at hand: the right answer, or exactly one clear error.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::{import, shared};
use serde_json::Value;
use steptally_trace_model::Trace;

/// Of one device: kernels, copies and fills, sum of kernels, union of kernels, union of all, span.
type Device = [i64; 6];

fn union(mut intervals: Vec<(i64, i64)>) -> i64 {
    intervals.sort_unstable();
    let mut end = i64::MIN;
    intervals.into_iter().fold(0, |sum, (from, to)| {
        let sum = sum + (to - from.max(end)).max(0);
        end = end.max(to);
        sum
    })
}

fn devices(traces: &[Trace]) -> Vec<Device> {
    let mut devices = Vec::new();
    for trace in traces {
        let mut of: HashMap<Option<u32>, [Vec<(i64, i64)>; 2]> = HashMap::new();
        for (index, stream) in trace.kernels.stream.iter().enumerate() {
            let interval = (trace.kernels.start[index].as_ns(), trace.kernels.end(index).as_ns());
            of.entry(trace.device_of(*stream)).or_default()[0].push(interval);
        }
        for (index, stream) in trace.copies.stream.iter().enumerate() {
            let interval = (trace.copies.start[index].as_ns(), trace.copies.end(index).as_ns());
            of.entry(trace.device_of(*stream)).or_default()[1].push(interval);
        }
        devices.extend(of.into_values().map(|[kernels, copies]| {
            let all = [&kernels[..], &copies].concat();
            let first = all.iter().map(|interval| interval.0).min().unwrap();
            let last = all.iter().map(|interval| interval.1).max().unwrap();
            let sum = kernels.iter().map(|(from, to)| to - from).sum();
            let (count, others) = (kernels.len() as i64, copies.len() as i64);
            [count, others, sum, union(kernels), union(all), last - first]
        }));
    }
    devices.sort_unstable();
    devices
}

/// What `truth.jsonl` says, by file.
fn truth(folder: &Path) -> HashMap<PathBuf, Vec<Device>> {
    let lines = fs::read_to_string(folder.join("truth.jsonl")).unwrap();
    let keys = [
        "kernels",
        "copies_sets",
        "kernel_sum_ns",
        "kernel_busy_union_ns",
        "gpu_busy_union_ns",
        "gpu_span_ns",
    ];
    let file = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let of_device = |device: &Value| keys.map(|key| device[key].as_i64().unwrap());
        let mut devices: Vec<_> =
            line["devices"].as_object().unwrap().values().map(of_device).collect();
        devices.sort_unstable();
        (folder.join(line["file"].as_str().unwrap()), devices)
    };
    lines.lines().map(file).collect()
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, files) } else { files.push(path) }
    }
}

#[test]
fn each_file_gives_its_reference_values_or_one_error() {
    for folder in ["traces", "captures"] {
        let Some(folder) = shared(folder) else {
            continue;
        };
        let truth = truth(&folder);
        let mut files = Vec::new();
        walk(&folder, &mut files);
        files.sort();
        assert!(truth.keys().all(|file| files.contains(file)));
        let mut errors = HashMap::new();
        for path in &files {
            let expected = truth.get(path);
            match import(path) {
                Ok(import) => {
                    let events: usize = import.traces.iter().map(event_count).sum();
                    assert!(events > 0, "{}: a silent zero", path.display());
                    if let Some(expected) = expected {
                        assert_eq!(&devices(&import.traces), expected, "{}", path.display());
                    }
                    eprintln!("{}: {} traces", path.display(), import.traces.len());
                }
                Err(error) => {
                    assert!(expected.is_none(), "{error}");
                    let text = error.to_string();
                    assert!(text.lines().count() == 1 && text.len() < 400, "{text}");
                    eprintln!("{error}\n  hint: {}", error.hint().unwrap_or_default());
                    let name = path.strip_prefix(&folder).unwrap().to_string_lossy().into_owned();
                    errors.insert(name, text);
                }
            }
        }
        if folder.ends_with("traces") {
            for (file, part) in [
                ("NVIDIA__JAX-Toolbox/cuda-examples/pdl_2p2c.nsys-rep", "nsys 2025.5.1"),
                ("jlfwong__speedscope/sample/profiles/perfetto/simple.perfetto-trace", "Perfetto"),
                (
                    "facebookresearch__param/et_replay/tests/inputs/linear_et.json.gz",
                    "execution trace",
                ),
                ("MANIFEST.tsv", "plain text"),
            ] {
                // With nsys on PATH the report is read.
                if let Some(error) = errors.get(file) {
                    assert!(error.contains(part), "{error}");
                } else {
                    assert!(file.ends_with(".nsys-rep"), "{file}");
                }
            }
        }
    }
}

fn event_count(trace: &Trace) -> usize {
    trace.gpu_event_count()
        + trace.api_calls.len()
        + trace.cpu_ops.len()
        + trace.ranges.len()
        + trace.frames.len()
        + trace.counters.len()
}
