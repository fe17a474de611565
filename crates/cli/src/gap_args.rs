//! The command line of `steptally gap`.

use std::path::PathBuf;

use clap::Args;

use crate::args::{DocumentFormat, EXIT_CODES, ReadingArgs, input_path, parse_time};
use crate::roofline_args::BoundArgs;
use crate::step_args::StepArgs;

const EXAMPLES: &str = "\
Examples:
  steptally gap capture/ --model Qwen3-30B-A3B/
  steptally gap decode.trace.json.gz --model config.json --context 512 --baseline-tpot 1.14ms
  steptally gap decode.trace.json.gz --model config.json --measured measured.json
  steptally gap traces/ --model GLM-5-NVFP4/ --gpu 'RTX PRO 6000' --tp 8 --format markdown
  steptally gap --json-schema";

/// Tell what lies between a captured step and the least that it could take
///
/// Starts at the bound of `steptally roofline` and adds what the trace has on top: kernels that take longer,
/// communication, copies, idle time by cause, up to the captured step, to the nanosecond. With the TPOT
/// measured without a profiler, from the capture's manifest or --baseline-tpot, idle time is corrected to
/// the true step. GPU, ranks, batch size and context are the capture's unless stated.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct GapArgs {
    /// A trace, or a folder with the traces of one run; - reads standard input
    #[arg(required_unless_present = "json_schema", value_parser = input_path())]
    pub(crate) path: Option<PathBuf>,

    /// The model's config.json, or the folder that has it (and hf_quant_config.json, if any)
    /// [default: the path in the manifest, when it is on this machine]
    #[arg(long, value_name = "CONFIG")]
    pub(crate) model: Option<PathBuf>,

    /// Which GPU, such as H200 or 'RTX PRO 6000' [default: the trace's]
    #[arg(long, value_name = "NAME")]
    pub(crate) gpu: Option<String>,

    /// TPOT without a profiler, such as 1.14ms [default: the manifest's]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) baseline_tpot: Option<f64>,

    #[command(flatten)]
    pub(crate) bound: BoundArgs,

    #[command(flatten)]
    pub(crate) of_steps: StepArgs,

    /// How many operations measured alone to list in text
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,

    /// How to write it
    #[arg(long, value_enum, default_value_t = DocumentFormat::Text)]
    pub(crate) format: DocumentFormat,

    /// Print the JSON Schema of the result, and nothing else
    #[arg(long, conflicts_with = "path")]
    pub(crate) json_schema: bool,

    #[command(flatten)]
    pub(crate) reading: ReadingArgs,

    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
