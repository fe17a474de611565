//! The subcommands, one file each.

mod analyze;
mod demo;
mod doctor;
mod inspect;
mod profile;
mod redact;
mod serve_replay;

use crate::args::Command;
use crate::failure::{Code, Failure};

/// Runs a subcommand to its exit code.
pub(crate) fn run(command: Command) -> Result<Code, Failure> {
    match command {
        Command::Analyze(args) => analyze::run(args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Profile(args) => profile::run(args),
        Command::Demo(args) => demo::run(args),
        Command::ServeReplay(args) => serve_replay::run(&args),
        Command::Redact(args) => redact::run(&args),
    }
}
