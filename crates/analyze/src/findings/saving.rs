//! What fixing a finding is worth: the GPU time it removes, and the period after it.

use hashbrown::HashMap;

use super::Facts;
use super::unprofiled::Profiled;
use crate::gpu::GpuOp;
use crate::profiler_cost::Cost;
use crate::results::{Saving, SavingMethod};
use crate::simulate::{Change, MatchedCollective, Pace, Replay, Simulation, run};
use crate::view::LaneView;

/// Tells which pieces of work of a lane a fix changes.
pub(crate) type Changes = Box<dyn Fn(&LaneView<'_>) -> Vec<Change>>;

/// What a fix does.
pub(crate) enum Remedy {
    /// It removes or resizes GPU work: the step is re-simulated.
    Change(Changes),
    /// It shortens the period by at most this many ns per step, and removes this much GPU time.
    UpperBound { period_ns: f64, gpu_ns: f64 },
    /// It shortens the period by at most this many ns of idle time per step, in which the GPU waits
    /// for the host.
    LessIdle { period_ns: f64 },
    /// It shortens the period by at most this many ns per step, in which ranks wait for the host of
    /// another. Their kernels wait in it, which is no work: no GPU time is removed.
    LessWaiting { period_ns: f64 },
    /// No saving is claimed.
    None,
}

impl Remedy {
    /// Gives work another length in ns where `length` says so.
    pub(crate) fn resize(length: impl Fn(&LaneView<'_>, GpuOp) -> Option<i64> + 'static) -> Self {
        Self::Change(Box::new(move |view| {
            let ops = view.lane.ops.iter();
            ops.map(|op| length(view, *op).map_or(Change::Keep, Change::Resize)).collect()
        }))
    }

    /// Removes the work that `matches`.
    pub(crate) fn remove(matches: impl Fn(&LaneView<'_>, GpuOp) -> bool + 'static) -> Self {
        Self::Change(Box::new(move |view| {
            let ops = view.lane.ops.iter();
            ops.map(|op| if matches(view, *op) { Change::Remove } else { Change::Keep }).collect()
        }))
    }
}

/// A finding is worth the larger of the two figures.
pub(crate) fn worth(saving: &Saving) -> f64 {
    let period = saving.period_before_ns.zip(saving.period_after_ns).map_or(0.0, |(b, a)| b - a);
    saving.gpu_ns_per_step.max(period)
}

/// The saving of each remedy, and of all simulated ones together.
pub(crate) fn work_out(
    facts: &Facts<'_>,
    remedies: &[&Remedy],
    cost: Option<&Cost>,
) -> (Vec<Saving>, Option<Saving>) {
    let simulated: Vec<&Changes> = (remedies.iter())
        .filter_map(|remedy| match remedy {
            Remedy::Change(changes) => Some(changes),
            _ => None,
        })
        .collect();
    let mut lanes = if simulated.is_empty() { Lanes::default() } else { Lanes::new(facts) };
    let error = lanes.error_ns();
    let at_most = |gpu_ns: f64, period_ns: f64| Saving {
        gpu_ns_per_step: gpu_ns,
        period_before_ns: Some(facts.period_ns()),
        period_after_ns: Some((facts.period_ns() - period_ns).max(0.0)),
        method: SavingMethod::UpperBound,
        ..Saving::default()
    };
    let mut savings: Vec<Saving> = (remedies.iter())
        .map(|remedy| match remedy {
            Remedy::Change(changes) => lanes.simulate(changes, error),
            Remedy::UpperBound { period_ns, gpu_ns } => at_most(*gpu_ns, *period_ns),
            Remedy::LessWaiting { period_ns } | Remedy::LessIdle { period_ns } => {
                at_most(0.0, *period_ns)
            }
            Remedy::None => Saving::default(),
        })
        .collect();
    let all = |view: &LaneView<'_>| {
        let mut joined = vec![Change::Keep; view.lane.ops.len()];
        for changes in &simulated {
            for (joined, change) in joined.iter_mut().zip(changes(view)) {
                if change != Change::Keep {
                    *joined = change;
                }
            }
        }
        joined
    };
    let mut combined = (simulated.len() > 1).then(|| lanes.simulate(&all, error));

    if let Some(cost) = cost {
        let profiled = Profiled::new(facts.period_ns(), facts.busy_ns(), cost);
        lanes.shorten();
        let paces = profiled.paces(&lanes);
        let profiled = profiled.at(paces.as_ref());
        for (saving, remedy) in savings.iter_mut().zip(remedies) {
            saving.unprofiled = match remedy {
                Remedy::Change(changes) => {
                    paces.as_ref().and_then(|paces| paces.replay(&lanes, changes))
                }
                Remedy::UpperBound { period_ns, .. } => Some(profiled.shorter(*period_ns)),
                Remedy::LessIdle { period_ns } => Some(profiled.less_idle(*period_ns)),
                Remedy::LessWaiting { period_ns } => Some(profiled.less_waiting(*period_ns)),
                Remedy::None => None,
            };
        }
        if let (Some(combined), Some(paces)) = (&mut combined, &paces) {
            combined.unprofiled = paces.replay(&lanes, &all);
        }
    }
    (savings, combined)
}

/// Pieces of work of a lane that are replayed for the step without the profiler: some steps say as
/// much as all of them.
const MOST_WORK: usize = 10_000;

/// All lanes with selected steps, prepared for simulation.
#[derive(Default)]
pub(super) struct Lanes<'a> {
    views: Vec<&'a LaneView<'a>>,
    replays: Vec<Replay<'a>>,
    matched: &'a [MatchedCollective],
}

impl<'a> Lanes<'a> {
    fn new(facts: &Facts<'a>) -> Self {
        let with_steps = facts.views.iter().enumerate();
        let (views, replays) =
            with_steps.filter_map(|(index, view)| Some((view, Replay::new(index, view)?))).unzip();
        Self { views, replays, matched: facts.matched }
    }

    fn shorten(&mut self) {
        for replay in &mut self.replays {
            replay.shorten(MOST_WORK);
        }
    }

    /// Mean periods as captured, and with these changes and this pace; `None` without lanes.
    pub(super) fn periods(
        &self,
        changes: &dyn Fn(&LaneView<'_>) -> Vec<Change>,
        pace: Pace,
    ) -> Option<(f64, f64)> {
        let changes: Vec<Vec<Change>> = self.views.iter().map(|view| changes(view)).collect();
        means(&run(&self.replays, self.matched, &changes, pace))
    }

    /// Mean time of a step in which the host does not wait for the GPU.
    pub(super) fn host_ns(&self) -> f64 {
        let times: Vec<i64> = self.replays.iter().flat_map(Replay::host_times).collect();
        times.iter().sum::<i64>() as f64 / times.len().max(1) as f64
    }

    /// How far off the captured periods a replay without any change is, at most.
    fn error_ns(&self) -> i64 {
        let unchanged = |view: &&LaneView<'_>| vec![Change::Keep; view.lane.ops.len()];
        let changes: Vec<_> = self.views.iter().map(unchanged).collect();
        let runs = run(&self.replays, self.matched, &changes, Pace::CAPTURED);
        runs.iter().map(Simulation::error_ns).max().unwrap_or(0)
    }

    fn simulate(&self, changes: &dyn Fn(&LaneView<'_>) -> Vec<Change>, error: i64) -> Saving {
        let changes: Vec<Vec<Change>> = self.views.iter().map(|view| changes(view)).collect();
        let mut removed = 0;
        for ((view, replay), changes) in self.views.iter().zip(&self.replays).zip(&changes) {
            let own = replay.matched(self.matched).map(|kernel| (kernel.op, kernel.transfer_ns));
            removed += removed_ns(view, &own.collect(), changes);
        }
        let runs = run(&self.replays, self.matched, &changes, Pace::CAPTURED);
        let Some((before, after)) = means(&runs) else { return Saving::default() };
        let n: usize = runs.iter().map(|run| run.before.len()).sum();
        let host_bound = runs.iter().map(|run| run.host_bound_ratio).fold(0.0, f64::max) > 0.5;
        Saving {
            gpu_ns_per_step: removed as f64 / n as f64,
            period_before_ns: Some(before),
            period_after_ns: Some(after),
            method: SavingMethod::Simulated,
            simulation_error_ns: Some(error),
            next_bound: Some(if host_bound { "host" } else { "gpu" }.to_owned()),
            unprofiled: None,
        }
    }
}

/// Mean periods before and after, over the steps of all lanes; `None` without steps.
fn means(runs: &[Simulation]) -> Option<(f64, f64)> {
    let n: usize = runs.iter().map(|run| run.before.len()).sum();
    let mean =
        |of: fn(&Simulation) -> &Vec<i64>| runs.iter().flat_map(of).sum::<i64>() as f64 / n as f64;
    (n > 0).then(|| (mean(|run| &run.before), mean(|run| &run.after)))
}

/// GPU time that the changes remove from the accounted windows. Of a collective only its `transfer`
/// counts, where that is known: waiting for another rank is no work.
fn removed_ns(view: &LaneView<'_>, transfer: &HashMap<usize, i64>, changes: &[Change]) -> i64 {
    let mut removed = 0;
    crate::kernels::for_each_in(view.lane, &view.windows, |index, op| {
        let length = || {
            let whole = (op.end - op.start).as_ns();
            transfer.get(&index).map_or(whole, |transfer| whole.min(*transfer))
        };
        removed += match changes[index] {
            Change::Keep => 0,
            Change::Remove => length(),
            Change::Resize(to) => (length() - to).max(0),
        };
    });
    removed
}
