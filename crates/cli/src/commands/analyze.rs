//! `steptally analyze`: where did the time of a step go?

use steptally_analyze::results::{Baseline, StepTable};
use steptally_analyze::{Config, Section, Sections, analyze};
use steptally_import::Import;
use steptally_report::{Report, json_schema, terminal, to_json};

use crate::args::{AnalyzeArgs, Format};
use crate::bound::{self, Against};
use crate::failure::{Code, Failure, list};
use crate::roofline_args::BoundArgs;
use crate::{input, output};

pub(crate) fn run(args: AnalyzeArgs) -> Result<Code, Failure> {
    let to_file = args.output.as_deref();
    let Some(path) = args.path.as_deref().filter(|_| !args.json_schema) else {
        output::write(&json_schema(), to_file)?;
        return Ok(Code::Ok);
    };
    let sections = sections(&args)?;
    output::check_not_input(to_file, path)?;
    let model = args.model.as_deref().map(|path| bound::model_config(path, None)).transpose()?;
    let model = model.map(|(model, _)| model);
    // The rules are made ready while the trace is read.
    let (config, import) = std::thread::scope(|threads| {
        let config = threads.spawn(|| args.of_steps.config());
        let import = input::read(path, &args.reading);
        (config.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)), import)
    });
    let (config, import) = (config?, import?);
    let mut config = Config {
        num_layers: args.layers.or(model.as_ref().and_then(bound::layer_count)),
        kv_token_capacity: args.kv_tokens,
        sections,
        ..config
    };
    let manifest = input::manifest(path)?;
    if let Some(manifest) = &manifest {
        input::configure(&mut config, manifest);
    }
    config.baseline = args.baseline_tpot.map(Baseline::given).or(config.baseline);
    check_rank(&import, config.rank)?;
    let analysis = analyze(&import.traces, &config);
    check_selection(&analysis.steps, &config)?;

    let gap = model.as_ref().map(|model| {
        let against = Against {
            model,
            gpu: None,
            bound: &BoundArgs::default(),
            manifest: manifest.as_ref(),
            baseline: config.baseline.as_ref(),
        };
        bound::gap(&analysis, &against)
    });
    let report = Report::new(output::tool(), input::summary(&import), analysis)
        .with_bound_gap(gap.transpose()?)
        .with_baseline(config.baseline);
    let text = match args.format {
        Format::Json => to_json(&report),
        Format::Text => terminal(&report, &output::style(to_file.is_some(), args.top)),
    };
    output::write(&text, to_file)?;
    Ok(if report.partial { Code::Partial } else { Code::Ok })
}

/// What `--only` and `--skip`, of which at most one is given, leave.
fn sections(args: &AnalyzeArgs) -> Result<Sections, Failure> {
    if !args.only.is_empty() {
        return Ok(Sections::only(&args.only));
    }
    let sections = Sections::without(&args.skip);
    if Section::all().any(|section| sections.has(section)) {
        return Ok(sections);
    }
    Err(Failure::usage("--skip leaves nothing").hint("name fewer sections"))
}

pub(super) fn check_rank(import: &Import, rank: Option<u32>) -> Result<(), Failure> {
    let Some(rank) = rank else { return Ok(()) };
    let present: Vec<u32> = import.traces.iter().filter_map(|trace| trace.rank()).collect();
    if present.contains(&rank) {
        return Ok(());
    }
    let hint = if present.is_empty() {
        "nothing in the input says which rank it is: leave --rank out".to_owned()
    } else {
        format!("ranks present: {}", list(present))
    };
    Err(Failure::usage(format!("there is no rank {rank}")).hint(hint))
}

/// Whether `--kind` and `--steps` selected anything.
pub(super) fn check_selection(steps: &StepTable, config: &Config) -> Result<(), Failure> {
    if config.step_pattern.is_some() && steps.kinds.is_empty() {
        return Err(Failure::usage("--step-pattern matched no step".to_owned()).hint(format!(
            "{}; `steptally inspect` lists what is there, without the pattern known marks are tried",
            steps.explanation
        )));
    }
    if let Some(kind) = &config.kind
        && !steps.kinds.contains_key(kind)
    {
        let present = steps.kinds.iter().map(|(kind, n)| format!("{kind} ({n})"));
        let hint = if steps.kinds.is_empty() {
            "no steps were found: leave --kind out, or say what they are with --step-pattern"
                .to_owned()
        } else {
            format!("kinds present: {}", list(present))
        };
        return Err(Failure::usage(format!("there is no step of kind {kind:?}")).hint(hint));
    }
    let selected = steps.selected.as_ref().map_or(0, |selected| selected.n);
    if let Some(range) = &config.steps
        && selected == 0
    {
        let present = steps.kinds.iter().map(|(kind, n)| format!("{n} {kind}"));
        let end = if range.end == u64::MAX { String::new() } else { range.end.to_string() };
        return Err(Failure::usage(format!("no complete step in {}..{end}", range.start))
            .hint(format!("steps found over all ranks, cut ones included: {}", list(present))));
    }
    Ok(())
}
