//! The command line of `steptally diff`.

use std::path::PathBuf;

use clap::Args;
use steptally_analyze::diff::Gate;

use crate::args::{DocumentFormat, EXIT_CODES, ReadingArgs, parse_time};
use crate::step_args::StepArgs;

const EXAMPLES: &str = "\
Gates: MEASURE>LIMIT or MEASURE<LIMIT (also >= and <=); the exit code is 1 when any holds
  MEASURE  period, gpu_busy (medians, profiled), tpot (median, unprofiled), or an account of the
           ledger (mean per step): copy.cast; a group is the sum of its accounts: copy, idle
  LIMIT    a time of B: 200us; with a sign, a change from A to B: +3%, -10%, +50us

Examples:
  steptally diff before.trace.json.gz after.trace.json.gz
  steptally diff main.json traces/ --fail-if 'period>+3%' --fail-if 'copy.cast>200us'
  steptally diff a/ b/ --tpot-a 3.01ms --tpot-b 1.45ms --format markdown
  steptally diff --json-schema";

/// Tell what changed from one capture to another, and whether a step takes longer
///
/// A and B are traces, folders with one run's traces, or saved reports (`steptally analyze --format json`).
/// The TPOT measured without a profiler decides where both sides have one, from their capture's manifest or
/// from --tpot-a and --tpot-b; otherwise the profiled times, as far as the profiler lets them tell.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct DiffArgs {
    /// Before: a trace, a folder, or a saved report
    #[arg(required_unless_present = "json_schema")]
    pub(crate) a: Option<PathBuf>,

    /// After
    #[arg(required_unless_present = "json_schema")]
    pub(crate) b: Option<PathBuf>,

    /// How to write the diff
    #[arg(long, value_enum, default_value_t = DocumentFormat::Text)]
    pub(crate) format: DocumentFormat,

    /// Print the JSON Schema of the diff, and nothing else
    #[arg(long, conflicts_with_all = ["a", "b"])]
    pub(crate) json_schema: bool,

    /// Fail (exit code 1) when this holds; can be given several times
    #[arg(long, value_name = "GATE", value_parser = parse_gate)]
    pub(crate) fail_if: Vec<Gate>,

    /// TPOT of A without a profiler, such as 3.01ms
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) tpot_a: Option<f64>,

    /// TPOT of B without a profiler
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) tpot_b: Option<f64>,

    /// Give a verdict also when the two are not comparable
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) of_steps: StepArgs,

    /// How many accounts and kernels to list in text and Markdown
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,

    #[command(flatten)]
    pub(crate) reading: ReadingArgs,

    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

fn parse_gate(text: &str) -> Result<Gate, String> {
    text.parse().map_err(|error: steptally_analyze::diff::GateError| {
        format!("{error}\nallowed: {}", error.hint())
    })
}
