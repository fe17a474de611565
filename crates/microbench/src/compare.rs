//! Our figures beside PyTorch's of the same machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::result::{BenchResult, Group};

/// What `torch_reference.py` measured.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Reference {
    /// Version of PyTorch.
    pub torch: String,
    /// The device's name.
    pub device: String,
    /// Read plus written bytes a second of the largest copy.
    pub copy_bytes_per_s: Option<f64>,
    /// Matrix products.
    pub gemm: Vec<ReferenceGemm>,
    /// All-reduces.
    pub all_reduce: Vec<ReferenceAllReduce>,
}

/// A matrix product of PyTorch.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ReferenceGemm {
    /// Rows of the input.
    pub m: u64,
    /// Outputs.
    pub n: u64,
    /// Columns.
    pub k: u64,
    /// Median time.
    pub time_ns: f64,
}

/// An all-reduce of PyTorch.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ReferenceAllReduce {
    /// Ranks.
    pub ranks: u32,
    /// Size of the vector.
    pub message_bytes: u64,
    /// Median time through `torch.distributed`.
    pub time_ns: f64,
    /// Median time of NCCL's own function, called from PyTorch's process in its stream.
    #[serde(default)]
    pub nccl_time_ns: Option<f64>,
}

/// One figure of ours and PyTorch's.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// What it is.
    pub name: String,
    /// Our time.
    pub time_ns: f64,
    /// PyTorch's time.
    pub reference_ns: f64,
    /// Their time by ours: above 1, ours is faster.
    pub speed_ratio: f64,
}

/// Why a reference cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("reference: {0}")]
pub struct ReferenceError(#[from] serde_json::Error);

impl Reference {
    /// Reads what `torch_reference.py` printed.
    ///
    /// # Errors
    /// [`ReferenceError`] names the line.
    pub fn parse(json: &str) -> Result<Self, ReferenceError> {
        Ok(serde_json::from_str(json)?)
    }
}

/// Compares what both measured: the copy, BF16 products of equal shape, all-reduces of equal size.
#[must_use]
pub fn compare(result: &BenchResult, reference: &Reference) -> Vec<Comparison> {
    let pair = |name: String, time_ns: f64, reference_ns: f64| Comparison {
        name,
        time_ns,
        reference_ns,
        speed_ratio: reference_ns / time_ns,
    };
    let mut list = Vec::new();
    if let (Some(ours), Some(theirs)) = (result.copy_bytes_per_s, reference.copy_bytes_per_s) {
        // the time of a gigabyte
        list.push(pair("copy, each GB".to_owned(), 1e18 / ours, 1e18 / theirs));
    }
    let products =
        result.measurements.iter().filter(|m| m.group == Group::Gemm && m.name.ends_with(" bf16"));
    for product in products {
        let same = |gemm: &&ReferenceGemm| {
            product.shape == format!("m={} n={} k={}", gemm.m, gemm.n, gemm.k)
        };
        if let Some(theirs) = reference.gemm.iter().find(same) {
            let name = format!("{} {}", product.name, product.shape);
            list.push(pair(name, product.time.median_ns, theirs.time_ns));
        }
    }
    for ours in &result.all_reduce {
        let same = |theirs: &&ReferenceAllReduce| {
            (theirs.ranks, theirs.message_bytes) == (ours.ranks, ours.message_bytes)
        };
        if let Some(theirs) = reference.all_reduce.iter().find(same) {
            let name = format!("all-reduce {} B over {}", ours.message_bytes, ours.ranks);
            if let Some(nccl) = theirs.nccl_time_ns {
                list.push(pair(format!("{name}, NCCL itself"), ours.time_ns, nccl));
            }
            list.push(pair(name, ours.time_ns, theirs.time_ns));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{AllReduce, Limits, Measurement, Work};
    use crate::stats::Spread;

    fn result() -> BenchResult {
        let time = Spread { n: 25, median_ns: 2000.0, p10_ns: 1900.0, p90_ns: 2100.0 };
        let product = |name: &str, shape: &str| {
            let (group, limits) = (Group::Gemm, Limits::default());
            Measurement::new(group, name, shape, time, Work::default(), &limits, 1)
        };
        BenchResult {
            schema_version: 1,
            device: None,
            copy_bytes_per_s: Some(4e12),
            bf16_flops: None,
            fp8_flops: None,
            fp4_flops: None,
            all_reduce: vec![AllReduce {
                ranks: 2,
                message_bytes: 1024,
                time_ns: 8000.0,
                p10_ns: 1.0,
                p90_ns: 1.0,
            }],
            driver_cuda_version: 13000,
            devices: Vec::new(),
            model: String::new(),
            batch: 1,
            tp: 1,
            measurements: vec![
                product("square bf16", "m=4 n=5 k=6"),
                product("square fp8", "m=4 n=5 k=6"),
                product("o_proj bf16", "m=1 n=5 k=6"),
            ],
            skipped: Vec::new(),
        }
    }

    #[test]
    fn equal_shapes_are_compared() {
        let reference = Reference::parse(
            r#"{"torch": "2.11", "device": "X", "more": 1, "copy_bytes_per_s": 3e12,
                "gemm": [{"m": 4, "n": 5, "k": 6, "time_ns": 1800.0}],
                "all_reduce": [{"ranks": 2, "message_bytes": 1024, "time_ns": 10000,
                                "nccl_time_ns": 8400},
                               {"ranks": 4, "message_bytes": 1024, "time_ns": 1}]}"#,
        )
        .unwrap();
        let list = compare(&result(), &reference);
        let shown: Vec<(&str, f64)> =
            list.iter().map(|c| (c.name.as_str(), c.speed_ratio)).collect();
        assert_eq!(
            shown,
            [
                ("copy, each GB", 4.0 / 3.0),
                ("square bf16 m=4 n=5 k=6", 0.9),
                ("all-reduce 1024 B over 2, NCCL itself", 1.05),
                ("all-reduce 1024 B over 2", 1.25),
            ]
        );
        assert_eq!(list[0].time_ns, 250_000.0);
    }

    #[test]
    fn a_broken_reference_is_an_error() {
        let error = Reference::parse("{").unwrap_err().to_string();
        assert!(error.starts_with("reference: EOF"), "{error}");
    }

    #[test]
    fn the_file_begins_with_what_a_roofline_reads() {
        let json = serde_json::to_value(result()).unwrap();
        assert_eq!(json["copy_bytes_per_s"], 4e12);
        assert_eq!(json["all_reduce"][0]["time_ns"], 8000.0);
        assert_eq!(json["measurements"][0]["median_ns"], 2000.0);
        assert!(json["fp4_flops"].is_null());
    }
}
