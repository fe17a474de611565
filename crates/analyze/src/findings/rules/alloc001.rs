//! ALLOC001: device memory is allocated in the steady state.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};

/// One call in ten steps is too many.
const MOST_PER_STEP: f64 = 0.1;

pub(super) const RULE: Rule = Rule {
    code: "ALLOC001",
    name: "allocation in the steady state",
    check,
    doc: "\
## What it is
`cudaMalloc` or `cudaFree` is called during decode.

## Why it costs
Both take from tens of microseconds to milliseconds, and `cudaFree` waits for all work on the device.
A warm caching allocator calls neither.

## How it is found
At least one such call in ten steps.

## What to do
Warm up longer before the capture; give the allocator room (smaller `--mem-fraction-static`), avoid
`torch.cuda.empty_cache()` in the loop, set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let launches = facts.launches;
    if launches.calls.is_empty() {
        return Outcome::not_applicable("no API calls were recorded");
    }
    if launches.allocations_per_step < MOST_PER_STEP {
        return Outcome::Clear;
    }
    let calls = launches.calls.iter().filter(|call| call.class == "allocation");
    let ns: f64 = calls.map(|call| call.ns_per_step).sum();
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "device memory is allocated or freed {:.1} times per step",
            launches.allocations_per_step
        ),
        evidence: vec![
            evidence("calls", launches.allocations_per_step, "per_step"),
            evidence("host time in them", ns, "ns"),
        ],
        advice:
            "warm up longer, give the caching allocator room, do not empty its cache in the loop"
                .to_owned(),
        remedy: Remedy::LessIdle { period_ns: ns },
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, no_steps, not_applicable, steps};
    use steptally_trace_model::Trace;

    fn calls(name: &str) -> Trace {
        steps(5, 100_000, |dsl, at, id| {
            dsl.api(name, at + 300..at + 2300)
                .launch("cudaLaunchKernel", at + 2500..at + 2600, id)
                .kernel("nvjet_tst", at + 3000..at + 90_000)
                .correlation(id)
        })
    }

    #[test]
    fn allocation_in_every_step_is_found() {
        let finding = found(calls("cudaMalloc"), "ALLOC001");
        assert_eq!((finding.evidence[0].value, finding.evidence[1].value), (1.0, 2000.0));
    }

    #[test]
    fn stream_ordered_allocation_is_not() {
        clear(calls("cudaMallocAsync"), "ALLOC001");
    }

    #[test]
    fn without_steps_it_does_not_apply() {
        not_applicable(no_steps(), "ALLOC001");
    }
}
