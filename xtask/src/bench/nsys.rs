//! nsys SQLite: `steptally analyze` against a bare scan of the tables, and against `nsys stats`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Bench;
use super::rounds::{Limit, judge};
use crate::run::{cargo, output, root};

/// The reports of nsys that `steptally analyze` stands in for.
const REPORTS: &str = "nvtx_gpu_proj_trace,cuda_gpu_kern_sum,cuda_api_sum";

/// What is measured.
#[derive(clap::Args)]
pub(crate) struct NsysArgs {
    /// How many kernels the generated nsys export has; API calls are twice as many.
    #[arg(long, default_value_t = 2_000_000)]
    kernels: usize,
}

/// Makes the export, measures, prints. True when every limit holds.
pub(super) fn run(args: &NsysArgs, bench: &Bench) -> Result<bool> {
    Ok(scan(args, bench)? & stats(bench)?)
}

/// A large export, against stepping over all its rows.
fn scan(args: &NsysArgs, bench: &Bench) -> Result<bool> {
    println!("building make_nsys (release)");
    let package = ["build", "--release", "--locked", "--package", "steptally-import"];
    output(cargo(&package).args(["--example", "make_nsys"]))?;
    let make = bench.release.join("examples/make_nsys").display().to_string();
    let path = bench.folder.join("big.sqlite");
    if !(bench.reuse && path.is_file()) {
        if path.exists() {
            std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
        output(Command::new(&make).arg(&path).arg(args.kernels.to_string()))?;
        let bytes = std::fs::metadata(&path)?.len();
        println!(
            "{}: {} kernels, {} API calls, {:.1} MB",
            path.display(),
            args.kernels,
            2 * args.kernels,
            bytes as f64 / 1e6
        );
    }
    let path = path.display().to_string();
    let [scan, analyze] = bench.measure([
        ("scan of big.sqlite", vec![&make, "--scan", &path]),
        ("steptally analyze big.sqlite", vec![&bench.steptally, "analyze", &path]),
    ])?;
    let limit = Limit::new("big.sqlite: wall / wall of a scan", analyze.wall_s / scan.wall_s, 1.5);
    Ok(judge(&[limit]))
}

/// The largest real export, against the reports of nsys.
fn stats(bench: &Bench) -> Result<bool> {
    let Some(largest) = largest_export() else {
        println!("SKIPPED: no nsys export in fixtures or ../shared/traces");
        return Ok(true);
    };
    // A copy, since nsys may write beside what it reads.
    let copy = bench.folder.join("largest.sqlite");
    std::fs::write(&copy, std::fs::read(&largest)?).with_context(|| copy.display().to_string())?;
    println!("largest.sqlite: {}", largest.display());
    let copy = copy.display().to_string();
    let ours =
        ("steptally analyze largest.sqlite", vec![bench.steptally.as_str(), "analyze", &copy]);
    let Some(nsys) = nsys() else {
        bench.measure([ours])?;
        println!("SKIPPED: no nsys on PATH or in target/nsys (.ci/fetch-nsys)");
        return Ok(true);
    };
    let nsys = nsys.display().to_string();
    let stats = vec![nsys.as_str(), "stats", "--quiet", "--report", REPORTS, &copy];
    let [ours, theirs] = bench.measure([ours, ("nsys stats largest.sqlite", stats)])?;
    let limit =
        Limit::new("largest.sqlite: wall / wall of nsys stats", ours.wall_s / theirs.wall_s, 0.1);
    Ok(judge(&[limit]))
}

/// nsys on PATH, else in target/nsys.
fn nsys() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([root().join("target/nsys/bin")]);
    folders.map(|folder| folder.join("nsys")).find(|program| program.is_file())
}

fn largest_export() -> Option<PathBuf> {
    let beside = root().join("../shared");
    let shared = std::env::var_os("STEPTALLY_SHARED").map_or(beside, PathBuf::from);
    let mut exports = Vec::new();
    for folder in [root().join("fixtures/nsys-h200"), shared.join("traces")] {
        find_exports(&folder, &mut exports);
    }
    exports.into_iter().max().map(|(_, path)| path)
}

/// Size and path of every export in a folder and below.
fn find_exports(folder: &Path, found: &mut Vec<(u64, PathBuf)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find_exports(&path, found);
        } else if path.extension() == Some(OsStr::new("sqlite")) {
            found.extend(entry.metadata().ok().map(|metadata| (metadata.len(), path)));
        }
    }
}
