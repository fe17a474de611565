//! `steptally diff`: what changed, and does a step take longer?

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use steptally_analyze::categories::Categories;
use steptally_analyze::diff::{DiffInput, DiffOptions, GateError, diff};
use steptally_analyze::results::{Baseline, Diff, GateOutcome};
use steptally_analyze::{Config, analyze};
use steptally_report::{
    DiffReport, DiffSource, SavedReport, diff_markdown, diff_schema, diff_text, gate_line,
    is_saved_report, to_json,
};

use super::analyze::{check_rank, check_selection};
use crate::args::DocumentFormat;
use crate::diff_args::DiffArgs;
use crate::failure::{Code, Failure};
use crate::{input, output};

pub(crate) fn run(args: DiffArgs) -> Result<Code, Failure> {
    let to_file = args.output.as_deref();
    let (Some(a), Some(b)) = (&args.a, &args.b) else {
        output::write(&diff_schema(), to_file)?;
        return Ok(Code::Ok);
    };
    let config = Config { sections: DiffInput::sections(), ..args.of_steps.config()? };
    let (source_a, input_a) = side(a, args.tpot_a, &config, &args)?;
    let (source_b, input_b) = side(b, args.tpot_b, &config, &args)?;
    let diff = diff(&input_a, &input_b, DiffOptions { force: args.force });
    let gates = decide(&args, &diff, &config.categories)?;

    let report = DiffReport::new(output::tool(), [source_a, source_b], diff, gates);
    let text = match args.format {
        DocumentFormat::Json => to_json(&report),
        DocumentFormat::Markdown => diff_markdown(&report, args.top),
        DocumentFormat::Text => diff_text(&report, &output::style(to_file.is_some(), args.top)),
    };
    output::write(&text, to_file)?;
    for gate in report.gates.iter().filter(|gate| gate.holds) {
        output::progress(&format!("gate {}", gate_line(gate)));
    }
    Ok(match (report.fails(), report.partial) {
        (true, _) => Code::Gate,
        (false, true) => Code::Partial,
        (false, false) => Code::Ok,
    })
}

/// One side: what it was read from, and what was found.
fn side(
    path: &Path,
    tpot_ns: Option<f64>,
    config: &Config,
    args: &DiffArgs,
) -> Result<(DiffSource, DiffInput), Failure> {
    output::check_not_input(args.output.as_deref(), path)?;
    let saved_report = File::open(path)
        .ok()
        .filter(|_| path.is_file())
        .is_some_and(|file| is_saved_report(BufReader::new(file)));
    let (partial, input) = if saved_report {
        saved(path, config, args)?
    } else {
        let import = input::read(path, &args.reading)?;
        check_rank(&import, config.rank)?;
        let analysis = analyze(&import.traces, config);
        check_selection(&analysis.steps, config)?;
        let ranks_partial = analysis.ranks.iter().any(|rank| rank.partial);
        let partial = ranks_partial || input::summary(&import).is_partial();
        let baseline = input::baseline(path)?;
        (partial, DiffInput::from(analysis).with_baseline(baseline))
    };
    let baseline = tpot_ns.map(Baseline::given).or_else(|| input.baseline.clone());
    let source = DiffSource { path: path.display().to_string(), saved_report, partial };
    Ok((source, input.with_baseline(baseline)))
}

/// A saved report, which was selected from when it was made.
fn saved(path: &Path, config: &Config, args: &DiffArgs) -> Result<(bool, DiffInput), Failure> {
    let selection = [
        ("--kind", config.kind.is_some()),
        ("--steps", config.steps.is_some()),
        ("--rank", config.rank.is_some()),
        ("--step-pattern", config.step_pattern.is_some()),
        ("--rules", args.of_steps.rules.is_some()),
    ];
    if let Some((option, _)) = selection.iter().find(|(_, given)| *given) {
        let message = format!("{option} cannot be applied to the saved report {}", path.display());
        return Err(Failure::usage(message).hint("give it to `steptally analyze` when saving"));
    }
    let failure = |message: String, hint: &str| {
        Failure::input(format!("{}: {message}", path.display())).hint(hint)
    };
    let json = std::fs::read(path)
        .map_err(|error| failure(error.to_string(), "can this user read the file?"))?;
    let report =
        SavedReport::from_json(&json).map_err(|error| failure(error.to_string(), error.hint()))?;
    Ok((report.partial, report.input))
}

fn decide(
    args: &DiffArgs,
    diff: &Diff,
    categories: &Categories,
) -> Result<Vec<GateOutcome>, Failure> {
    let decided: Result<Vec<GateOutcome>, GateError> =
        args.fail_if.iter().map(|gate| gate.evaluate(diff, categories)).collect();
    decided.map_err(|error| Failure::usage(error.to_string()).hint(error.hint()))
}
