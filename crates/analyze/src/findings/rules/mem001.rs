//! MEM001: pageable, many tiny or very long copies between host and device.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};
use crate::gpu::GpuKind;
use crate::kernels::for_each_in;
use steptally_trace_model::CopyKind;

/// Copies up to this size cost their launch, not their bytes.
const TINY_BYTES: u64 = 64 * 1024;
/// This many tiny copies per step are too many.
const MOST_TINY: f64 = 8.0;
/// One pageable copy per step is too many.
const MOST_PAGEABLE: f64 = 0.5;
/// The GPU does nothing but copy from or to the host for at least this share of the period.
const LONG_RATIO: f64 = 0.2;

pub(super) const RULE: Rule = Rule {
    code: "MEM001",
    name: "pageable, tiny or long host copies",
    check,
    doc: "\
## What it is
Copies between host and device that are pageable, many and tiny, or that take much of the step.

## Why it costs
A copy from or into pageable memory goes through a staging buffer and blocks the host. A tiny copy
costs a call and a slot in the stream, a few microseconds each, whatever its size. Weights or caches that
are kept on the host come over PCIe in every step, at a fiftieth of the GPU's memory bandwidth.

## How it is found
At least one pageable copy in every second step, or more than 8 copies per step of up to 64 KiB
between host and device, or at least 20 % of the period in which nothing but such copies runs
(`memcpy.h2d`, `memcpy.d2h`).

## What to do
Allocate host buffers with `pin_memory=True` and copy with `non_blocking=True`; put the small tensors
of a step into one buffer and copy it once. Keep weights on the GPU if they fit (no CPU offload, fewer
bits, more ranks), else copy those of the next layer while this one computes.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let (mut copies, mut pageable, mut tiny, mut ns, mut all_ns) = (0u64, 0u64, 0u64, 0i64, 0i64);
    for view in facts.views {
        let table = &view.lane.trace.copies;
        for_each_in(view.lane, &view.windows, |_, op| {
            let row = op.row as usize;
            let host = op.kind == GpuKind::Copy
                && matches!(table.kind[row], CopyKind::HostToDevice | CopyKind::DeviceToHost);
            if host {
                copies += 1;
                all_ns += (op.end - op.start).as_ns();
                let is_pageable = table.pageable[row] == Some(true);
                let is_tiny = table.bytes[row].value().is_some_and(|bytes| bytes <= TINY_BYTES);
                pageable += u64::from(is_pageable);
                tiny += u64::from(is_tiny);
                ns += if is_pageable || is_tiny { (op.end - op.start).as_ns() } else { 0 };
            }
        });
    }
    if copies == 0 {
        return Outcome::not_applicable("no copies between host and device in the steps");
    }
    let n = facts.ledger.n as f64;
    let (pageable, tiny) = (pageable as f64 / n, tiny as f64 / n);
    let exposed = facts.account_ns(|account| account == "memcpy.h2d" || account == "memcpy.d2h");
    let exposed_ratio = exposed / facts.period_ns();
    if exposed_ratio >= LONG_RATIO {
        return Outcome::Found(Box::new(long(exposed, exposed_ratio, all_ns as f64 / n)));
    }
    if pageable < MOST_PAGEABLE && tiny <= MOST_TINY {
        return Outcome::Clear;
    }
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "{pageable:.1} pageable and {tiny:.1} tiny copies between host and device per step"
        ),
        evidence: vec![
            evidence("pageable copies", pageable, "per_step"),
            evidence("copies of up to 64 KiB", tiny, "per_step"),
            evidence("GPU time in them", ns as f64 / n, "ns"),
        ],
        advice:
            "pin the host buffers and copy with non_blocking=True; gather the small tensors of \
                 a step into one copy"
                .to_owned(),
        remedy: Remedy::UpperBound { period_ns: 0.0, gpu_ns: ns as f64 / n },
    }))
}

/// Of copies that the GPU does nothing beside for so long and that share of the period, and all of
/// which take `all_ns` per step.
fn long(exposed_ns: f64, exposed_ratio: f64, all_ns: f64) -> Draft {
    Draft {
        headline: format!(
            "the GPU does nothing but copy from or to the host for {:.0} % of the step: weights or \
             caches kept on the host?",
            100.0 * exposed_ratio
        ),
        evidence: vec![
            evidence("time in which only such copies run", exposed_ns, "ns"),
            evidence("GPU time in them", all_ns, "ns"),
        ],
        advice:
            "keep the weights on the GPU if they fit (no CPU offload, fewer bits, more ranks), \
                 else copy those of the next layer while this one computes, from pinned memory"
                .to_owned(),
        remedy: Remedy::UpperBound { period_ns: exposed_ns, gpu_ns: all_ns },
    }
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, no_steps, not_applicable, steps};
    use steptally_trace_model::Trace;

    fn copies(count: i64, pageable: bool) -> Trace {
        steps(5, 100_000, |mut dsl, at, id| {
            dsl = dsl
                .launch("cudaLaunchKernel", at + 100..at + 200, id)
                .kernel("nvjet_tst", at + 1000..at + 40_000)
                .correlation(id);
            for k in 0..count {
                let start = at + 50_000 + k * 2000;
                dsl = dsl.memcpy_h2d(start..start + 1000, 8).pageable(pageable);
            }
            dsl
        })
    }

    #[test]
    fn a_pageable_copy_in_every_step_is_found() {
        let finding = found(copies(1, true), "MEM001");
        assert_eq!(finding.evidence[0].value, 1.0);
        assert_eq!(finding.saving.gpu_ns_per_step, 1000.0);
    }

    /// In each step of 100 us one pinned copy of 8 MB for `copy` us, of which 10 us are beside a kernel.
    fn long_copies(copy: i64) -> Trace {
        steps(5, 100_000, |dsl, at, id| {
            dsl.launch("cudaLaunchKernel", at + 100..at + 200, id)
                .kernel("nvjet_tst", at + 1000..at + 21_000)
                .correlation(id)
                .memcpy_h2d(at + 11_000..at + 11_000 + copy * 1000, 8 << 20)
                .pageable(false)
        })
    }

    #[test]
    fn copies_that_take_much_of_the_step_are_found() {
        // 70 us, 60 of them alone: 60 %.
        let finding = found(long_copies(70), "MEM001");
        assert!(finding.headline.contains("for 60 % of the step"), "{}", finding.headline);
        assert_eq!(finding.saving.gpu_ns_per_step, 70_000.0);
        assert_eq!(finding.saving.period_after_ns, Some(40_000.0));
        // 29 us, 19 alone.
        clear(long_copies(29), "MEM001");
    }

    #[test]
    fn a_few_pinned_copies_are_not() {
        clear(copies(8, false), "MEM001");
    }

    #[test]
    fn without_copies_it_does_not_apply() {
        not_applicable(copies(0, false), "MEM001");
        not_applicable(no_steps(), "MEM001");
    }
}
