//! The subcommands, one file each.

mod analyze;
mod bench;
mod demo;
mod diff;
mod doctor;
mod explain;
mod gap;
mod host;
mod inspect;
mod profile;
mod redact;
mod roofline;
mod serve_replay;

use crate::args::Command;
use crate::failure::{Code, Failure};

/// Runs a subcommand to its exit code.
pub(crate) fn run(command: Command) -> Result<Code, Failure> {
    match command {
        Command::Analyze(args) => analyze::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Redact(args) => redact::run(&args),
        Command::Roofline(args) => roofline::run(args),
        Command::Gap(args) => gap::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Profile(args) => profile::run(args),
        Command::Demo(args) => demo::run(args),
        Command::ServeReplay(args) => serve_replay::run(&args),
    }
}
