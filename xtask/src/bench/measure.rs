//! CPU time, wall time and peak memory of one command.

use std::fmt;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};

/// What one run of a command cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    /// User and system CPU time, in seconds.
    pub(crate) cpu_s: f64,
    /// Start to end, in seconds.
    pub(crate) wall_s: f64,
    /// Peak resident memory, in bytes.
    pub(crate) peak_bytes: f64,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.cpu_s, self.wall_s, self.peak_bytes)
    }
}

impl FromStr for Cost {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Self> {
        let numbers: Vec<f64> = text
            .split_whitespace()
            .map(str::parse)
            .collect::<std::result::Result<_, _>>()
            .with_context(|| format!("not a measurement: {text:?}"))?;
        let [cpu_s, wall_s, peak_bytes] = numbers[..] else {
            bail!("not a measurement: {text:?}");
        };
        Ok(Self { cpu_s, wall_s, peak_bytes })
    }
}

/// Runs `command` in a process of its own that does nothing but wait for it, so that what the
/// system accounts to that process's children is the cost of this command alone.
pub(crate) fn measure(command: &[&str]) -> Result<Cost> {
    let this = std::env::current_exe().context("this program's own path")?;
    crate::run::output(Command::new(this).arg("measure").arg("--").args(command))?.parse()
}

/// The other side of [`measure`]: runs the command, its stdout thrown away, and prints the cost.
pub(crate) fn run_and_print(command: &[String]) -> Result<bool> {
    let [program, args @ ..] = command else { bail!("no command") };
    let start = Instant::now();
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    let wall_s = start.elapsed().as_secs_f64();
    if !output.status.success() {
        bail!("{program}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")?;
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    // Linux counts in KiB, macOS in bytes.
    let unit = if cfg!(target_os = "macos") { 1.0 } else { 1024.0 };
    let cost = Cost {
        cpu_s: seconds(usage.user_time()) + seconds(usage.system_time()),
        wall_s,
        peak_bytes: usage.max_rss() as f64 * unit,
    };
    println!("{cost}");
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_survives_its_text() {
        let cost = Cost { cpu_s: 1.25, wall_s: 0.5, peak_bytes: 3e8 };
        assert_eq!(cost.to_string().parse::<Cost>().unwrap(), cost);
        let error = "1 2".parse::<Cost>().unwrap_err().to_string();
        assert_eq!(error, "not a measurement: \"1 2\"");
    }
}
