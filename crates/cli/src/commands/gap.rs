//! `steptally gap`: what lies between a captured step and its bound?

use steptally_analyze::analyze;
use steptally_analyze::results::Baseline;
use steptally_report::{GapReport, gap_markdown, gap_schema, gap_text, to_json};

use super::analyze::{check_rank, check_selection};
use crate::args::DocumentFormat;
use crate::bound::{self, Against};
use crate::failure::{Code, Failure};
use crate::gap_args::GapArgs;
use crate::{input, output};

pub(crate) fn run(args: &GapArgs) -> Result<Code, Failure> {
    let to_file = args.output.as_deref();
    let Some(path) = args.path.as_deref() else {
        output::write(&gap_schema(), to_file)?;
        return Ok(Code::Ok);
    };
    let mut config = args.of_steps.config()?;
    output::check_not_input(to_file, path)?;
    let manifest = input::manifest(path)?;
    if let Some(manifest) = &manifest {
        input::configure(&mut config, manifest);
    }
    let quantization = args.bound.quantization.as_deref();
    let (model, files) =
        bound::served_model(args.model.as_deref(), quantization, manifest.as_ref())?;
    config.num_layers = bound::layer_count(&model);
    config.baseline = args.baseline_tpot.map(Baseline::given).or(config.baseline);
    let import = input::read(path, &args.reading)?;
    check_rank(&import, config.rank)?;
    let analysis = analyze(&import.traces, &config);
    check_selection(&analysis.steps, &config)?;

    let against = Against {
        model: &model,
        gpu: args.gpu.as_deref(),
        bound: &args.bound,
        manifest: manifest.as_ref(),
        baseline: config.baseline.as_ref(),
    };
    let gap = bound::gap(&analysis, &against)?;
    let ranks_partial = analysis.ranks.iter().any(|rank| rank.partial);
    let partial = ranks_partial || input::summary(&import).is_partial();
    let report = GapReport::new(output::tool(), path.display().to_string(), files, partial, gap);
    let text = match args.format {
        DocumentFormat::Json => to_json(&report),
        DocumentFormat::Markdown => gap_markdown(&report),
        DocumentFormat::Text => gap_text(&report, &output::style(to_file.is_some(), args.top)),
    };
    output::write(&text, to_file)?;
    Ok(if report.partial { Code::Partial } else { Code::Ok })
}
