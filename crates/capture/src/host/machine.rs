//! GPUs, driver, nsys, and what the kernel lets a user do.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use steptally_trace_model::manifest::CapturedGpu;

use super::HostSource;
use crate::place;

/// A machine.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Version of NVIDIA's driver; `null`: it is not loaded.
    pub driver: Option<String>,
    /// GPUs by the driver.
    pub gpus: Vec<HostGpu>,
    /// GPUs by `nvidia-smi`, with their clocks now; none when it is not there.
    pub clocks: Vec<CapturedGpu>,
    /// Nsight Systems; `null`: it is not found.
    pub nsys: Option<Nsys>,
    /// `kernel.yama.ptrace_scope`: 0 lets a user look into any process of theirs, from 1 on only into
    /// its children. `null`: the kernel has no such limit.
    pub ptrace_scope: Option<i64>,
    /// `kernel.perf_event_paranoid`: up to 2 a user may sample their own processes.
    pub perf_event_paranoid: Option<i64>,
    /// Whether this user may read the GPUs' hardware counters.
    pub gpu_counters: GpuCounters,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostGpu {
    /// PCI address.
    pub bus: String,
    /// Product name.
    pub name: String,
}

/// Nsight Systems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nsys {
    /// Where it is.
    pub path: PathBuf,
    /// Its version; `null`: it does not say.
    pub version: Option<String>,
    /// Options of `nsys profile` that a capture of a server needs, and that it does not have: it is too
    /// old.
    pub missing_options: Vec<String>,
}

/// Whether the GPUs' hardware counters can be read (`--gpu-metrics-devices`, Nsight Compute).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuCounters {
    /// Every user may.
    Everyone,
    /// Only administrators may, and this user is one (`CAP_SYS_ADMIN`).
    AsAdministrator,
    /// Only administrators may, and this user is none.
    Refused,
    /// There is no driver, or it does not say.
    Unknown,
}

/// Options of `nsys profile` that a capture of a server needs.
const NEEDED: [&str; 4] =
    ["--capture-range", "--cuda-graph-trace", "--session-new", "--trace-fork-before-exec"];

/// A program that is asked for its version answers within this.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// `CAP_SYS_ADMIN` in a mask of capabilities.
const SYS_ADMIN: u64 = 1 << 21;

pub(crate) async fn look(source: &HostSource) -> Machine {
    let proc = source.root.join("proc");
    let nvidia = proc.join("driver/nvidia");
    let clocks = match program("nvidia-smi", source) {
        Some(path) => place::gpus_by(&path).await,
        None => Vec::new(),
    };
    let number = |path: &str| fs::read_to_string(proc.join(path)).ok()?.trim().parse().ok();
    Machine {
        driver: driver(&nvidia),
        gpus: gpus(&nvidia),
        clocks,
        nsys: nsys(source).await,
        ptrace_scope: number("sys/kernel/yama/ptrace_scope"),
        perf_event_paranoid: number("sys/kernel/perf_event_paranoid"),
        gpu_counters: gpu_counters(&proc),
    }
}

/// The number in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  ..`.
fn driver(nvidia: &Path) -> Option<String> {
    let text = fs::read_to_string(nvidia.join("version")).ok()?;
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    line.split_whitespace()
        .find(|word| {
            word.contains('.') && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        })
        .map(str::to_owned)
}

fn gpus(nvidia: &Path) -> Vec<HostGpu> {
    let entries = fs::read_dir(nvidia.join("gpus")).into_iter().flatten();
    let mut gpus: Vec<HostGpu> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let text = fs::read_to_string(entry.path().join("information")).ok()?;
            let name = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
            Some(HostGpu {
                bus: entry.file_name().into_string().ok()?,
                name: name.trim().to_owned(),
            })
        })
        .collect();
    gpus.sort_by(|a, b| a.bus.cmp(&b.bus));
    gpus
}

fn gpu_counters(proc: &Path) -> GpuCounters {
    let Ok(params) = fs::read_to_string(proc.join("driver/nvidia/params")) else {
        return GpuCounters::Unknown;
    };
    let only = params.lines().find_map(|line| line.strip_prefix("RmProfilingAdminOnly:"));
    match only.map(str::trim) {
        Some("0") => GpuCounters::Everyone,
        Some(_) => match capabilities(proc) {
            Some(mask) if mask & SYS_ADMIN != 0 => GpuCounters::AsAdministrator,
            Some(_) => GpuCounters::Refused,
            None => GpuCounters::Unknown,
        },
        None => GpuCounters::Unknown,
    }
}

fn capabilities(proc: &Path) -> Option<u64> {
    let status = fs::read_to_string(proc.join("self/status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

fn program(name: &str, source: &HostSource) -> Option<PathBuf> {
    source.path.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Where installers put nsys when it is not in the `PATH`: the last by name is the newest.
fn installed_nsys(root: &Path) -> Option<PathBuf> {
    let cuda = root.join("usr/local/cuda/bin/nsys");
    let versions = fs::read_dir(root.join("opt/nvidia/nsight-systems")).into_iter().flatten();
    let mut found: Vec<PathBuf> = versions
        .filter_map(|entry| Some(entry.ok()?.path().join("bin/nsys")))
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found.pop().or_else(|| cuda.is_file().then_some(cuda))
}

async fn nsys(source: &HostSource) -> Option<Nsys> {
    let path = program("nsys", source).or_else(|| installed_nsys(&source.root))?;
    let version = answer(&path, &["--version"]).await;
    let help = answer(&path, &["profile", "--help"]).await;
    Some(Nsys {
        version: version.as_deref().and_then(nsys_version),
        missing_options: help.map_or_else(Vec::new, |help| missing(&help)),
        path,
    })
}

/// `2023.4.4.54` of `NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0`.
fn nsys_version(text: &str) -> Option<String> {
    let rest = text.split("version ").nth(1)?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    (end > 0).then(|| rest[..end].to_owned())
}

fn missing(help: &str) -> Vec<String> {
    let is_there = |option: &str| {
        help.match_indices(option).any(|(at, _)| {
            // Not the beginning of a longer one.
            !help[at + option.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-')
        })
    };
    NEEDED.iter().filter(|option| !is_there(option)).map(ToString::to_string).collect()
}

async fn answer(program: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(std::process::Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(ANSWER_LIMIT, command.output()).await.ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_options_of_nsys() {
        let text = "NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0\n";
        assert_eq!(nsys_version(text).as_deref(), Some("2023.4.4.54"));
        assert_eq!(nsys_version("nsys: not found"), None);
        let help = "\t-c, --capture-range=\n\t--cuda-graph-trace=\n\t--session-new=\n";
        assert_eq!(missing(help), ["--trace-fork-before-exec"]);
        assert_eq!(missing("\t--capture-range-end=\n").len(), 4);
    }
}
