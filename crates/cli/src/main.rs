//! `steptally`: every nanosecond of an LLM decode step, accounted for.

mod args;
mod bench_args;
mod bound;
mod capture_args;
mod commands;
mod diff_args;
mod failure;
mod gap_args;
mod input;
mod output;
mod progress;
mod roofline_args;
mod step_args;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use failure::{Code, Failure};

fn main() -> ExitCode {
    let outcome = match args::Cli::try_parse() {
        Ok(cli) => commands::run(cli.command),
        // A request for help or the version is an "error" to clap, with exit code 0.
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            Ok(Code::Ok)
        }
        Err(error) => {
            let _ = error.print();
            Ok(Code::Usage)
        }
    };
    outcome.unwrap_or_else(Failure::report).into()
}
