//! COMM001: all-reduces so small that their latency is the cost.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};
use crate::gpu::GpuKind;
use crate::results::CollectiveSize;

/// Messages up to this size are bound by latency: at 100 GB/s 256 KiB take 2.6 us.
const SMALL_BYTES: u64 = 256 * 1024;
/// A step has at least this many.
const LEAST_COUNT: f64 = 8.0;
/// They take at least this share of the period.
const LEAST_RATIO: f64 = 0.03;
/// What a good one-shot all-reduce within a node takes.
const GOOD_NS: f64 = 5_000.0;

pub(super) const RULE: Rule = Rule {
    code: "COMM001",
    name: "all-reduce bound by latency",
    check,
    doc: "\
## What it is
Tensor parallelism makes two all-reduces per layer. In decode each carries a few KiB, so its time is
start-up and synchronisation, not bandwidth.

## Why it costs
78 layers x 2 x 40 us are 6 ms per token, whatever the links could carry.

## How it is found
At least 8 all-reduces per step of up to 256 KiB (or of unknown size) that take 3 % of the period or
more, and longer than 5 us each at the median; where ranks are matched, waiting for a late rank is not
counted.

## What to do
Use a custom one-shot all-reduce (SGLang: no `--disable-custom-all-reduce`; FlashInfer or TRT-LLM
fusion with the norm: `--enable-flashinfer-allreduce-fusion`), symmetric memory, or fewer ranks.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let of_ranks = &facts.collectives.sizes;
    let all_reduces: Vec<&CollectiveSize> =
        (of_ranks.iter()).filter(|size| size.category.starts_with("comm.allreduce")).collect();
    if all_reduces.is_empty() {
        return Outcome::not_applicable("no all-reduces in the steps");
    }
    let n = facts.ledger.n as f64;
    let small: Vec<&CollectiveSize> = (all_reduces.into_iter())
        .filter(|size| size.bytes.is_none_or(|bytes| bytes <= SMALL_BYTES))
        .collect();
    let time = |size: &CollectiveSize| size.transfer_ns.unwrap_or(size.duration_ns);
    let count = small.iter().map(|size| time(size).n).sum::<u64>() as f64 / n;
    let ns = small.iter().map(|size| time(size).mean * time(size).n as f64).sum::<f64>() / n;
    let median = small.iter().map(|size| time(size).median).fold(0.0, f64::max);
    if count < LEAST_COUNT || ns < LEAST_RATIO * facts.period_ns() || median <= GOOD_NS {
        return Outcome::Clear;
    }
    let waiting = if small.iter().all(|size| size.transfer_ns.is_some()) {
        "waiting for late ranks not counted"
    } else {
        "waiting for late ranks included: capture all ranks to tell"
    };
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "{count:.0} small all-reduces per step take {:.1} us each at the median ({waiting})",
            median / 1000.0
        ),
        evidence: vec![
            evidence("small all-reduces", count, "per_step"),
            evidence("time in them", ns, "ns"),
            evidence("median of one", median, "ns"),
        ],
        advice: "use a one-shot or fused all-reduce (SGLang: no --disable-custom-all-reduce, \
                 --enable-flashinfer-allreduce-fusion), or fewer ranks"
            .to_owned(),
        remedy: Remedy::resize(|view, op| {
            let is_kernel = op.kind == GpuKind::Kernel;
            let name = || view.lane.trace.kernels.name[op.row as usize];
            let all_reduce = is_kernel && view.categories.of(name()).starts_with("comm.allreduce");
            (all_reduce && (op.end - op.start).as_ns() > GOOD_NS as i64).then_some(GOOD_NS as i64)
        }),
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, not_applicable, outcome_of, steps};
    use steptally_testkit::TraceDsl;
    use steptally_trace_model::Trace;

    /// Five steps of 1 ms with 10 all-reduces of `ns` each.
    fn all_reduces(name: &str, ns: i64) -> Trace {
        arriving(name, 0, ns)
    }

    /// The same, each beginning `late` ns later and ending as late.
    fn arriving(name: &str, late: i64, ns: i64) -> Trace {
        steps(5, 1_000_000, |mut dsl, at, id| {
            for k in 0..10 {
                let gpu = at + 50_000 + k * 90_000 + late;
                dsl = dsl
                    .launch("cudaLaunchKernel", at + k * 1000..at + k * 1000 + 500, id + k as u64)
                    .kernel(name, gpu..gpu + ns)
                    .correlation(id + k as u64);
            }
            dsl
        })
    }

    const NCCL: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL";

    #[test]
    fn slow_small_all_reduces_are_found() {
        let finding = found(all_reduces(NCCL, 40_000), "COMM001");
        assert_eq!(finding.evidence[1].value, 400_000.0);
        // 10 x (40 - 5) us.
        assert_eq!(finding.saving.gpu_ns_per_step, 350_000.0);
    }

    #[test]
    fn waiting_for_a_late_rank_is_no_saving() {
        // Rank 0 waits 30 us for rank 1; both transfer for 40 us.
        let mut late = arriving(NCCL, 30_000, 40_000);
        late.meta.rank = TraceDsl::rank(1).build().meta.rank;
        let ranks = [all_reduces(NCCL, 70_000), late];
        let (_, finding) = outcome_of(&ranks, "COMM001");
        let saving = finding.expect("a finding").saving;
        assert_eq!(saving.gpu_ns_per_step, 350_000.0);
        assert_eq!(saving.simulation_error_ns, Some(0));
    }

    #[test]
    fn fast_ones_are_not() {
        clear(all_reduces(NCCL, 4_500), "COMM001");
    }

    #[test]
    fn without_all_reduces_it_does_not_apply() {
        not_applicable(all_reduces("nvjet_tst", 40_000), "COMM001");
    }
}
