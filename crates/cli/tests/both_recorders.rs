//! One run, once as torch.profiler would record it and once as nsys would: the report is the same,
//! to the nanosecond.

#![allow(clippy::unwrap_used)] // in the tests' own functions

use std::collections::BTreeMap;
use std::path::Path;

use steptally_analyze::results::{Analysis, DeviceUse};
use steptally_analyze::{Config, analyze};
use steptally_import::{Import, import_path};
use steptally_testkit::{
    DecodeMode, SyntheticRun, decode_run, write_nsys_sqlite, write_torch_json,
};

/// Kernels by (trace, name, start, duration, grid, stream), with how often each occurs.
fn kernels(import: &Import) -> BTreeMap<String, usize> {
    let mut kernels = BTreeMap::new();
    for (index, trace) in import.traces.iter().enumerate() {
        for row in trace.kernels.rows() {
            let stream = trace.streams[row.stream];
            let key = format!(
                "{index} {} {} {} {:?} {:?} {:?}",
                trace.text(row.name),
                row.start,
                row.duration,
                trace.configs[row.config].grid,
                stream.device,
                stream.stream
            );
            *kernels.entry(key).or_default() += 1;
        }
    }
    kernels
}

/// ns by account, summed over the selected steps of all ranks.
fn accounts(analysis: &Analysis) -> BTreeMap<String, String> {
    let accounts = analysis.ledger.accounts.iter();
    accounts
        .map(|account| (account.account.clone(), format!("{:?}", account.ns_per_step)))
        .collect()
}

/// Both forms of a run, imported.
fn both(run: &SyntheticRun, folder: &Path) -> [Import; 2] {
    let (torch, nsys) = (folder.join("torch"), folder.join("run.sqlite"));
    std::fs::create_dir(&torch).unwrap();
    for (rank, trace) in run.traces.iter().enumerate() {
        let path = torch.join(format!("run-TP-{rank}.trace.json"));
        std::fs::write(path, write_torch_json(trace)).unwrap();
    }
    write_nsys_sqlite(&run.traces, &nsys);
    [torch, nsys].map(|path| import_path(&path, &Default::default()).unwrap())
}

fn check(mode: DecodeMode, ranks_made: u32, steps: u32, layers: u32, seed: u64) {
    let run = decode_run(mode, ranks_made, steps, layers, seed);
    let folder = tempfile::tempdir().unwrap();
    let imports = both(&run, folder.path());
    let [torch, nsys] = imports.each_ref().map(kernels);
    let made: usize = run.steps.iter().flatten().map(|step| step.kernels).sum();
    assert_eq!(torch.values().sum::<usize>(), made);
    assert_eq!(torch, nsys);

    let [torch, nsys] = imports.map(|import| analyze(&import.traces, &Config::default()));
    assert!(torch.ledger.period_sum_ns > 0);
    assert_eq!(torch.ledger.period_sum_ns, nsys.ledger.period_sum_ns);
    assert_eq!(torch.ledger.sum_ns, nsys.ledger.sum_ns);
    assert_eq!(accounts(&torch), accounts(&nsys));
    let devices = |analysis: &Analysis| {
        let devices = analysis.devices.iter().cloned();
        // nsys has the rank from the title of the process, which states none for a single rank.
        devices.map(|device| DeviceUse { rank: None, ..device }).collect::<Vec<_>>()
    };
    assert_eq!(devices(&torch), devices(&nsys));
    let ranks: Vec<_> = nsys.ranks.iter().map(|rank| rank.rank).collect();
    let expected: Vec<_> = (0..ranks_made).map(|rank| (ranks_made > 1).then_some(rank)).collect();
    assert_eq!(ranks, expected);
}

#[test]
fn eager_decode() {
    check(DecodeMode::Eager, 1, 12, 4, 7);
}

#[test]
fn graph_decode() {
    check(DecodeMode::Graph, 1, 12, 4, 8);
}

#[test]
fn two_ranks() {
    check(DecodeMode::Eager, 2, 12, 3, 9);
    check(DecodeMode::Graph, 2, 12, 3, 10);
}
