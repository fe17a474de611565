//! Against nsys itself, where there is one: on PATH, or in target/nsys (see .ci/fetch-nsys).

#![allow(clippy::unwrap_used, clippy::panic)] // in the tests' own functions

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use steptally_analyze::{Config, analyze};
use steptally_import::import_path;
use steptally_trace_model::{RangeKind, Trace};

const TOKEN: &str = "hf_SECRETtoken0123456789";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder that nsys is in, or `None` (said aloud).
fn nsys_folder() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([root().join("target/nsys/bin")]);
    let found = folders.into_iter().find(|folder| folder.join("nsys").is_file());
    if found.is_none() {
        skipped("no nsys on PATH or in target/nsys (.ci/fetch-nsys gets one)");
    }
    found
}

/// Says it where `cargo test` does not hide it.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// Runs a program, which must succeed.
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = [output.stdout.clone(), output.stderr.clone()].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said));
    output
}

fn steptally(nsys: &Path, args: &[&str]) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [nsys.to_owned()].into_iter().chain(std::env::split_paths(&path));
    let path: OsString = std::env::join_paths(folders).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_steptally"));
    command.args(args).env("PATH", path);
    command
}

/// Compiles `spawns.c` with the NVTX headers that nsys brings, and records it.
fn capture(nsys: &Path, folder: &Path) -> PathBuf {
    let real = nsys.join("nsys").canonicalize().unwrap();
    let include = real
        .ancestors()
        .map(|ancestor| ancestor.join("target-linux-x64/nvtx/include"))
        .find(|include| include.is_dir())
        .unwrap_or_else(|| panic!("no NVTX headers near {}", real.display()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nsys/spawns.c");
    let program = folder.join("spawns");
    run(Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Werror", "-I"])
        .args([include.as_os_str(), source.as_os_str(), "-o".as_ref(), program.as_os_str()])
        .arg("-ldl"));
    let report = folder.join("tree.nsys-rep");
    run(Command::new(nsys.join("nsys"))
        .args(["profile", "-t", "nvtx", "-s", "none", "--cpuctxsw=none", "-o"])
        .args([&report, &program])
        .env("HF_TOKEN", TOKEN));
    assert!(report.is_file(), "nsys wrote no report");
    report
}

/// How often each (process, domain, name) occurs; processes as 0, 1, .. in order of their first range.
fn ranges(trace: &Trace) -> BTreeMap<(usize, String, String), usize> {
    let mut processes = Vec::new();
    let mut counts = BTreeMap::new();
    for row in trace.ranges.rows() {
        let process = trace.threads[row.thread].process;
        let known = processes.iter().position(|&other| other == process);
        let number = known.unwrap_or_else(|| {
            processes.push(process);
            processes.len() - 1
        });
        let text = |id| trace.text(id).to_owned();
        *counts.entry((number, text(row.domain), text(row.name))).or_default() += 1;
    }
    counts
}

#[test]
fn a_capture_of_a_tree_of_processes_is_read_back() {
    let Some(nsys) = nsys_folder() else { return };
    let folder = tempfile::tempdir().unwrap();
    let report = capture(&nsys, folder.path());

    // The report itself, which steptally has nsys export.
    let args = ["inspect", report.to_str().unwrap(), "--format", "json"];
    let output = run(&mut steptally(&nsys, &args));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The parent's range, and of each worker a mark, 5 steps and 15 layers.
    assert_eq!(json["traces"][0]["counts"]["ranges"], 1 + 2 * (1 + 5 + 15));
    assert_eq!(json["traces"].as_array().unwrap().len(), 1);
    let remarks = json["traces"][0]["diagnostics"].to_string();
    assert!(remarks.contains("GPU not traced"), "{remarks}");

    // The export.
    let sqlite = folder.path().join("tree.sqlite");
    run(Command::new(nsys.join("nsys"))
        .args(["export", "--type", "sqlite", "--quiet", "true", "-o"])
        .args([&sqlite, &report]));
    let import = import_path(&sqlite, &Default::default()).unwrap();
    let [trace] = &import.traces[..] else { panic!("{} traces", import.traces.len()) };
    let counts = ranges(trace);
    let count = |process, domain: &str, name: &str| {
        counts.get(&(process, domain.to_owned(), name.to_owned())).copied().unwrap_or(0)
    };
    assert_eq!(count(0, "", "start workers"), 1, "{counts:?}");
    // Which worker is first is up to the system.
    for rank in ["rank 0", "rank 1"] {
        let process = [1, 2].into_iter().find(|&process| count(process, rank, "step") > 0);
        let process = process.unwrap_or_else(|| panic!("no process of {rank}: {counts:?}"));
        assert_eq!(count(process, rank, "step"), 5);
        assert_eq!(count(process, rank, "layer"), 15);
        assert_eq!(count(process, "", "ready"), 1);
    }
    assert_eq!(counts.len(), 1 + 2 * 3);
    let rows: Vec<_> = trace.ranges.rows().collect();
    for layer in rows.iter().filter(|row| trace.text(row.name) == "layer") {
        // usleep sleeps at least as long as asked.
        assert!(layer.duration.as_ns() >= 1_000_000 && layer.kind == RangeKind::NvtxPushPop);
        let around = rows.iter().filter(|row| {
            trace.text(row.name) == "step"
                && row.thread == layer.thread
                && row.start <= layer.start
                && layer.start + layer.duration <= row.start + row.duration
        });
        assert_eq!(around.count(), 1);
    }

    // nsys records the environment; the redacted copy is without it.
    let holds = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes())
    };
    assert!(holds(&sqlite));
    run(&mut steptally(&nsys, &["redact", sqlite.to_str().unwrap()]));
    let copy = folder.path().join("tree.redacted.sqlite");
    assert!(!holds(&copy));
    let copy = import_path(&copy, &Default::default()).unwrap();
    assert_eq!(ranges(&copy.traces[0]), counts);
}

/// Ranges with GPU work, work, and ns from first start to last end, by name.
type Projections = BTreeMap<String, (u64, u64, i64)>;

/// What NVIDIA's own report says.
fn reported(nsys: &Path, sqlite: &Path) -> Projections {
    let output = run(Command::new(nsys.join("nsys"))
        .args(["stats", "--quiet", "--report", "nvtx_gpu_proj_trace", "--format", "json"])
        .args(["--output", "-"])
        .arg(sqlite));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stdout));
    });
    let mut found = Projections::new();
    for row in rows.iter().filter(|row| row["Style"] != "") {
        let number = |column: &str| row[column].as_i64().unwrap();
        let sums = found.entry(row["Name"].as_str().unwrap().to_owned()).or_default();
        sums.0 += 1;
        sums.1 += number("NumGPUOps") as u64;
        sums.2 += number("Projected Duration (ns)");
    }
    found
}

#[test]
fn projections_equal_those_of_nsys_stats() {
    let Some(nsys) = nsys_folder() else { return };
    let folder = tempfile::tempdir().unwrap();
    for name in ["sglang-graph-by-node", "program-graph-by-node", "program-graph-whole"] {
        // A copy, since nsys may write beside what it reads.
        let sqlite = folder.path().join(format!("{name}.sqlite"));
        let bytes =
            std::fs::read(root().join("fixtures/nsys-h200").join(name).with_extension("sqlite"));
        std::fs::write(&sqlite, bytes.unwrap()).unwrap();
        let import = import_path(&sqlite, &Default::default()).unwrap();
        let mut ours = Projections::new();
        for range in analyze(&import.traces, &Config::default()).ranges {
            if range.projections > 0 {
                // nsys puts the domain in front.
                let text = match range.domain.as_str() {
                    "" => range.text.clone(),
                    domain => format!("{domain}:{}", range.text),
                };
                let sums = ours.entry(text).or_default();
                sums.0 += range.projections;
                // nsys counts the replay of a graph, here of 11 kernels, as one operation.
                let replays = range.text.starts_with("graph step ") && range.gpu_ops == 11;
                sums.1 += if replays { 1 } else { range.gpu_ops };
                sums.2 += range.projected_ns;
            }
        }
        assert_eq!(ours, reported(&nsys, &sqlite), "{name}");
        assert!(!ours.is_empty());
    }
}

#[test]
fn a_report_of_a_newer_nsys_is_refused_with_both_versions() {
    let Some(nsys) = nsys_folder() else { return };
    let beside = root().join("../shared");
    let shared = std::env::var_os("STEPTALLY_SHARED").map_or(beside, PathBuf::from);
    let report = shared.join("traces/NVIDIA__JAX-Toolbox/cuda-examples/pdl_2p2c.nsys-rep");
    let version = run(Command::new(nsys.join("nsys")).arg("--version")).stdout;
    let version = String::from_utf8_lossy(&version).into_owned();
    if !report.is_file() || !version.contains("version 2023.") {
        skipped(&format!("needs {} and an nsys of 2023, not {version}", report.display()));
        return;
    }
    let output = steptally(&nsys, &["inspect", report.to_str().unwrap()]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("version (2025.5.1") && stderr.contains("(2023."), "{stderr}");
    assert!(stderr.contains("hint: ") && stderr.contains("nsys 2025.5.1 or newer"), "{stderr}");
}
