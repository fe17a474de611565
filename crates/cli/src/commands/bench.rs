//! `steptally bench`: what do the components cost on this machine?

use std::io::Write;
use std::path::Path;

use serde::Serialize;
use steptally_analyze::roofline::{Attention, Hardware, ModelConfig};
use steptally_microbench::{
    AttentionShape, BenchError, BenchResult, Comparison, Group, Limits, ModelShape, MoeShape, Plan,
    Reference, Surroundings, compare, run as measure,
};
use steptally_report::{BenchComparison, BenchRow, BenchTable, bench_text, to_json};

use crate::args::Format;
use crate::bench_args::BenchArgs;
use crate::bound::{hardware, model_config};
use crate::failure::{Code, Failure};
use crate::output;

/// The measurements and, when asked for, the comparison.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    result: &'a BenchResult,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    comparison: &'a Vec<Comparison>,
}

pub(crate) fn run(args: &BenchArgs) -> Result<Code, Failure> {
    let model = match &args.model {
        Some(path) => model_shape(&model_config(path, None)?.0),
        None => ModelShape::typical(),
    };
    let reference = args.compare.as_deref().map(read_reference).transpose()?;
    let plan = Plan {
        only: args.only.clone(),
        devices: args.devices.clone(),
        model,
        batch: args.batch,
        tp: args.tp,
    };
    let result = measure(&plan, &Progress { hardware: hardware(None)? }).map_err(failure)?;
    let comparison = reference.map_or_else(Vec::new, |reference| compare(&result, &reference));
    let json = to_json(&Whole { result: &result, comparison: &comparison });
    if let Some(path) = args.output.as_deref() {
        output::write(&json, Some(path))?;
    }
    match args.format {
        Format::Json if args.output.is_some() => {}
        Format::Json => output::write(&json, None)?,
        Format::Text => {
            let table = table(&result, &comparison);
            output::write(&bench_text(&table, &output::style(false, 0)), None)?;
        }
    }
    Ok(Code::Ok)
}

fn failure(error: BenchError) -> Failure {
    let hint = error.hint();
    let failure = match error {
        BenchError::NoSuchGpu { .. } => Failure::usage(error.to_string()),
        _ => Failure::input(error.to_string()),
    };
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn read_reference(path: &Path) -> Result<Reference, Failure> {
    let hint = "--compare takes what crates/microbench/reference/torch_reference.py printed";
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::input(format!("cannot read {}: {error}", path.display())).hint(hint)
    })?;
    Reference::parse(&text)
        .map_err(|error| Failure::input(format!("{}: {error}", path.display())).hint(hint))
}

/// Limits from the data file, and a line on stderr for each group.
struct Progress {
    hardware: Hardware,
}

impl Surroundings for Progress {
    fn limits(&self, device: &str) -> Limits {
        let Ok(gpu) = self.hardware.find(device) else { return Limits::default() };
        let tera = |figure: &Option<steptally_analyze::roofline::Figure>| {
            figure.as_ref().map(|figure| figure.value * 1e12)
        };
        Limits {
            memory_bytes_per_s: Some(gpu.memory_gb_s.value * 1e9),
            bf16_flops: Some(gpu.bf16_tflops.value * 1e12),
            fp8_flops: tera(&gpu.fp8_tflops),
            fp4_flops: tera(&gpu.fp4_tflops),
            link_bytes_per_s: Some(gpu.link_gb_s.value * 1e9),
        }
    }

    fn starting(&self, group: Group) {
        let _ = writeln!(std::io::stderr().lock(), "measuring {}", group.name());
    }
}

/// The sizes that kernels depend on.
fn model_shape(model: &ModelConfig) -> ModelShape {
    let attention = match model.attention {
        Attention::Grouped { heads, kv_heads, head, .. } => {
            AttentionShape::Grouped { heads, kv_heads, head }
        }
        Attention::Latent { heads, q_rank, kv_rank, nope, rope, value_head } => {
            AttentionShape::Latent { heads, q_rank, kv_rank, nope, rope, value_head }
        }
    };
    let dense = model.layers.iter().any(|layer| !layer.moe);
    ModelShape {
        name: model.model_type.clone(),
        hidden: model.hidden,
        vocab: model.vocab,
        attention,
        dense_width: if dense { model.dense_width } else { 0 },
        moe: model.moe.as_ref().map(|moe| MoeShape {
            experts: moe.experts,
            topk: moe.topk,
            width: moe.width,
            shared_width: moe.shared_width,
        }),
    }
}

fn table(result: &BenchResult, comparison: &[Comparison]) -> BenchTable {
    let version = result.driver_cuda_version;
    let names: Vec<&str> = result.devices.iter().map(|device| device.name.as_str()).collect();
    let about = format!(
        "{}, driver for CUDA {}.{}; shapes of {}, batch {}, split over {}",
        names.join(", "),
        version / 1000,
        version % 1000 / 10,
        result.model,
        result.batch,
        result.tp
    );
    let rows = result.measurements.iter().map(|measurement| BenchRow {
        group: measurement.group.name().to_owned(),
        name: measurement.name.clone(),
        shape: measurement.shape.clone(),
        median_ns: measurement.time.median_ns,
        p10_ns: measurement.time.p10_ns,
        p90_ns: measurement.time.p90_ns,
        bytes_per_s: measurement.bytes_per_s,
        flops_per_s: measurement.flops_per_s,
        limit_ratio: measurement.limit_ratio,
        checked: measurement.checked,
    });
    let skipped = result.skipped.iter().map(|skipped| {
        (format!("{} {}", skipped.group.name(), skipped.name), skipped.reason.clone())
    });
    let comparisons = comparison.iter().map(|row| BenchComparison {
        name: row.name.clone(),
        time_ns: row.time_ns,
        reference_ns: row.reference_ns,
        speed_ratio: row.speed_ratio,
    });
    BenchTable {
        about,
        rows: rows.collect(),
        skipped: skipped.collect(),
        comparisons: comparisons.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steptally_analyze::roofline::Measured;
    use steptally_microbench::{AllReduce, BENCH_SCHEMA_VERSION, Measurement, Spread, Work};

    fn result() -> BenchResult {
        let time = Spread { n: 25, median_ns: 2000.0, p10_ns: 1900.0, p90_ns: 2100.0 };
        let work = Work { memory_bytes: 4000, ..Work::default() };
        let limits = Limits { memory_bytes_per_s: Some(4e12), ..Limits::default() };
        BenchResult {
            schema_version: BENCH_SCHEMA_VERSION,
            device: Some("NVIDIA H200".to_owned()),
            copy_bytes_per_s: Some(4.3e12),
            bf16_flops: Some(7.9e14),
            fp8_flops: None,
            fp4_flops: None,
            all_reduce: vec![AllReduce {
                ranks: 2,
                message_bytes: 4096,
                time_ns: 9000.0,
                p10_ns: 8000.0,
                p90_ns: 9500.0,
            }],
            driver_cuda_version: 13000,
            devices: Vec::new(),
            model: "small".to_owned(),
            batch: 1,
            tp: 1,
            measurements: vec![Measurement::new(
                Group::Copy,
                "copy kernel",
                "4 KB",
                time,
                work,
                &limits,
                7,
            )],
            skipped: Vec::new(),
        }
    }

    #[test]
    fn a_roofline_accepts_the_file() {
        let comparison = Vec::new();
        let json = to_json(&Whole { result: &result(), comparison: &comparison });
        let read = Measured::parse(&json).unwrap();
        assert_eq!(read.device.as_deref(), Some("NVIDIA H200"));
        assert_eq!((read.copy_bytes_per_s, read.bf16_flops), (Some(4.3e12), Some(7.9e14)));
        assert_eq!((read.fp8_flops, read.all_reduce_ns(2, 4096.0)), (None, Some(9000.0)));
    }

    #[test]
    fn rows_carry_what_was_measured() {
        let table = table(&result(), &[]);
        assert!(table.about.contains("driver for CUDA 13.0; shapes of small"), "{}", table.about);
        // 4000 B / 4 TB/s = 1 ns of 2000 ns
        assert_eq!(table.rows[0].limit_ratio, Some(0.0005));
        assert_eq!((table.rows[0].group.as_str(), table.rows[0].checked), ("copy", 7));
    }

    #[test]
    fn limits_are_the_data_sheets() {
        let progress = Progress { hardware: Hardware::built_in().unwrap() };
        let limits = progress.limits("NVIDIA H200");
        assert_eq!(limits.memory_bytes_per_s, Some(4.8e12));
        assert_eq!((limits.bf16_flops, limits.fp4_flops), (Some(9.89e14), None));
        assert_eq!(progress.limits("NVIDIA Unknown"), Limits::default());
    }

    #[test]
    fn shapes_come_from_the_config() {
        let config = r#"{"model_type": "qwen3_moe", "hidden_size": 64, "vocab_size": 100,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 16, "num_experts": 8, "num_experts_per_tok": 2,
            "moe_intermediate_size": 32, "intermediate_size": 128}"#;
        let shape = model_shape(&ModelConfig::parse(config, None).unwrap());
        assert_eq!(shape.attention, AttentionShape::Grouped { heads: 4, kv_heads: 2, head: 16 });
        // every layer has experts, so there is no dense MLP
        assert_eq!((shape.hidden, shape.dense_width), (64, 0));
        assert_eq!(shape.moe.unwrap().experts, 8);
    }
}
