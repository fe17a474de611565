//! MEM001: pageable or many tiny copies between host and device.

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

pub(super) const RULE: Rule = Rule {
    code: "MEM001",
    name: "pageable or tiny host copies",
    check,
    doc: "\
## What it is
Copies between host and device that are pageable, or many and tiny.

## Why it costs
A copy from or into pageable memory goes through a staging buffer and blocks the host. A tiny copy
costs a call and a slot in the stream, a few microseconds each, whatever its size.

## How it is found
At least one pageable copy in every second step, or more than 8 copies per step of up to 64 KiB
between host and device.

## What to do
Allocate host buffers with `pin_memory=True` and copy with `non_blocking=True`; put the small tensors
of a step into one buffer and copy it once.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let (mut copies, mut pageable, mut tiny, mut ns) = (0u64, 0u64, 0u64, 0i64);
    for view in facts.views {
        let table = &view.lane.trace.copies;
        for_each_in(view.lane, &view.windows, |_, op| {
            let row = op.row as usize;
            let host = op.kind == GpuKind::Copy
                && matches!(table.kind[row], CopyKind::HostToDevice | CopyKind::DeviceToHost);
            if host {
                copies += 1;
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
