//! The communication kernels of one lane, and what runs beside them.

use hashbrown::HashMap;
use steptally_trace_model::interval::{Interval, merge_sorted};
use steptally_trace_model::{CollectiveId, StringId, ThreadId, Timestamp};

use super::message::{self, Message};
use crate::gpu::GpuKind;
use crate::view::LaneView;

/// One communication kernel within the windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comm<'a> {
    /// Position among the lane's ops.
    pub(super) op: usize,
    pub(super) interval: Interval,
    /// Index into the view's windows.
    pub(super) window: usize,
    /// Position among the window's communication kernels.
    pub(super) position: usize,
    pub(super) category: &'a str,
    pub(super) message: Message,
    /// What may be matched with it on other ranks; one numbering for all lanes.
    pub(super) key: u32,
    pub(super) sequence: Option<u64>,
    pub(super) hidden_ns: i64,
    /// From the start of the call that launched it to its own; `None` without such a call.
    pub(super) launch_delay_ns: Option<i64>,
    /// Where in the lane's `host_gaps` those since the communication kernel before it are.
    pub(super) gaps: (usize, usize),
    /// Whether no communication kernel was recorded before it on this device.
    pub(super) first_recorded: bool,
}

impl Comm<'_> {
    pub(super) fn duration_ns(&self) -> i64 {
        self.interval.length().as_ns()
    }
}

/// A stretch in which the GPU had run dry and the next work was not launched yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostGap {
    /// The thread that launches the next work.
    pub(super) thread: ThreadId,
    pub(super) interval: Interval,
}

/// A lane with communication kernels in its windows.
pub(super) struct Lane<'a> {
    pub(super) view: &'a LaneView<'a>,
    /// In order of start.
    pub(super) comms: Vec<Comm<'a>>,
    /// For each window, where its kernels are in `comms`.
    pub(super) windows: Vec<std::ops::Range<usize>>,
    /// In order of time.
    pub(super) host_gaps: Vec<HostGap>,
}

impl Lane<'_> {
    pub(super) fn rank(&self) -> Option<u32> {
        self.view.lane.rank()
    }

    pub(super) fn device(&self) -> Option<u32> {
        self.view.lane.device
    }

    /// How long the GPU stood idle for the host since the communication kernel before `comm`.
    pub(super) fn host_idle_ns(&self, comm: usize) -> i64 {
        let (from, to) = self.comms[comm].gaps;
        self.host_gaps[from..to].iter().map(|gap| gap.interval.length().as_ns()).sum()
    }

    /// The `index` of the step that a window is.
    pub(super) fn step(&self, window: usize) -> Option<u64> {
        self.view.selected.get(window).map(|&step| step as u64)
    }
}

/// Process group, as recorded, and category: only kernels alike in both can be one collective.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key<'a> {
    pub(super) process_group: &'a str,
    pub(super) category: &'a str,
    /// Global ranks of the group, when recorded in full.
    pub(super) members: Option<Vec<u32>>,
}

/// Numbers keys over all lanes.
#[derive(Default)]
pub(super) struct Keys<'a> {
    pub(super) all: Vec<Key<'a>>,
    ids: HashMap<(&'a str, &'a str, &'a str), u32>,
}

impl<'a> Keys<'a> {
    fn id(&mut self, view: &'a LaneView<'a>, of: CollectiveId, category: &'a str) -> u32 {
        let trace = view.lane.trace;
        let collective = &trace.collectives[of];
        let (group, ranks) = (trace.text(collective.process_group), trace.text(collective.ranks));
        *self.ids.entry((group, ranks, category)).or_insert_with(|| {
            let members = serde_json::from_str::<Vec<u32>>(ranks).ok();
            let members = members.filter(|ranks| {
                collective.group_size.is_none_or(|size| size as usize == ranks.len())
            });
            self.all.push(Key { process_group: group, category, members });
            (self.all.len() - 1) as u32
        })
    }
}

/// Whether kernels of this category communicate.
fn communicates(category: &str) -> bool {
    category == "comm" || category.starts_with("comm.")
}

/// The communication kernels of `view`; `None` when it has none in its windows.
pub(super) fn gather<'a>(view: &'a LaneView<'a>, keys: &mut Keys<'a>) -> Option<Lane<'a>> {
    let trace = view.lane.trace;
    let kernels = &trace.kernels;
    let mut is_comm: Vec<Option<bool>> = vec![None; trace.strings.len()];
    let mut is_comm = |name: StringId| {
        *is_comm[name.index()].get_or_insert_with(|| communicates(view.categories.of(name)))
    };
    if !kernels.name.iter().any(|name| is_comm(*name)) {
        return None;
    }
    let mut comms: Vec<Comm<'a>> = Vec::new();
    let mut compute: Vec<Interval> = Vec::new();
    let mut key_of: HashMap<(CollectiveId, StringId), u32> = HashMap::new();
    let mut host_gaps: Vec<HostGap> = Vec::new();
    let (mut window, mut position, mut gaps_from, mut hint) = (0, 0, 0, 0);
    let mut first_recorded = true;
    let mut reached = view.lane.span()?.start;
    for (op, work) in view.lane.ops.iter().enumerate() {
        if work.start > reached {
            let call = view.api.call_near(work.correlation(trace), &mut hint);
            let called = call.map(|call| trace.api_calls.start[call as usize].min(work.start));
            if let (Some(call), Some(called)) = (call, called.filter(|&called| called > reached)) {
                let thread = trace.api_calls.thread[call as usize];
                let interval = Interval { start: reached, end: called };
                host_gaps.push(HostGap { thread, interval });
            }
        }
        reached = reached.max(work.end);
        if work.kind != GpuKind::Kernel {
            continue;
        }
        let row = work.row as usize;
        let name = kernels.name[row];
        if !is_comm(name) {
            // Merged at once: a rank has far more kernels than collectives.
            match compute.last_mut() {
                Some(last) if work.start <= last.end => last.end = last.end.max(work.end),
                _ => compute.push(work.interval()),
            }
            continue;
        }
        let is_first = std::mem::replace(&mut first_recorded, false);
        let gaps = (std::mem::replace(&mut gaps_from, host_gaps.len()), host_gaps.len());
        while view.windows.get(window).is_some_and(|within| within.end <= work.start) {
            (window, position) = (window + 1, 0);
        }
        if view.windows.get(window).is_none_or(|within| work.start < within.start) {
            continue;
        }
        let call = view.api.call_near(kernels.correlation[row], &mut hint);
        let message = message::message(view, row, call);
        let category = view.categories.of(name);
        let key = *key_of
            .entry((message.collective, name))
            .or_insert_with(|| keys.id(view, message.collective, category));
        let delay = |call| (work.start - trace.api_calls.start[call as usize]).clamp_to_zero();
        comms.push(Comm {
            op,
            interval: work.interval(),
            window,
            position,
            category,
            message,
            key,
            sequence: trace.collectives[message.collective].sequence.value(),
            hidden_ns: 0,
            launch_delay_ns: call.map(|call| delay(call).as_ns()),
            gaps,
            first_recorded: is_first,
        });
        position += 1;
    }
    if comms.is_empty() {
        return None;
    }
    let compute = Coverage::new(compute);
    for comm in &mut comms {
        comm.hidden_ns = compute.within(comm.interval);
    }
    let bound = |window| comms.partition_point(|comm| comm.window < window);
    let windows = (0..view.windows.len()).map(|window| bound(window)..bound(window + 1)).collect();
    Some(Lane { view, comms, windows, host_gaps })
}

/// Disjoint intervals with the length covered before each, so that any stretch is looked up in
/// logarithmic time.
struct Coverage {
    merged: Vec<Interval>,
    before: Vec<i64>,
}

impl Coverage {
    fn new(sorted: Vec<Interval>) -> Self {
        let merged = merge_sorted(sorted);
        let before = merged.iter().scan(0, |sum, interval| {
            let before = *sum;
            *sum += interval.length().as_ns();
            Some(before)
        });
        Self { before: before.collect(), merged }
    }

    fn until(&self, at: Timestamp) -> i64 {
        let after = self.merged.partition_point(|interval| interval.start < at);
        let Some(last) = after.checked_sub(1) else {
            return 0;
        };
        let Interval { start, end } = self.merged[last];
        self.before[last] + (end.min(at) - start).as_ns()
    }

    fn within(&self, interval: Interval) -> i64 {
        self.until(interval.end) - self.until(interval.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steptally_trace_model::Timestamp;

    #[test]
    fn coverage_is_the_overlap_with_the_union() {
        let at = |start, end| Interval {
            start: Timestamp::from_ns(start),
            end: Timestamp::from_ns(end),
        };
        let coverage = Coverage::new(vec![at(0, 10), at(5, 12), at(20, 30)]);
        // 0-12 and 20-30.
        assert_eq!(coverage.within(at(-5, 40)), 22);
        assert_eq!(coverage.within(at(11, 21)), 2);
        assert_eq!(coverage.within(at(12, 20)), 0);
        assert_eq!(coverage.within(at(25, 26)), 1);
    }
}
