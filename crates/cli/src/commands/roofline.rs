//! `steptally roofline`: what should a decode step take at least?

use std::path::{Path, PathBuf};

use steptally_analyze::roofline::{
    Deployment, Hardware, Measured, ModelConfig, Speculation, roofline,
};
use steptally_report::{RooflineReport, roofline_schema, roofline_text, to_json};

use crate::args::Format;
use crate::failure::{Code, Failure};
use crate::output;
use crate::roofline_args::RooflineArgs;

pub(crate) fn run(args: RooflineArgs) -> Result<Code, Failure> {
    let to_file = args.output.as_deref();
    let (Some(model), Some(gpu)) = (&args.model, &args.gpu) else {
        output::write(&roofline_schema(), to_file)?;
        return Ok(Code::Ok);
    };
    let (model, files) = model_config(model, args.quantization.as_deref())?;
    let hardware = hardware(args.hardware.as_deref())?;
    let gpu = hardware.find(gpu).map_err(|error| {
        hinted(error.to_string(), Failure::usage)
            .hint("use one of these names, or describe the GPU in a file: --hardware FILE")
    })?;
    let measured = args.measured.as_deref().map(measured).transpose()?.unwrap_or_default();
    let deployment = deployment(&args);
    let bound = roofline(&model, gpu, &deployment, &measured)
        .map_err(|error| hinted(error.to_string(), Failure::usage))?;
    let report = RooflineReport::new(output::tool(), files, bound);
    let text = match args.format {
        Format::Json => to_json(&report),
        Format::Text => roofline_text(&report, &output::style(to_file.is_some(), 0)),
    };
    output::write(&text, to_file)?;
    Ok(Code::Ok)
}

/// Reads the model's config, and the quantisation beside it.
pub(crate) fn model_config(
    path: &Path,
    quantization: Option<&Path>,
) -> Result<(ModelConfig, Vec<String>), Failure> {
    let config = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let beside = path.join("hf_quant_config.json");
    let quantization: Option<PathBuf> =
        quantization.map(Path::to_owned).or_else(|| beside.is_file().then_some(beside));
    let config_text = read(&config)?;
    let quant_text = quantization.as_deref().map(read).transpose()?;
    let files: Vec<String> = [Some(config.as_path()), quantization.as_deref()]
        .into_iter()
        .flatten()
        .map(shown)
        .collect();
    let model = ModelConfig::parse(&config_text, quant_text.as_deref())
        .map_err(|error| hinted(format!("{}: {error}", shown(&config)), Failure::input))?;
    Ok((model, files))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::input(format!("cannot read {}: {error}", path.display()))
            .hint("--model takes a model's config.json, or the folder that has it")
    })
}

/// The limits of GPUs, built in or from a file.
pub(crate) fn hardware(file: Option<&Path>) -> Result<Hardware, Failure> {
    let read =
        match file {
            None => Hardware::built_in(),
            Some(path) => Hardware::parse(&std::fs::read_to_string(path).map_err(|error| {
                Failure::input(format!("cannot read {}: {error}", path.display()))
            })?),
        };
    read.map_err(|error| {
        Failure::input(error.to_string())
            .hint("the format is that of crates/analyze/data/hardware.toml")
    })
}

fn measured(path: &Path) -> Result<Measured, Failure> {
    let hint = "--measured takes the file that `steptally bench -o FILE` wrote";
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::input(format!("cannot read {}: {error}", path.display())).hint(hint)
    })?;
    Measured::parse(&text)
        .map_err(|error| Failure::input(format!("{}: {error}", path.display())).hint(hint))
}

fn deployment(args: &RooflineArgs) -> Deployment {
    Deployment {
        ep: args.ep,
        attention_dp: args.attention_dp,
        kv_format: args.kv_dtype.clone(),
        memory_bandwidth_ratio: args.bandwidth_ratio,
        memory_bytes_per_s: args.bandwidth.map(|gb_s| gb_s * 1e9),
        all_reduce_ns: args.all_reduce_us.map(|us| (us * 1e3).round() as i64),
        precision: args.precision.clone(),
        sharding: args.sharding.into(),
        exclude: args.exclude.iter().flat_map(|parts| parts.0.iter().copied()).collect(),
        speculation: args
            .draft_tokens
            .zip(args.accepted_tokens)
            .map(|(draft_tokens, accepted_tokens)| Speculation { draft_tokens, accepted_tokens }),
        ..Deployment::new(args.tp, args.batch, args.context)
    }
}

/// An error whose text may carry its hint in a line of its own.
fn hinted(text: String, failure: fn(String) -> Failure) -> Failure {
    match text.split_once("\nhint: ") {
        Some((error, hint)) => failure(error.to_owned()).hint(hint),
        None => failure(text),
    }
}
