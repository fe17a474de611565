//! What a fix is worth of the step without the profiler.
//!
//! A profiler slows the host and leaves the GPU as it is. So the step without it is the captured one
//! with a faster host. How much faster tells TPOT: at the host's pace a replay without any change takes
//! as long. Where the GPU is the bound without the profiler, any faster host would do; then, and without
//! a TPOT, the recorded events tell. The fix is then replayed at that pace. Idle time that a fix would
//! remove is cut in the proportion in which the step's idle time is.
//!
//! All fixes start from the same step: TPOT, or the estimate where there is none.
//!
//! Each is done three times, for what the profiler adds likely, at least and at most: the largest
//! difference from the likely one is the uncertainty.

use super::saving::Lanes;
use crate::profiler_cost::Cost;
use crate::results::{ProfilerCostBasis, UnprofiledSaving};
use crate::simulate::{Change, Pace};
use crate::view::LaneView;

/// The step under the profiler, in means, and what the profiler adds to it.
#[derive(Clone, Copy)]
pub(super) struct Profiled {
    period_ns: f64,
    busy_ns: f64,
    has_tpot: bool,
    /// Likely, least, most.
    added_ns: [f64; 3],
    /// To the host, by the events.
    host_ns: Option<[f64; 3]>,
    /// Periods without the profiler: likely, longest, shortest.
    periods_ns: [f64; 3],
}

/// More than this share of a period off, a replay at any pace is of another step.
const FAR_OFF: f64 = 0.25;
/// A step that takes no longer than this many times what the GPU takes alone is bound by the GPU.
const GPU_BOUND: f64 = 1.1;

impl Profiled {
    pub(super) fn new(period_ns: f64, busy_ns: f64, cost: &Cost) -> Self {
        let result = &cost.result;
        let has_tpot = result.basis == ProfilerCostBasis::Baseline;
        let added_ns =
            [result.added_ns_per_step, result.least_ns_per_step, result.most_ns_per_step];
        let least = if has_tpot { 0.0 } else { busy_ns.min(period_ns) };
        let periods_ns = added_ns.map(|added| (period_ns - added).max(least));
        Self { period_ns, busy_ns, has_tpot, added_ns, host_ns: cost.host_ns, periods_ns }
    }

    /// The same step for what is not replayed: without a TPOT a replay knows better how much of what
    /// the profiler adds to the host is added to the step.
    pub(super) fn at(self, paces: Option<&Paces>) -> Self {
        let replayed = paces.map_or(self.periods_ns, |paces| paces.before_ns);
        Self { periods_ns: if self.has_tpot { self.periods_ns } else { replayed }, ..self }
    }

    /// Of a fix that removes `ns` of the period's idle time at most.
    pub(super) fn less_idle(self, ns: f64) -> UnprofiledSaving {
        let idle = (self.period_ns - self.busy_ns).max(1.0);
        let left = |period: f64| (period - self.busy_ns).max(0.0) / idle;
        summary(self.periods_ns.map(|period| (period, period - (ns * left(period)).min(period))))
    }

    /// Of a fix that removes `ns` at most in which the host of another rank is waited for: of a step
    /// that the hosts bound it is the same share without the profiler.
    pub(super) fn less_waiting(self, ns: f64) -> UnprofiledSaving {
        let share = (ns / self.period_ns.max(1.0)).min(1.0);
        summary(self.periods_ns.map(|period| (period, period * (1.0 - share))))
    }

    /// Of a fix that shortens the period by `ns` at most, whatever the host does.
    pub(super) fn shorter(self, ns: f64) -> UnprofiledSaving {
        summary(self.periods_ns.map(|period| (period, period - ns.min(period))))
    }

    /// The pace of the host for what the profiler adds likely, least and most; `None` when a replay at
    /// the likely one is far from TPOT.
    pub(super) fn paces(self, lanes: &Lanes<'_>) -> Option<Paces> {
        let (captured, _) = unchanged(lanes, Pace::CAPTURED)?;
        let host = lanes.host_ns();
        let by_events = self
            .host_ns
            .map(|added| added.map(|added| Pace((1.0 - added / host.max(1.0)).clamp(0.0, 1.0))));
        let mut off_ns = 0.0;
        let paces = if self.has_tpot {
            let wanted = self.added_ns.map(|added| captured - added);
            let (_, of_gpu) = unchanged(lanes, Pace(0.0))?;
            let paces = if wanted[0] > GPU_BOUND * of_gpu {
                [pace(lanes, wanted[0])?, pace(lanes, wanted[1])?, pace(lanes, wanted[2])?]
            } else {
                let slowest = pace(lanes, wanted[1].max(of_gpu))?;
                let likely = by_events.map_or(slowest.0 / 2.0, |[likely, ..]| likely.0);
                [Pace(likely.min(slowest.0)), slowest, Pace(0.0)]
            };
            off_ns = (unchanged(lanes, paces[0])?.1 - wanted[0]).abs();
            paces
        } else {
            by_events?
        };
        let mut before_ns = [captured; 3];
        for (before, pace) in before_ns.iter_mut().zip(paces) {
            (_, *before) = unchanged(lanes, pace)?;
        }
        let from_ns = if self.has_tpot { self.periods_ns } else { before_ns };
        let close = off_ns <= FAR_OFF * before_ns[0];
        close.then_some(Paces { paces, before_ns, from_ns, off_ns })
    }
}

/// Mean periods as captured, and at this pace.
fn unchanged(lanes: &Lanes<'_>, pace: Pace) -> Option<(f64, f64)> {
    lanes.periods(&|view| vec![Change::Keep; view.lane.ops.len()], pace)
}

/// The pace at which the mean period is `wanted`.
fn pace(lanes: &Lanes<'_>, wanted: f64) -> Option<Pace> {
    let (captured, _) = unchanged(lanes, Pace::CAPTURED)?;
    if captured <= wanted {
        return Some(Pace::CAPTURED);
    }
    let (mut slow, mut fast) = (1.0, 0.0);
    for _ in 0..14 {
        let middle = Pace((slow + fast) / 2.0);
        if unchanged(lanes, middle)?.1 > wanted { slow = middle.0 } else { fast = middle.0 }
    }
    Some(Pace((slow + fast) / 2.0))
}

/// Hosts without the profiler, and the periods that a replay has with them.
pub(super) struct Paces {
    paces: [Pace; 3],
    before_ns: [f64; 3],
    /// The periods that savings are taken from: TPOT where it is known.
    from_ns: [f64; 3],
    off_ns: f64,
}

impl Paces {
    /// Of a fix that changes GPU work.
    pub(super) fn replay(
        &self,
        lanes: &Lanes<'_>,
        changes: &dyn Fn(&LaneView<'_>) -> Vec<Change>,
    ) -> Option<UnprofiledSaving> {
        let mut periods = [(0.0, 0.0); 3];
        for (index, pace) in self.paces.into_iter().enumerate() {
            let (_, after) = lanes.periods(changes, pace)?;
            let from = self.from_ns[index];
            periods[index] = (from, (from - (self.before_ns[index] - after)).max(0.0));
        }
        let saving = summary(periods);
        Some(UnprofiledSaving { uncertainty_ns: saving.uncertainty_ns + self.off_ns, ..saving })
    }
}

/// Of (period before, after): likely, and the two extremes.
fn summary(periods: [(f64, f64); 3]) -> UnprofiledSaving {
    let [(before, after), ..] = periods;
    let off = periods.map(|(b, a)| ((b - a) - (before - after)).abs());
    UnprofiledSaving {
        period_before_ns: before,
        period_after_ns: after,
        uncertainty_ns: off.into_iter().fold(0.0, f64::max),
    }
}
