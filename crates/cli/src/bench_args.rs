//! The arguments of `steptally bench`.

use std::path::PathBuf;

use clap::Args;
use steptally_microbench::Group;

use crate::args::{EXIT_CODES, Format};

const EXAMPLES: &str = "\
Examples:
  steptally bench                                        everything, in typical shapes
  steptally bench --model GLM-5-NVFP4/ --batch 1 --tp 8 -o measured.json
  steptally bench --only copy,gemm,all-reduce --devices 0,1
  steptally bench --model config.json --compare torch.json
  steptally roofline --model config.json --gpu H200 --measured measured.json

The CUDA libraries are loaded at run time: through LD_LIBRARY_PATH, from a CUDA toolkit, or from the
nvidia packages of the Python that is first in PATH.";

/// Measure what the components of a decode step cost on this machine's GPU
///
/// Copies, matrix products in the model's shapes, norms, casts, routing, launches and all-reduces: each
/// checked against a reference and shown as a share of what the hardware allows.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct BenchArgs {
    /// Measure in the shapes of this model: its config.json, or the folder that has it
    #[arg(long, value_name = "CONFIG")]
    pub(crate) model: Option<PathBuf>,

    /// Tokens of a step
    #[arg(long, value_name = "B", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub(crate) batch: u64,

    /// Split the shapes over that many ranks
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) tp: u64,

    /// Only these: copy, gemm, moe-gemm, norm, rope, routing, cast, gather, launch, all-reduce
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_group)]
    pub(crate) only: Vec<Group>,

    /// GPUs to use; all but the all-reduce runs on the first [default: all]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(crate) devices: Vec<u32>,

    /// Show what torch_reference.py measured beside it
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Option<PathBuf>,

    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,

    /// Write the measurements as JSON to this file, for `steptally roofline --measured`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

fn parse_group(name: &str) -> Result<Group, String> {
    Group::by_name(name.trim()).ok_or_else(|| {
        let known: Vec<&str> = Group::ALL.into_iter().map(Group::name).collect();
        format!("known are {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_by_name() {
        assert_eq!(parse_group(" moe-gemm"), Ok(Group::MoeGemm));
        assert!(parse_group("wheels").unwrap_err().starts_with("known are copy, gemm, "));
    }
}
