//! A whole run: which devices, which groups, in whose shapes.

use crate::benches::{
    Bench, Outcome, all_reduce, cast, copy, gather, gemm, launch, norm, rope, routing,
};
use crate::error::BenchError;
use crate::gpu::{Gpu, start_driver};
use crate::library::{NVRTC, load};
use crate::model::ModelShape;
use crate::result::{BENCH_SCHEMA_VERSION, BenchResult, Compute, Group, Limits, Measurement};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Groups to measure; all when empty.
    pub only: Vec<Group>,
    /// Ordinals of the devices; all that there are when empty. All but the all-reduce runs on the
    /// first one.
    pub devices: Vec<u32>,
    /// In whose shapes.
    pub model: ModelShape,
    /// Tokens of a step.
    pub batch: u64,
    /// Ranks that the shapes are split over.
    pub tp: u64,
}

/// What a run needs from outside.
pub trait Surroundings {
    /// What the device of that name can do at most.
    fn limits(&self, device: &str) -> Limits;
    /// Called before each group.
    fn starting(&self, group: Group);
}

/// Measures.
///
/// # Errors
/// [`BenchError`] when there is no driver, no GPU, or not the one that was asked for. What else fails
/// is in [`BenchResult::skipped`].
pub fn run(plan: &Plan, surroundings: &dyn Surroundings) -> Result<BenchResult, BenchError> {
    let (driver_cuda_version, count) = start_driver()?;
    let ordinals =
        if plan.devices.is_empty() { (0..count).collect() } else { plan.devices.clone() };
    let gpus: Result<Vec<Gpu>, BenchError> =
        ordinals.iter().map(|&ordinal| Gpu::open(ordinal, count)).collect();
    let gpus = gpus?;
    let Some(gpu) = gpus.first() else {
        return Err(BenchError::NoGpu { detail: String::new() });
    };
    gpu.bind()?;
    let limits = surroundings.limits(&gpu.facts.name);
    let bench =
        Bench { gpu, limits, model: &plan.model, tokens: plan.batch.max(1), tp: plan.tp.max(1) };
    let mut out = Outcome::default();
    let compiler = load(&NVRTC).map(std::mem::forget);
    let mut reduced = Vec::new();
    for group in Group::ALL {
        if !plan.only.is_empty() && !plan.only.contains(&group) {
            continue;
        }
        surroundings.starting(group);
        let needs_compiler = group != Group::AllReduce;
        if let (true, Err(error)) = (needs_compiler, &compiler) {
            out.skip(group, "", error);
            continue;
        }
        let message = plan.batch * plan.model.hidden * 2;
        let done = match group {
            Group::Copy => copy::run(&bench, &mut out),
            Group::Gemm => gemm::run_dense(&bench, &mut out),
            Group::MoeGemm => gemm::run_experts(&bench, &mut out),
            Group::Norm => norm::run(&bench, &mut out),
            Group::Rope => rope::run(&bench, &mut out),
            Group::Routing => routing::run(&bench, &mut out),
            Group::Cast => cast::run(&bench, &mut out),
            Group::Gather => gather::run(&bench, &mut out),
            Group::Launch => launch::run(&bench, &mut out),
            Group::AllReduce => all_reduce::run(&ordinals, count, message, &limits, &mut out)
                .map(|list| reduced = list),
        };
        if let Err(error) = done {
            out.skip(group, "", &error);
        }
    }
    let peak = |compute| best_flops(&out.measurements, compute);
    Ok(BenchResult {
        schema_version: BENCH_SCHEMA_VERSION,
        device: Some(gpu.facts.name.clone()),
        copy_bytes_per_s: best_copy(&out.measurements),
        bf16_flops: peak(Compute::Bf16),
        fp8_flops: peak(Compute::Fp8),
        fp4_flops: peak(Compute::Fp4),
        all_reduce: reduced,
        driver_cuda_version,
        devices: gpus.iter().map(|gpu| gpu.facts.clone()).collect(),
        model: plan.model.name.clone(),
        batch: plan.batch,
        tp: plan.tp,
        measurements: out.measurements,
        skipped: out.skipped,
    })
}

/// The highest rate of the copies.
fn best_copy(measurements: &[Measurement]) -> Option<f64> {
    let copies = measurements.iter().filter(|m| m.group == Group::Copy);
    copies.filter_map(|m| m.bytes_per_s).max_by(f64::total_cmp)
}

/// The highest rate of the products in that type.
fn best_flops(measurements: &[Measurement], compute: Compute) -> Option<f64> {
    let products = measurements.iter().filter(|m| m.work.compute == Some(compute));
    products.filter_map(|m| m.flops_per_s).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Work;
    use crate::stats::Spread;

    fn measurement(group: Group, work: Work, median_ns: f64) -> Measurement {
        let time = Spread { n: 1, median_ns, p10_ns: median_ns, p90_ns: median_ns };
        Measurement::new(group, "x", "", time, work, &Limits::default(), 1)
    }

    #[test]
    fn the_best_of_each_kind_is_the_limit() {
        let copy = Work { memory_bytes: 4000, ..Work::default() };
        let product = |compute| Work {
            memory_bytes: 900_000,
            total_flops: 8000,
            compute: Some(compute),
            ..Work::default()
        };
        let list = [
            measurement(Group::Copy, copy, 2.0),
            measurement(Group::Copy, copy, 1.0),
            measurement(Group::Gemm, product(Compute::Bf16), 4.0),
            measurement(Group::MoeGemm, product(Compute::Bf16), 8.0),
            measurement(Group::Gemm, product(Compute::Fp8), 1.0),
        ];
        assert_eq!(best_copy(&list), Some(4e12));
        assert_eq!(best_flops(&list, Compute::Bf16), Some(2e12));
        assert_eq!(best_flops(&list, Compute::Fp8), Some(8e12));
        assert_eq!(best_flops(&list, Compute::Fp4), None);
    }

    #[test]
    #[allow(clippy::print_stderr)]
    fn without_a_gpu_there_is_one_clear_error() {
        struct Nothing;
        impl Surroundings for Nothing {
            fn limits(&self, _: &str) -> Limits {
                Limits::default()
            }
            fn starting(&self, _: Group) {}
        }
        if load(&crate::library::DRIVER).is_ok() {
            eprintln!("SKIPPED: there is a driver here");
            return;
        }
        let plan =
            Plan { only: vec![], devices: vec![], model: ModelShape::typical(), batch: 1, tp: 1 };
        let error = run(&plan, &Nothing).unwrap_err();
        assert!(error.to_string().starts_with("the CUDA driver was not found"), "{error}");
        assert!(error.hint().unwrap().contains("steptally roofline"));
    }
}
