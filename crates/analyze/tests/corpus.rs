//! Findings on every trace of the shared folder: stable, borne out by the events, and worth no more
//! than a step.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // in the tests' own functions

use std::path::{Path, PathBuf};

use steptally_analyze::results::{Analysis, Finding, LedgerScope};
use steptally_analyze::{Config, analyze};
use steptally_import::{ImportOptions, import_path};
use steptally_trace_model::{CopyKind, Trace};

/// The folder with traces, or `None` (said aloud).
fn shared() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("STEPTALLY_SHARED").map_or(beside, PathBuf::from);
    if folder.join("traces/truth.jsonl").exists() {
        return Some(folder);
    }
    eprintln!("SKIPPED: no traces in {}", folder.display());
    None
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// The traces of a file; empty when there are none (which reading has tests for).
fn read(path: &Path, threads: usize) -> Vec<Trace> {
    let options = ImportOptions { threads: Some(threads), ..ImportOptions::default() };
    import_path(path, &options).map_or(Vec::new(), |import| import.traces)
}

#[test]
fn findings_of_every_trace_are_stable_and_borne_out_by_its_events() {
    let Some(shared) = shared() else { return };
    let mut paths = Vec::new();
    for folder in ["traces", "captures"] {
        files(&shared.join(folder), &mut paths);
    }
    paths.sort();
    let (mut traces_read, mut fired) = (0, std::collections::BTreeMap::new());
    for path in &paths {
        let traces = read(path, 1);
        traces_read += usize::from(!traces.is_empty());
        let analysis = analyze(&traces, &Config::default());
        let again = analyze(&read(path, 3), &Config::default());
        assert_eq!(analysis.findings, again.findings, "{}", path.display());
        for finding in &analysis.findings.findings {
            *fired.entry(finding.code.clone()).or_insert(0) += 1;
            let place = format!("{}: {finding:?}", path.display());
            assert!(is_borne_out(finding, &analysis, &traces), "no evidence: {place}");
            check_saving(finding, &analysis, &place);
        }
    }
    // 33 files with reference values, and the project's captures.
    assert!(traces_read >= 33 + 20, "{traces_read}");
    // A check of nothing would pass too.
    assert!(fired.len() >= 8, "{fired:?}");
}

/// Both figures are of one step: no more can be saved than is there.
#[track_caller]
fn check_saving(finding: &Finding, analysis: &Analysis, place: &str) {
    let saving = &finding.saving;
    let gpu: f64 = analysis.kernels.iter().map(|kernel| kernel.ns_per_step).sum();
    assert!(saving.gpu_ns_per_step >= 0.0 && saving.gpu_ns_per_step <= gpu + 1.0, "{place}");
    if let (Some(before), Some(after)) = (saving.period_before_ns, saving.period_after_ns) {
        assert!(after >= 0.0 && after <= before, "{place}");
        let period = analysis.ledger.period_sum_ns as f64 / analysis.ledger.n as f64;
        assert!((before - period).abs() <= 1.0, "{place}: mean period {period}");
    }
}

/// Whether the trace has what the rule is about, told from its tables and names alone.
fn is_borne_out(finding: &Finding, analysis: &Analysis, traces: &[Trace]) -> bool {
    let has = |words: &[&str], names: &dyn Fn(&Trace) -> Vec<String>| {
        traces.iter().flat_map(names).any(|name| {
            let name = name.to_lowercase();
            words.iter().any(|word| name.contains(word))
        })
    };
    let text = |trace: &Trace, ids: &[steptally_trace_model::StringId]| -> Vec<String> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().map(|id| trace.text(id).to_owned()).collect()
    };
    let kernels = |trace: &Trace| text(trace, &trace.kernels.name);
    let calls = |trace: &Trace| text(trace, &trace.api_calls.name);
    let host =
        |trace: &Trace| [text(trace, &trace.frames.name), text(trace, &trace.ranges.name)].concat();
    let in_steps = analysis.ledger.scope == LedgerScope::Steps
        && analysis.ledger.n > 0
        && analysis.quality.refused.is_none();
    let idle = |ledger: &str| analysis.ledger.accounts.iter().any(|a| a.account == ledger);
    let gemm = ["gemm", "nvjet", "cutlass", "xmma", "matmul", "cublas", "fused_moe"];
    let all_reduce = ["nccl", "allreduce", "all_reduce", "cross_device", "multimem"];
    match finding.code.as_str() {
        "CAP001" => {
            let no_load = analysis.quality.refused.as_ref().is_some_and(|r| r.code == "no_load");
            no_load
                || has(&["begincapture"], &calls)
                || has(&["_capture_graph", "_dummy_run"], &host)
        }
        _ if !in_steps => false,
        "ALLOC001" => has(&["malloc", "free", "memalloc", "memcreate"], &calls),
        "CAST001" | "KV001" => has(&["copy", "cast", "elementwise", "triton", "memcpy"], &kernels),
        "COMM001" => has(&all_reduce, &kernels),
        "COMM002" => traces.len() > 1 && has(&all_reduce, &kernels),
        "COMM003" => has(&["alltoall", "all_to_all", "sendrecv", "dispatch", "combine"], &kernels),
        "FUSE001" | "FUSE002" => traces.iter().any(|trace| trace.kernels.len() >= 100),
        "GC001" => has(&["gc", "garbage"], &host),
        "GEMM001" => has(&gemm, &kernels) && traces.iter().any(|t| !t.meta.devices.is_empty()),
        "GEMM002" => has(&["fp8", "e4m3", "e5m2", "fp4", "e2m1"], &kernels),
        "GRAPH001" => has(&["graphlaunch"], &calls),
        "HOST001" => has(&["launchkernel"], &calls) && idle("idle.host_launched_late"),
        "HOST002" => has(&["synchronize", "memcpy"], &calls) && idle("idle.host_blocked"),
        "HOST003" => idle("idle.between_steps"),
        "JIT001" => analysis.ledger.n + analysis.steps.outlier_count >= 10,
        "MEM001" => traces.iter().any(|trace| {
            let host = [CopyKind::HostToDevice, CopyKind::DeviceToHost];
            trace.copies.kind.iter().any(|kind| host.contains(kind))
        }),
        "MOE001" => traces.len() > 1 && has(&["moe", "expert", "grouped"], &kernels),
        "PROF001" => {
            has(&["graphlaunch"], &calls) || traces.iter().any(|t| !t.overheads.is_empty())
        }
        other => unreachable!("say here what {other} needs"),
    }
}
