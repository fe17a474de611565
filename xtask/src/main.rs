//! `cargo xtask`: whole pipelines of this workspace, one file each.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its output is for people")]

mod bench;
mod ci;
mod generate;
mod profile;
mod rules;
mod run;
mod tidy;

use clap::{Parser, Subcommand};

/// Whole pipelines of this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything that must pass: format, lints, tests, tidy, generated docs, API docs, MSRV.
    Ci,
    /// Checks the shape of the workspace: crate edges, file sizes, module docs, inherited settings, rules.
    Tidy,
    /// Writes the generated parts of docs/reference.
    Gen {
        /// Writes nothing; fails when a file differs from what would be written.
        #[arg(long)]
        check: bool,
    },
    /// Measures `steptally analyze` against `gzip -dc` on a large trace made from a fixture.
    Bench(bench::Args),
    /// Profiles a tensor-parallel deployment: doctor, baseline, capture of all ranks, report, gap, in one folder.
    Profile(profile::Args),
    /// Runs one command and prints its CPU time, wall time and peak memory (used by `bench`).
    #[command(hide = true)]
    Measure {
        /// The command and its arguments.
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    let args = Args::parse();
    let passed = match args.task {
        Task::Ci => ci::run()?,
        Task::Tidy => tidy::run()?,
        Task::Gen { check } => generate::run(check)?,
        Task::Bench(args) => bench::run(&args)?,
        Task::Profile(args) => profile::run(&args)?,
        Task::Measure { command } => bench::measure::run_and_print(&command)?,
    };
    Ok(std::process::ExitCode::from(u8::from(!passed)))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Args::command().debug_assert();
    }
}
