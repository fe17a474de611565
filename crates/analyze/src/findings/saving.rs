//! What fixing a finding is worth: the GPU time it removes, and the period after it.

use hashbrown::HashMap;

use super::Facts;
use crate::gpu::GpuOp;
use crate::results::{Saving, SavingMethod};
use crate::simulate::{Change, MatchedCollective, Replay, Simulation, run};
use crate::view::LaneView;

/// Tells which pieces of work of a lane a fix changes.
pub(crate) type Changes = Box<dyn Fn(&LaneView<'_>) -> Vec<Change>>;

/// What a fix does.
pub(crate) enum Remedy {
    /// It removes or resizes GPU work: the step is re-simulated.
    Change(Changes),
    /// It shortens the period by at most this many ns per step, and removes this much GPU time.
    UpperBound { period_ns: f64, gpu_ns: f64 },
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
pub(crate) fn work_out(facts: &Facts<'_>, remedies: &[&Remedy]) -> (Vec<Saving>, Option<Saving>) {
    let simulated: Vec<&Changes> = (remedies.iter())
        .filter_map(|remedy| match remedy {
            Remedy::Change(changes) => Some(changes),
            _ => None,
        })
        .collect();
    let lanes = if simulated.is_empty() { Lanes::default() } else { Lanes::new(facts) };
    let error = lanes.error_ns();
    let savings = (remedies.iter())
        .map(|remedy| match remedy {
            Remedy::Change(changes) => lanes.simulate(&|view| changes(view), error),
            Remedy::UpperBound { period_ns, gpu_ns } => Saving {
                gpu_ns_per_step: *gpu_ns,
                period_before_ns: Some(facts.period_ns()),
                period_after_ns: Some((facts.period_ns() - period_ns).max(0.0)),
                method: SavingMethod::UpperBound,
                ..Saving::default()
            },
            Remedy::None => Saving::default(),
        })
        .collect();
    let combined = (simulated.len() > 1).then(|| {
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
        lanes.simulate(&all, error)
    });
    (savings, combined)
}

/// All lanes with selected steps, prepared for simulation.
#[derive(Default)]
struct Lanes<'a> {
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

    /// How far off the captured periods a replay without any change is, at most.
    fn error_ns(&self) -> i64 {
        let unchanged = |view: &&LaneView<'_>| vec![Change::Keep; view.lane.ops.len()];
        let changes: Vec<_> = self.views.iter().map(unchanged).collect();
        let runs = run(&self.replays, self.matched, &changes);
        runs.iter().map(Simulation::error_ns).max().unwrap_or(0)
    }

    fn simulate(&self, changes: &dyn Fn(&LaneView<'_>) -> Vec<Change>, error: i64) -> Saving {
        let changes: Vec<Vec<Change>> = self.views.iter().map(|view| changes(view)).collect();
        let mut removed = 0;
        for ((view, replay), changes) in self.views.iter().zip(&self.replays).zip(&changes) {
            let own = replay.matched(self.matched).map(|kernel| (kernel.op, kernel.transfer_ns));
            removed += removed_ns(view, &own.collect(), changes);
        }
        let runs = run(&self.replays, self.matched, &changes);
        let n: usize = runs.iter().map(|run| run.before.len()).sum();
        if n == 0 {
            return Saving::default();
        }
        let mean = |of: fn(&Simulation) -> &Vec<i64>| {
            runs.iter().flat_map(of).sum::<i64>() as f64 / n as f64
        };
        let host_bound = runs.iter().map(|run| run.host_bound_ratio).fold(0.0, f64::max) > 0.5;
        Saving {
            gpu_ns_per_step: removed as f64 / n as f64,
            period_before_ns: Some(mean(|run| &run.before)),
            period_after_ns: Some(mean(|run| &run.after)),
            method: SavingMethod::Simulated,
            simulation_error_ns: Some(error),
            next_bound: Some(if host_bound { "host" } else { "gpu" }.to_owned()),
        }
    }
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
