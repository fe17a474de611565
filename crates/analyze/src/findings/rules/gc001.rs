//! GC001: Python's garbage collector runs during decode.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};

/// Time in it of at least this share of all periods together.
const LEAST_RATIO: f64 = 0.005;

pub(super) const RULE: Rule = Rule {
    code: "GC001",
    name: "garbage collection pause",
    check,
    doc: "\
## What it is
Python's garbage collector runs in the scheduler's process while the GPU waits.

## Why it costs
A full collection of a large server takes tens to hundreds of milliseconds, at times that nobody chose.

## How it is found
Ranges or frames of a collection (`gc.collect`, `python_gc`, `Garbage Collection`) take at least 0.5 %
of the steps' time. Recorders show them only with stacks or GC tracing on: their absence proves
nothing.

## What to do
Freeze what is alive after warm-up (`gc.freeze()`; SGLang: `POST /freeze_gc`), raise the thresholds, or
collect between requests.",
};

fn is_collection(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ["gc.collect", "python_gc", "garbage collect", "python gc"].iter().any(|gc| lower.contains(gc))
}

fn check(facts: &Facts<'_>) -> Outcome {
    let recorded = facts.views.iter().any(|view| {
        let trace = view.lane.trace;
        !trace.frames.is_empty() || !trace.ranges.is_empty()
    });
    if !recorded {
        return Outcome::not_applicable("neither ranges nor Python frames were recorded");
    }
    let (mut count, mut ns) = (0u64, 0i64);
    for view in facts.views {
        let trace = view.lane.trace;
        let gc: Vec<bool> = trace.strings.iter().map(|(_, text)| is_collection(text)).collect();
        if !gc.contains(&true) {
            continue;
        }
        let tables = [
            (&trace.frames.name, &trace.frames.start, &trace.frames.duration),
            (&trace.ranges.name, &trace.ranges.start, &trace.ranges.duration),
        ];
        let windows = view.host_windows();
        for (names, starts, durations) in tables {
            for row in (0..names.len()).filter(|&row| gc[names[row].index()]) {
                let after = windows.partition_point(|window| window.end <= starts[row]);
                if windows.get(after).is_some_and(|window| window.start <= starts[row]) {
                    count += 1;
                    ns += durations[row].as_ns();
                }
            }
        }
    }
    let n = facts.ledger.n as f64;
    if (ns as f64) < LEAST_RATIO * facts.period_ns() * n {
        return Outcome::Clear;
    }
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "{count} garbage collections in {n:.0} steps, {:.2} ms in all",
            ns as f64 / 1e6
        ),
        evidence: vec![
            evidence("collections", count as f64, "count"),
            evidence("time in them", ns as f64 / n, "ns"),
        ],
        advice: "freeze what is alive after warm-up (gc.freeze(); SGLang: POST /freeze_gc)"
            .to_owned(),
        remedy: Remedy::LessIdle { period_ns: ns as f64 / n },
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, no_steps, not_applicable, steps};
    use steptally_trace_model::Trace;

    fn frames(name: &str) -> Trace {
        steps(5, 100_000, |dsl, at, id| {
            dsl.frame(name, at + 300..at + 2300)
                .launch("cudaLaunchKernel", at + 2500..at + 2600, id)
                .kernel("nvjet_tst", at + 3000..at + 90_000)
                .correlation(id)
        })
    }

    #[test]
    fn collections_are_found() {
        let finding = found(frames("<built-in function gc.collect>"), "GC001");
        // Four accounted steps.
        assert_eq!((finding.evidence[0].value, finding.evidence[1].value), (4.0, 2000.0));
    }

    #[test]
    fn other_frames_are_not() {
        clear(frames("scheduler.py(10): event_loop"), "GC001");
    }

    #[test]
    fn without_steps_it_does_not_apply() {
        not_applicable(no_steps(), "GC001");
    }
}
