//! The subcommands, one file each.

mod analyze;
mod inspect;
mod redact;

use crate::args::Command;
use crate::failure::{Code, Failure};

/// Runs a subcommand to its exit code.
pub(crate) fn run(command: Command) -> Result<Code, Failure> {
    match command {
        Command::Analyze(args) => analyze::run(args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Redact(args) => redact::run(&args),
    }
}
