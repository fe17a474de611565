//! `cargo xtask bench`: what `steptally analyze` costs, against other programs on the same machine.

mod hook;
pub(crate) mod measure;
mod nsys;
mod ranks;
mod rounds;
mod torch;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::run::{cargo, output, target_directory};

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measures one part only.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// How often each command is run; medians are printed.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Uses the traces of an earlier run.
    #[arg(long)]
    reuse: bool,
    /// Succeeds also when a limit is exceeded.
    #[arg(long)]
    report_only: bool,
    #[command(flatten)]
    torch: torch::TorchArgs,
    #[command(flatten)]
    nsys: nsys::NsysArgs,
    #[command(flatten)]
    ranks: ranks::RanksArgs,
}

/// What can be measured by itself.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// torch.profiler JSON.
    Torch,
    /// nsys SQLite.
    Nsys,
    /// Eight ranks of torch.profiler JSON, synthetic; only when asked for.
    Ranks,
    /// The torch hook while it waits.
    Hook,
}

/// What all parts use.
struct Bench {
    /// The program.
    steptally: String,
    /// Where cargo puts release builds.
    release: PathBuf,
    /// Where generated traces go.
    folder: PathBuf,
    /// What to put before a command so that it has two cores.
    pin: Vec<&'static str>,
    runs: usize,
    reuse: bool,
}

impl Bench {
    /// Builds the program that makes traces; gives its path.
    fn make_trace(&self) -> Result<PathBuf> {
        println!("building make_trace (release)");
        let package = ["build", "--release", "--locked", "--package", "steptally-testkit"];
        output(cargo(&package).args(["--example", "make_trace"]))?;
        Ok(self.release.join("examples/make_trace"))
    }
}

/// Makes the traces, measures, prints. True when every limit holds or only a report was asked for.
pub(crate) fn run(args: &Args) -> Result<bool> {
    if args.runs == 0 {
        bail!("--runs must be at least 1");
    }
    if args.only == Some(Part::Hook) {
        return Ok(hook::run(args.runs)? || args.report_only);
    }
    let target = target_directory()?;
    let folder = target.join("bench");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    println!("building steptally (release)");
    output(&mut cargo(&["build", "--release", "--locked", "--package", "steptally"]))?;
    let release = target.join("release");
    let bench = Bench {
        steptally: release.join("steptally").display().to_string(),
        release,
        folder,
        pin: rounds::pin_to_two_cores(),
        runs: args.runs,
        reuse: args.reuse,
    };
    let passed = match args.only {
        Some(Part::Torch) => torch::run(&args.torch, &bench)?,
        Some(Part::Nsys) => nsys::run(&args.nsys, &bench)?,
        Some(Part::Ranks) => ranks::run(&args.ranks, &bench)?,
        Some(Part::Hook) | None => {
            torch::run(&args.torch, &bench)?
                & nsys::run(&args.nsys, &bench)?
                & hook::run(args.runs)?
        }
    };
    Ok(passed || args.report_only)
}
