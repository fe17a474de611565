//! What the torch hook costs a step while it waits.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::{output, root};

const SCRIPT: &str = include_str!("hook.py");

/// More than this for a call, in nanoseconds, and an idle hook would be seen in a step of 1 ms.
const LIMIT_NS: f64 = 5_000.0;

/// Measures in Python; true when the limit holds, or when there is no Python.
pub(crate) fn run(runs: usize) -> Result<bool> {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("SKIPPED: the hook's cost: there is no python3");
        return Ok(true);
    }
    let hook: PathBuf = root().join("crates/capture/python");
    let mut command = Command::new("python3");
    command.arg("-c").arg(SCRIPT).arg(&hook).arg(runs.to_string());
    let text = output(&mut command)?;
    let mut added = Vec::new();
    for line in text.lines() {
        let (with, without) = line.split_once(' ').context("not a measurement")?;
        added.push(with.parse::<f64>()? - without.parse::<f64>()?);
    }
    added.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (added.first(), added.last()) else {
        anyhow::bail!("the hook's bench printed nothing")
    };
    let median = added[added.len() / 2];
    let passed = median <= LIMIT_NS;
    println!(
        "torch hook, idle: {median:.0} ns a call ({least:.0} to {most:.0}, {} rounds), {:.3} % of a step of 1 ms; \
         limit {LIMIT_NS:.0} ns: {}",
        added.len(),
        median / 1e6 * 100.0,
        if passed { "holds" } else { "EXCEEDED" }
    );
    Ok(passed)
}
