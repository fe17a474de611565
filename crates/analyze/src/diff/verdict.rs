//! The verdict, and what it rests on.

use super::reason;
use crate::results::{Bound, Change, DecidedBy, Diff, Effect, Reason, Verdict};

/// GPU busy time that moves against the period by more than this share of its change contradicts it.
const CONTRADICTS: f64 = 0.1;

/// Numbers of recorded events per step that differ by more than this share of the larger: the
/// profiler costs the two sides differently.
const EVENTS_DIFFER: f64 = 0.1;

/// What `Diff` says about the outcome.
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    pub(super) decided_by: DecidedBy,
    pub(super) reasons: Vec<Reason>,
    pub(super) cautions: Vec<Reason>,
}

/// Judges a diff whose measures are filled in; `steps` says whether both sides have steps.
pub(super) fn judge(diff: &Diff, steps: bool) -> Judged {
    if diff.same_capture {
        let reason = reason("same_capture", "both are the same capture");
        return judged(Verdict::Neutral, DecidedBy::Nothing, reason);
    }
    let comparability = &diff.comparability;
    if !comparability.comparable && !comparability.forced {
        let mut differing: Vec<_> =
            comparability.checks.iter().filter(|check| check.penalty > 0.0).collect();
        differing.sort_by(|a, b| b.penalty.total_cmp(&a.penalty));
        let text: Vec<String> = differing
            .iter()
            .map(|check| format!("{} ({} against {})", check.code, check.a, check.b))
            .collect();
        let text = format!("the two cannot be compared: {}", text.join("; "));
        return judged(Verdict::Inconclusive, DecidedBy::Nothing, reason("not_comparable", text));
    }
    let mut judged = match (&diff.tpot, &diff.period, &diff.gpu_busy) {
        (Some(tpot), _, _) => by_tpot(tpot),
        (None, Some(period), Some(busy)) if steps => by_profile(diff, period, busy),
        _ => {
            let reason = reason("no_steps", "one of the two has no steps with a period");
            judged(Verdict::Inconclusive, DecidedBy::Nothing, reason)
        }
    };
    if !comparability.comparable {
        let text = "the two are not comparable; the verdict is given because it was forced";
        judged.cautions.push(reason("forced", text));
    }
    judged
}

fn judged(verdict: Verdict, decided_by: DecidedBy, reason: Reason) -> Judged {
    Judged { verdict, decided_by, reasons: vec![reason], cautions: Vec::new() }
}

fn by_tpot(tpot: &Change) -> Judged {
    let (verdict, text) = match tpot.effect {
        Effect::Longer => (Verdict::Regression, "TPOT without a profiler grew"),
        Effect::Shorter => (Verdict::Improvement, "TPOT without a profiler shrank"),
        Effect::Unchanged | Effect::Unclear => {
            (Verdict::Neutral, "TPOT without a profiler is the same within its noise")
        }
    };
    judged(verdict, DecidedBy::Tpot, reason("tpot", text))
}

fn by_profile(diff: &Diff, period: &Change, busy: &Change) -> Judged {
    let gpu_bound = |bound| bound == Some(Bound::Gpu);
    let both_gpu = gpu_bound(diff.a.bound) && gpu_bound(diff.b.bound);
    let decide = |verdict, reason| judged(verdict, DecidedBy::Profile, reason);
    let inconclusive = |code, text| decide(Verdict::Inconclusive, reason(code, text));

    let moved = match period.effect {
        Effect::Longer => Some((Verdict::Regression, "the profiled period grew")),
        Effect::Shorter => Some((Verdict::Improvement, "the profiled period shrank")),
        Effect::Unchanged | Effect::Unclear => None,
    };
    // Without the profiler a step takes between its GPU busy time and its profiled period.
    if let Some((verdict, text)) = moved {
        let apart = period.b_ns < busy.a_ns || busy.b_ns > period.a_ns;
        if apart {
            let text = format!("{text} beyond what the profiler can explain");
            return decide(verdict, reason("period_beyond_profiler", text));
        }
        let against = busy.change_ns * period.change_ns < 0.0
            && busy.change_ns.abs() > busy.noise_floor_ns
            && busy.change_ns.abs() > CONTRADICTS * period.change_ns.abs();
        if !both_gpu && against {
            return inconclusive(
                "gpu_busy_contradicts",
                "the profiled period and GPU busy time changed in opposite directions, and where \
                 the GPU is not the bound the period holds the profiler's own cost",
            );
        }
        let mut judged = decide(verdict, reason("period", format!("{text} beyond the noise")));
        if !both_gpu {
            judged.cautions.push(reason(
                "size_unknown",
                "the GPU is not the bound of both, so part of the change can be the profiler's own \
                 cost: the direction is likely, the size without a profiler is not known",
            ));
            judged.cautions.extend(events_differ(diff));
        }
        return judged;
    }

    let busy_moved = matches!(busy.effect, Effect::Longer | Effect::Shorter);
    if !both_gpu && busy_moved {
        return inconclusive(
            "gpu_busy_differs",
            "the profiled periods do not differ beyond their noise, but GPU busy time does: where the \
             GPU is not the bound the profiler's own cost on the host can hide what changed",
        );
    }
    if !both_gpu && let Some(differ) = events_differ(diff) {
        return Judged {
            reasons: vec![
                reason(
                    "profiler_cost_differs",
                    "the profiled periods do not differ beyond their noise, but the profiler costs the \
                     two sides differently, so the steps without it may",
                ),
                differ,
            ],
            ..inconclusive("", "")
        };
    }
    if period.effect == Effect::Unclear {
        let code = if period.interval_ns.is_none() { "few_steps" } else { "noise" };
        let text = match code {
            "few_steps" => "a side has fewer than 3 steps: nothing tells a change from noise",
            _ => {
                "the interval of the change holds both no change and changes above the noise floor"
            }
        };
        return inconclusive(code, text);
    }
    let text = "the profiled periods and GPU busy times are the same within the noise";
    let mut judged = decide(Verdict::Neutral, reason("period", text));
    if !both_gpu {
        judged.cautions.push(reason(
            "profiled_only",
            "the GPU is not the bound of both: a change on the host that is small against the \
             profiler's own cost would not show",
        ));
    }
    judged
}

/// Whether the profiler recorded clearly more on one side.
fn events_differ(diff: &Diff) -> Option<Reason> {
    let (a, b) = (diff.a.events_per_step?, diff.b.events_per_step?);
    let differ = (a - b).abs() > EVENTS_DIFFER * a.max(b);
    let text = format!("the profiler recorded {a:.0} events per step in A and {b:.0} in B");
    differ.then(|| reason("events_differ", text))
}
