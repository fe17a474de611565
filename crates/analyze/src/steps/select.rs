//! From detected steps to the ones that are accounted for: order, periods, cuts, selection.

use std::collections::BTreeMap;

use steptally_trace_model::interval::{Interval, merge_sorted};
use steptally_trace_model::{Nanos, Timestamp};

use super::{DetectedStep, Detection};
use crate::Config;
use crate::gpu::Lane;
use crate::results::{RankSteps, Selected, Step, StepTable};
use crate::stats::{distribution, median};

/// A step is an outlier from this many times the median of its lane on,
pub(crate) const OUTLIER_FACTOR: f64 = 3.0;
/// where there are at least this many steps
const MIN_STEPS: usize = 5;
/// and it is at most one in this many (one is always allowed): more are no exceptions.
const OUTLIERS_ONE_IN: usize = 10;

/// The steps of one lane with their periods.
#[derive(Clone, Debug)]
pub(crate) struct LaneSteps {
    /// In order of their start; those without GPU work last.
    pub(crate) steps: Vec<DetectedStep>,
    /// The period of each; `None` when it has no successor, no GPU work, or began too early.
    pub(crate) periods: Vec<Option<Interval>>,
}

/// The steps that ledger, kernels and ops are about.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) kind: String,
    /// Per lane the positions in its [`LaneSteps`].
    pub(crate) lanes: Vec<Vec<usize>>,
}

/// Steps that the selection had and has no more.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOutSteps {
    pub(crate) window_start_count: u64,
    /// (lane, position).
    pub(crate) outliers: Vec<(usize, usize)>,
}

impl LaneSteps {
    fn new(mut steps: Vec<DetectedStep>) -> Self {
        steps.sort_by_key(|step| (step.start.is_none(), step.start));
        let start_after = |start: Timestamp| {
            let next = steps.partition_point(|step| step.start.is_some_and(|s| s <= start));
            steps.get(next).and_then(|step| step.start)
        };
        let periods = steps
            .iter()
            .map(|step| {
                let start = step.start.filter(|_| !step.cut_at_start)?;
                Some(Interval { start, end: start_after(start)? })
            })
            .collect();
        Self { steps, periods }
    }
}

impl Selection {
    /// Steps (lane, position) so long that the means would be about them instead of the others.
    pub(crate) fn outliers(&self, lanes: &[LaneSteps]) -> Vec<(usize, usize)> {
        let of_lane = |(index, (steps, lane)): (usize, (&Vec<usize>, &LaneSteps))| {
            let period = |&step: &usize| lane.periods[step].map(|period| period.length().as_ns());
            let mut periods: Vec<i64> = steps.iter().filter_map(period).collect();
            let limit = median(&mut periods).map_or(f64::INFINITY, |m| OUTLIER_FACTOR * m);
            let is_long = |step: &usize| period(step).is_some_and(|p| p as f64 > limit);
            let long: Vec<usize> = steps.iter().copied().filter(is_long).collect();
            let allowed = (steps.len() / OUTLIERS_ONE_IN).max(1);
            let exceptions = steps.len() >= MIN_STEPS && long.len() <= allowed;
            long.into_iter().filter(|_| exceptions).map(|step| (index, step)).collect::<Vec<_>>()
        };
        self.lanes.iter().zip(lanes).enumerate().flat_map(of_lane).collect()
    }

    /// The selection without these steps (lane, position); `None` when that changes nothing, or
    /// leaves a lane without any.
    pub(crate) fn without(&self, left_out: &[(usize, usize)]) -> Option<Self> {
        let mut lanes = self.lanes.clone();
        for (index, steps) in lanes.iter_mut().enumerate() {
            let before = steps.len();
            steps.retain(|step| !left_out.contains(&(index, *step)));
            if steps.is_empty() && before > 0 {
                return None;
            }
        }
        (lanes != self.lanes).then(|| Self { kind: self.kind.clone(), lanes })
    }
}

/// Works out periods and selects the steps that `config` asks for.
pub(crate) fn select(
    detection: &Detection,
    config: &Config,
) -> (Vec<LaneSteps>, Option<Selection>) {
    let lanes: Vec<LaneSteps> =
        detection.lanes.iter().map(|steps| LaneSteps::new(steps.clone())).collect();
    let kind = config.kind.clone().or_else(|| default_kind(&lanes));
    let selection = kind.map(|kind| {
        let of_kind = |lane: &LaneSteps| {
            (0..lane.steps.len())
                .filter(|&i| lane.periods[i].is_some() && lane.steps[i].kind.to_string() == kind)
                .zip(0u64..)
                .filter(|(_, n)| config.steps.as_ref().is_none_or(|range| range.contains(n)))
                .map(|(step, _)| step)
                .collect()
        };
        Selection { lanes: lanes.iter().map(of_kind).collect(), kind }
    });
    let selection = selection.filter(|s| s.lanes.iter().any(|steps| !steps.is_empty()));
    (lanes, selection)
}

/// Decode if any decode step has a period, else the kind whose periods take most time.
fn default_kind(lanes: &[LaneSteps]) -> Option<String> {
    let mut time: BTreeMap<String, Nanos> = BTreeMap::new();
    for lane in lanes {
        for (step, period) in lane.steps.iter().zip(&lane.periods) {
            if let Some(period) = period {
                *time.entry(step.kind.to_string()).or_default() += period.length();
            }
        }
    }
    if time.contains_key("decode") {
        return Some("decode".to_owned());
    }
    time.into_iter().max_by_key(|(_, time)| *time).map(|(kind, _)| kind)
}

/// The table of steps as it is reported.
pub(crate) fn step_table(
    detection: &Detection,
    lanes: &[Lane<'_>],
    lane_steps: &[LaneSteps],
    selection: Option<&Selection>,
    left_out: &LeftOutSteps,
) -> StepTable {
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    let mut steps = Vec::new();
    let mut ranks = Vec::new();
    for (index, (lane, found)) in lanes.iter().zip(lane_steps).enumerate() {
        let chosen = selection.map_or(&[][..], |selection| &selection.lanes[index]);
        let busy = busy_within(lane, &found.periods);
        let first = steps.len();
        for (position, step) in found.steps.iter().enumerate() {
            *kinds.entry(step.kind.to_string()).or_default() += 1;
            steps.push(Step {
                rank: lane.rank(),
                device: lane.device,
                index: position as u64,
                kind: step.kind.to_string(),
                batch_size: step.batch_size,
                start_ns: step.start.map(Timestamp::as_ns),
                period_ns: found.periods[position].map(|period| period.length().as_ns()),
                gpu_busy_ns: busy[position].map(Nanos::as_ns),
                selected: chosen.binary_search(&position).is_ok(),
                outlier: left_out.outliers.contains(&(index, position)),
            });
        }
        let own = || steps[first..].iter().filter(|step: &&Step| step.selected);
        let period = distribution(own().filter_map(|step| step.period_ns));
        let busy = distribution(own().filter_map(|step| step.gpu_busy_ns));
        if let (Some(period_ns), Some(gpu_busy_ns)) = (period, busy) {
            let (rank, device) = (lane.rank(), lane.device);
            ranks.push(RankSteps { rank, device, period_ns, gpu_busy_ns });
        }
    }
    let selected = || steps.iter().filter(|step| step.selected);
    let batch_size = selected().next().and_then(|step| step.batch_size);
    StepTable {
        detected_by: detection.detected_by.to_owned(),
        confidence: detection.confidence,
        explanation: detection.explanation.clone(),
        kinds,
        selected: selection.map(|selection| Selected {
            kind: selection.kind.clone(),
            n: selected().count() as u64,
            batch_size: batch_size.filter(|_| selected().all(|step| step.batch_size == batch_size)),
        }),
        cut_count: steps.iter().filter(|s| s.start_ns.is_some() && s.period_ns.is_none()).count()
            as u64,
        window_start_count: left_out.window_start_count,
        outlier_count: left_out.outliers.len() as u64,
        period_ns: distribution(selected().filter_map(|step| step.period_ns)),
        gpu_busy_ns: distribution(selected().filter_map(|step| step.gpu_busy_ns)),
        ranks,
        steps,
    }
}

/// The union of GPU work within each period. Periods are in order and do not overlap.
fn busy_within(lane: &Lane<'_>, periods: &[Option<Interval>]) -> Vec<Option<Nanos>> {
    let merged = merge_sorted(lane.ops.iter().map(|op| op.interval()));
    let mut from = 0;
    let busy = |period: Interval| {
        while merged.get(from).is_some_and(|interval| interval.end <= period.start) {
            from += 1;
        }
        merged[from..]
            .iter()
            .take_while(|interval| interval.start < period.end)
            .map(|interval| interval.clip(period).length())
            .sum()
    };
    let mut busy = busy;
    periods.iter().map(|period| period.map(&mut busy)).collect()
}
