//! The arguments of `steptally roofline`, most of which `steptally gap` has too.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use steptally_analyze::roofline::{Format as ValueFormat, Part, Precision, Sharding};

use crate::args::{EXIT_CODES, Format};

const EXAMPLES: &str = "\
Examples:
  steptally roofline --model GLM-5-NVFP4/ --gpu 'RTX PRO 6000' --tp 8 --batch 1 --context 1024
  steptally roofline --model config.json --gpu H200 --tp 2 --batch 32 --precision fp8
  steptally roofline --model config.json --gpu H200 --measured measured.json
  steptally roofline --json-schema";

/// Tell what a decode step should take at least
///
/// Counts what one rank must read and compute, from the model's config, and divides by what its GPU can
/// do. Every assumption is printed beside the bound.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct RooflineArgs {
    /// The model's config.json, or the folder that has it (and hf_quant_config.json, if any)
    #[arg(long, value_name = "CONFIG", required_unless_present = "json_schema")]
    pub(crate) model: Option<PathBuf>,

    /// Which GPU, such as H200 or 'RTX PRO 6000'
    #[arg(long, value_name = "NAME", required_unless_present = "json_schema")]
    pub(crate) gpu: Option<String>,

    #[command(flatten)]
    pub(crate) bound: BoundArgs,

    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,

    /// Print the JSON Schema of the result, and nothing else
    #[arg(long, conflicts_with_all = ["model", "gpu"])]
    pub(crate) json_schema: bool,

    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// What a bound depends on beside model and GPU.
#[derive(Debug, Args)]
pub(crate) struct BoundArgs {
    /// An hf_quant_config.json that is not in the model's folder
    #[arg(long, value_name = "FILE", requires = "model")]
    pub(crate) quantization: Option<PathBuf>,

    /// Limits of GPUs of your own (TOML), instead of the built-in ones
    #[arg(long, value_name = "FILE")]
    pub(crate) hardware: Option<PathBuf>,

    /// GPUs: ranks of the tensor-parallel group [default: the capture's, else 1]
    #[arg(long, value_name = "N")]
    pub(crate) tp: Option<u32>,

    /// Groups of ranks that hold different experts
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) ep: u32,

    /// Groups of ranks that attend to different requests (data-parallel attention)
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) attention_dp: u32,

    /// Requests in a step, over all ranks [default: the capture's, else 1]
    #[arg(long, value_name = "B")]
    pub(crate) batch: Option<u64>,

    /// Tokens of each request in the KV cache [default: the capture's prompts, else 1024]
    #[arg(long, value_name = "C")]
    pub(crate) context: Option<u64>,

    /// Format of the KV cache [default: what the captured server was told, else what the checkpoint asks
    /// for, else the model's type]
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    pub(crate) kv_dtype: Option<ValueFormat>,

    /// Precision of the weights: as the checkpoint has them, or one for all (router and output head
    /// keep the model's type)
    #[arg(long, value_name = "published|FORMAT", default_value = "published",
          value_parser = parse_precision)]
    pub(crate) precision: Precision,

    /// How weights lie on the ranks
    #[arg(long, value_enum, default_value_t = ShardingArg::Served)]
    pub(crate) sharding: ShardingArg,

    /// Parts to leave out, separated by commas; `beside-weights` is all that is not a matrix
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = parse_parts)]
    pub(crate) exclude: Vec<Parts>,

    /// Share of the memory bandwidth that is reachable
    #[arg(long, value_name = "0..1", default_value_t = 1.0)]
    pub(crate) bandwidth_ratio: f64,

    /// Memory bandwidth in GB/s [default: measured, else the GPU's]
    #[arg(long, value_name = "GB/s")]
    pub(crate) bandwidth: Option<f64>,

    /// Time of one all-reduce in microseconds [default: measured, else the GPU's]
    #[arg(long, value_name = "US", value_parser = parse_microseconds)]
    pub(crate) all_reduce_us: Option<f64>,

    /// What `steptally bench -o FILE` measured, instead of the GPU's figures
    #[arg(long, value_name = "FILE")]
    pub(crate) measured: Option<PathBuf>,

    /// Speculative decoding: tokens drafted per step
    #[arg(long, value_name = "N", requires = "accepted_tokens")]
    pub(crate) draft_tokens: Option<u32>,

    /// Speculative decoding: tokens that a step yields on average
    #[arg(long, value_name = "X", requires = "draft_tokens")]
    pub(crate) accepted_tokens: Option<f64>,
}

impl Default for BoundArgs {
    fn default() -> Self {
        Self {
            quantization: None,
            hardware: None,
            tp: None,
            ep: 1,
            attention_dp: 1,
            batch: None,
            context: None,
            kv_dtype: None,
            precision: Precision::Published,
            sharding: ShardingArg::Served,
            exclude: Vec::new(),
            bandwidth_ratio: 1.0,
            bandwidth: None,
            all_reduce_us: None,
            measured: None,
            draft_tokens: None,
            accepted_tokens: None,
        }
    }
}

/// How weights lie on the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShardingArg {
    /// As engines do: low-rank projections, indexer and router on every rank
    Served,
    /// Every matrix split evenly
    Ideal,
}

impl From<ShardingArg> for Sharding {
    fn from(sharding: ShardingArg) -> Self {
        match sharding {
            ShardingArg::Served => Self::Served,
            ShardingArg::Ideal => Self::Ideal,
        }
    }
}

/// The parts that one name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts(pub(crate) Vec<Part>);

fn parse_parts(name: &str) -> Result<Parts, String> {
    let name = name.trim().replace('-', "_");
    if name == "beside_weights" {
        return Ok(Parts(Part::BESIDE_WEIGHTS.to_vec()));
    }
    serde_json::from_value(name.into()).map(|part| Parts(vec![part])).map_err(|e| e.to_string())
}

fn parse_microseconds(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim().parse().ok();
    number
        .filter(|us| us.is_finite() && *us >= 0.0)
        .ok_or_else(|| "expected a number of microseconds, 0 or more".to_owned())
}

fn parse_format(name: &str) -> Result<ValueFormat, String> {
    ValueFormat::by_name(name).ok_or_else(|| {
        "expected bf16, fp16, fp32, fp8, nvfp4, mxfp4, mxfp8, int8 or int4".to_owned()
    })
}

fn parse_precision(name: &str) -> Result<Precision, String> {
    match name {
        "published" => Ok(Precision::Published),
        _ => parse_format(name).map(Precision::Uniform).map_err(|e| format!("{e}, or published")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_by_name() {
        assert_eq!(parse_parts("kv-read"), Ok(Parts(vec![Part::KvRead])));
        assert_eq!(parse_parts("beside-weights").unwrap().0.len(), 5);
        let error = parse_parts("wheels").unwrap_err();
        assert!(error.contains("unknown variant `wheels`") && error.contains("`lm_head`"));
    }

    #[test]
    fn microseconds_are_finite() {
        assert_eq!(parse_microseconds("9.5"), Ok(9.5));
        assert_eq!(parse_microseconds("0"), Ok(0.0));
        for wrong in ["inf", "NaN", "-1", "1e999", "", "9us"] {
            assert!(parse_microseconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn precisions_by_name() {
        assert_eq!(parse_precision("published"), Ok(Precision::Published));
        assert_eq!(parse_precision("nvfp4"), Ok(Precision::Uniform(ValueFormat::nvfp4(16))));
        assert!(parse_precision("fp7").unwrap_err().ends_with("or published"));
    }
}
