//! The command line as typed.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use regex::Regex;
use steptally_analyze::Section;

use crate::bench_args::BenchArgs;
use crate::capture_args::{DemoArgs, DoctorArgs, ProfileArgs, ServeReplayArgs};
use crate::diff_args::DiffArgs;
use crate::gap_args::GapArgs;
use crate::roofline_args::RooflineArgs;
use crate::step_args::StepArgs;

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  ok
  1  a gate that was asked for failed
  2  the arguments make no sense, by themselves or for this input
  3  the input could not be read (or the output not written)
  4  capturing failed
  5  PARTIAL: there is output, but part of the input could not be read";

const EXAMPLES: &str = "\
Examples:
  steptally analyze decode.trace.json.gz             where a decode step's time goes
  steptally analyze traces/                          all ranks of a folder as one run
  steptally analyze decode.trace.json.gz --format json | jq .steps.period_ns
  steptally diff before.json.gz after.json.gz        what changed, and is a step longer?
  steptally gap decode.trace.json.gz --model DIR     how far is that from what the GPU allows?
  steptally inspect unknown-file                     what is this file?
  steptally demo                                     a whole capture, without a GPU
  steptally doctor --url http://127.0.0.1:30000      what can be captured there, and how?
  steptally profile --url http://127.0.0.1:30000     measure, capture, check, explain";

const ANALYZE_EXAMPLES: &str = "\
Examples:
  steptally analyze decode.trace.json.gz
  steptally analyze traces/ --kind extend --rank 0
  steptally analyze loop.json --step-pattern '^my_step' --steps 2..10
  steptally analyze decode.trace.json.gz --only findings,layers
  steptally analyze decode.trace.json.gz --format json -o report.json
  steptally analyze --json-schema";

/// Every nanosecond of an LLM decode step, accounted for.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Analyze(AnalyzeArgs),
    Diff(DiffArgs),
    Inspect(InspectArgs),
    Redact(RedactArgs),
    Explain(ExplainArgs),
    Roofline(RooflineArgs),
    Gap(GapArgs),
    Bench(BenchArgs),
    Doctor(DoctorArgs),
    Profile(ProfileArgs),
    Demo(DemoArgs),
    ServeReplay(ServeReplayArgs),
}

/// Tell where the time of a step went
///
/// Reads a torch.profiler trace (JSON; plain, gzip, zstd, zip or tar), an nsys SQLite export, or a
/// folder with one file per rank, finds the steps, and puts every nanosecond of them into one account.
#[derive(Debug, Args)]
#[command(after_help = format!("{ANALYZE_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct AnalyzeArgs {
    /// A trace, or a folder with the traces of one run; - reads standard input
    #[arg(required_unless_present = "json_schema", value_parser = input_path())]
    pub(crate) path: Option<PathBuf>,

    /// How to write the report
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,

    /// Print the JSON Schema of the report, and nothing else
    #[arg(long, conflicts_with = "path")]
    pub(crate) json_schema: bool,

    #[command(flatten)]
    pub(crate) of_steps: StepArgs,

    /// How many kernels and operators to list in text
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,

    /// TPOT without a profiler, such as 1.14ms [default: the manifest's]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) baseline_tpot: Option<f64>,

    /// Show only these sections of the report
    #[arg(long, value_name = "SECTION,..", value_delimiter = ',', value_parser = section())]
    #[arg(conflicts_with = "skip")]
    pub(crate) only: Vec<Section>,

    /// Show all sections of the report but these
    #[arg(long, value_name = "SECTION,..", value_delimiter = ',', value_parser = section())]
    pub(crate) skip: Vec<Section>,

    /// Number of layers of the model: what is found is checked against it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) layers: Option<u32>,

    /// Number of tokens that the server's KV pool holds: operands of that size are the pool
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) kv_tokens: Option<u64>,

    /// The model's config.json, or the folder that has it: holds the step against what the GPU allows
    /// (`steptally gap` has the options)
    #[arg(long, value_name = "CONFIG")]
    pub(crate) model: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) reading: ReadingArgs,

    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Say what a finding means and what to do about it
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Its code, such as KV001; without one, all of them
    pub(crate) code: Option<String>,
}

/// Tell what a file is, without analysing it
///
/// Format, versions, ranks, devices, number of events by kind, recorded window, and every defect that was
/// found while reading.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct InspectArgs {
    /// A trace, or a folder with the traces of one run; - reads standard input
    #[arg(value_parser = input_path())]
    pub(crate) path: PathBuf,

    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,

    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
}

/// Write a copy of an nsys export that can be passed on
///
/// An export holds the whole environment of the machine that was profiled, tokens included. The copy
/// has every event, and none of environment, command line, output, paths, nor any text that no event
/// uses; it gives the same report.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct RedactArgs {
    /// An SQLite export of nsys
    pub(crate) path: PathBuf,

    /// Where the copy goes; never over a file that is there [default: FILE.redacted.sqlite]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// How to say what was left out
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct ReadingArgs {
    /// How many threads read [default: as many as the machine has]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
}

/// How to write results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// A section by its key in the JSON report; clap lists them where another name is given.
fn section() -> impl TypedValueParser<Value = Section> {
    PossibleValuesParser::new(Section::all().map(Section::name))
        .try_map(|name| name.parse::<Section>())
}

/// How to write results that may be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DocumentFormat {
    /// For people
    Text,
    /// For programs
    Json,
    /// For a comment on a pull request (GitHub-flavoured)
    Markdown,
}

/// A path to read; `-` is standard input.
pub(crate) fn input_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| match path.as_os_str() == "-" {
        true => PathBuf::from("/dev/stdin"),
        false => path,
    })
}

pub(crate) fn parse_steps(text: &str) -> Result<Range<u64>, String> {
    let wanted = "expected A..B with A < B, such as 2..10 (steps 2 to 9), 5.. or ..5";
    let (first, last) = text.split_once("..").ok_or(wanted)?;
    let number = |part: &str, default| match part.trim() {
        "" => Ok(default),
        digits => digits.parse::<u64>().map_err(|_| wanted),
    };
    let range = number(first, 0)?..number(last, u64::MAX)?;
    if range.is_empty() { Err(wanted.to_owned()) } else { Ok(range) }
}

pub(crate) fn parse_pattern(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| {
        format!(
            "{error}\nallowed: Rust regular expressions (no look-around, no back-references), \
             searched anywhere in the name"
        )
    })
}

/// A time above 0 in nanoseconds.
pub(crate) fn parse_time(text: &str) -> Result<f64, String> {
    let wanted = "expected a time above 0 with its unit, such as 3.01ms (ns, us, ms or s)";
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let with_unit = |(unit, ns): (&str, f64)| {
        let number = text.trim().strip_suffix(unit)?.trim();
        let plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
        let value: f64 = number.parse().ok().filter(|_| plain)?;
        (value > 0.0).then_some(value * ns)
    };
    units.into_iter().find_map(with_unit).ok_or_else(|| wanted.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn step_ranges() {
        assert_eq!(parse_steps("2..10"), Ok(2..10));
        assert_eq!(parse_steps("5.."), Ok(5..u64::MAX));
        assert_eq!(parse_steps("..5"), Ok(0..5));
        for wrong in ["", "3", "3..3", "5..2", "a..b", "-1..2", "1...2"] {
            let error = parse_steps(wrong).unwrap_err();
            assert!(error.contains("expected A..B"), "{wrong}: {error}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(parse_time("3ms"), Ok(3e6));
        assert_eq!(parse_time("1.5 s"), Ok(1.5e9));
        assert_eq!(parse_time("20us"), Ok(2e4));
        assert_eq!(parse_time("7ns"), Ok(7.0));
        for wrong in ["", "3", "ms", "-3ms", "0ms", "3min", "infs", "1e3ms"] {
            assert!(parse_time(wrong).unwrap_err().contains("such as 3.01ms"), "{wrong}");
        }
    }
}
