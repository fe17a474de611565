//! Every file with reference values, through the importer and all analyses: `devices[]` to the
//! nanosecond, and a ledger without a remainder.

#![allow(clippy::print_stderr, clippy::unwrap_used)] // in the tests' own functions

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use steptally_analyze::results::DeviceUse;
use steptally_analyze::{Config, analyze};
use steptally_import::import_path;

/// The folder of real traces beside the project, where it is at hand.
fn shared() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("STEPTALLY_SHARED").map_or(beside, PathBuf::from);
    let there = folder.is_dir();
    if !there {
        eprintln!("SKIPPED: no traces with reference values at {}", folder.display());
    }
    there.then_some(folder)
}

/// Kernels, copies and fills, sum of kernels, union of kernels, union of all, span.
type Row = [i64; 6];

fn expected(devices: &Value) -> Vec<Row> {
    let keys = [
        "kernels",
        "copies_sets",
        "kernel_sum_ns",
        "kernel_busy_union_ns",
        "gpu_busy_union_ns",
        "gpu_span_ns",
    ];
    let of_device = |device: &Value| keys.map(|key| device[key].as_i64().unwrap());
    devices.as_object().unwrap().values().map(of_device).collect()
}

fn found(device: &DeviceUse) -> Row {
    [
        device.kernel_count as i64,
        device.copy_count as i64,
        device.kernel_sum_ns,
        device.kernel_busy_ns,
        device.gpu_busy_ns,
        device.gpu_span_ns,
    ]
}

#[test]
fn devices_equal_the_reference_values_and_ledgers_add_up() {
    let Some(shared) = shared() else { return };
    for folder in ["traces", "captures"].map(|name| shared.join(name)) {
        let lines = fs::read_to_string(folder.join("truth.jsonl")).unwrap();
        for line in lines.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let file = line["file"].as_str().unwrap();
            let import = import_path(&folder.join(file), &Default::default()).unwrap();
            let analysis = analyze(&import.traces, &Config::default());
            // A device of which a file has only whole graphs has no row there.
            let known = |d: &&DeviceUse| d.kernel_count + d.copy_count > 0;
            let mut ours: Vec<Row> = analysis.devices.iter().filter(known).map(found).collect();
            let mut theirs = expected(&line["devices"]);
            ours.sort_unstable();
            theirs.sort_unstable();
            assert_eq!(ours, theirs, "{file}");
            if let Some(rows) = line["graph_trace_rows"].as_u64() {
                let graphs = |value: fn(&DeviceUse) -> i64| -> i64 {
                    analysis.devices.iter().map(value).sum()
                };
                assert_eq!(graphs(|d| d.opaque_graph_count as i64), rows as i64, "{file}");
                let sum = line["graph_trace_sum_ns"].as_i64().unwrap();
                assert_eq!(graphs(|d| d.opaque_graph_sum_ns), sum, "{file}");
            }
            assert_eq!(analysis.ledger.sum_ns, analysis.ledger.period_sum_ns, "{file}");
        }
    }
}
