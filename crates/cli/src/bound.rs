//! Bounds of steps: reading model, GPU and measurements, and what a capture says of its server.

use std::path::{Path, PathBuf};

use steptally_analyze::gap::{GapInputs, bound_gap};
use steptally_analyze::results::{Analysis, Baseline, BoundGap};
use steptally_analyze::roofline::{
    Deployment, Format as ValueFormat, Gpu, Hardware, Measured, ModelConfig, Speculation,
};
use steptally_trace_model::manifest::CaptureManifest;

use crate::failure::Failure;
use crate::roofline_args::BoundArgs;

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

/// The GPU of that name, by loose words.
pub(crate) fn gpu(name: &str, file: Option<&Path>) -> Result<Gpu, Failure> {
    let found = hardware(file)?.find(name).cloned();
    found.map_err(|error| {
        hinted(error.to_string(), Failure::usage)
            .hint("use one of these names, or describe the GPU in a file: --hardware FILE")
    })
}

/// What was measured; nothing without a file.
pub(crate) fn measured(path: Option<&Path>) -> Result<Measured, Failure> {
    let Some(path) = path else { return Ok(Measured::default()) };
    let hint = "--measured takes the file that `steptally bench -o FILE` wrote";
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::input(format!("cannot read {}: {error}", path.display())).hint(hint)
    })?;
    Measured::parse(&text)
        .map_err(|error| Failure::input(format!("{}: {error}", path.display())).hint(hint))
}

/// How a captured server ran, as far as its manifest and trace say.
#[derive(Debug, Default)]
pub(crate) struct Served {
    pub(crate) gpu: Option<String>,
    pub(crate) tp: Option<u32>,
    pub(crate) batch: Option<u64>,
    pub(crate) context: Option<u64>,
    /// What the server was told to keep in its KV cache; `None` also for `auto`.
    pub(crate) kv_format: Option<ValueFormat>,
}

impl Served {
    pub(crate) fn new(analysis: &Analysis, manifest: Option<&CaptureManifest>) -> Self {
        let server = manifest.and_then(|manifest| manifest.server.as_ref());
        let load = manifest.and_then(|manifest| manifest.load);
        let traced_ranks = analysis.ranks.iter().filter_map(|rank| rank.world_size).max();
        let selected = analysis.steps.selected.as_ref();
        let kv_format = server.and_then(|server| server.args.get("kv_cache_dtype")?.as_str());
        Self {
            gpu: analysis.ranks.iter().find_map(|rank| rank.gpu_name.clone()),
            tp: server.and_then(|server| server.parallel.get("tp").copied()).or(traced_ranks),
            batch: selected
                .and_then(|selected| selected.batch_size)
                .or(load.map(|load| u64::from(load.batch_size))),
            context: load.map(|load| u64::from(load.input_len)),
            kv_format: kv_format.and_then(ValueFormat::by_name),
        }
    }
}

/// How the model is served: what the user states before what the capture says. With it, what
/// neither says and is guessed.
pub(crate) fn deployment(args: &BoundArgs, served: &Served) -> (Deployment, Vec<String>) {
    let mut guesses = Vec::new();
    let mut guess = |what: &str, known: Option<u64>, otherwise: u64| {
        known.unwrap_or_else(|| {
            guesses.push(format!("{what} is not known, {otherwise} is assumed"));
            otherwise
        })
    };
    let tp = args.tp.or(served.tp).map(u64::from);
    let tp = guess("tensor parallelism (--tp)", tp, 1);
    // A mark states the requests of one attention group.
    let captured = served.batch.map(|batch| batch.saturating_mul(u64::from(args.attention_dp)));
    let batch = guess("the batch size (--batch)", args.batch.or(captured), 1);
    let context = guess("the context (--context)", args.context.or(served.context), 1024);
    let deployment = Deployment {
        ep: args.ep,
        attention_dp: args.attention_dp,
        kv_format: args.kv_dtype.clone().or_else(|| served.kv_format.clone()),
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
        ..Deployment::new(u32::try_from(tp).unwrap_or(u32::MAX), batch, context)
    };
    (deployment, guesses)
}

/// The model that was served: the user's config, else the one that the manifest names, whose path is
/// one on the server's machine, which may be this one.
pub(crate) fn served_model(
    given: Option<&Path>,
    quantization: Option<&Path>,
    manifest: Option<&CaptureManifest>,
) -> Result<(ModelConfig, Vec<String>), Failure> {
    let server = manifest.and_then(|manifest| manifest.server.as_ref());
    let path = server.and_then(|server| server.model.as_ref()).map(Path::new);
    let path = path.filter(|path| path.join("config.json").is_file());
    match given.or(path) {
        Some(path) => model_config(path, quantization),
        None => Err(Failure::usage("nothing says which model was served")
            .hint("give --model CONFIG: the model's config.json, or the folder that has it")),
    }
}

/// How many layers the model has.
pub(crate) fn layer_count(model: &ModelConfig) -> Option<u32> {
    u32::try_from(model.layers.len()).ok()
}

/// What `steptally gap` holds a captured step against.
#[derive(Debug)]
pub(crate) struct Against<'a> {
    pub(crate) model: &'a ModelConfig,
    /// The GPU, else the one that the trace names.
    pub(crate) gpu: Option<&'a str>,
    pub(crate) bound: &'a BoundArgs,
    pub(crate) manifest: Option<&'a CaptureManifest>,
    pub(crate) baseline: Option<&'a Baseline>,
}

/// Holds the captured step against its bound.
pub(crate) fn gap(analysis: &Analysis, against: &Against<'_>) -> Result<BoundGap, Failure> {
    let served = Served::new(analysis, against.manifest);
    let Some(gpu) = against.gpu.or(served.gpu.as_deref()) else {
        return Err(Failure::usage("nothing says which GPU the trace is from")
            .hint("use `steptally gap` and give --gpu NAME, such as H200"));
    };
    let gpu = self::gpu(gpu, against.bound.hardware.as_deref())?;
    let measured = measured(against.bound.measured.as_deref())?;
    let (deployment, guesses) = deployment(against.bound, &served);
    let inputs = GapInputs {
        model: against.model,
        gpu: &gpu,
        deployment: &deployment,
        measured: &measured,
        baseline: against.baseline,
        guesses: &guesses,
    };
    bound_gap(analysis, inputs).map_err(|error| {
        let hint = error.hint();
        hinted(error.to_string(), Failure::usage).hint(hint)
    })
}

/// An error whose text may carry its hint in a line of its own.
pub(crate) fn hinted(text: String, failure: fn(String) -> Failure) -> Failure {
    match text.split_once("\nhint: ") {
        Some((error, hint)) => failure(error.to_owned()).hint(hint),
        None => failure(text),
    }
}
