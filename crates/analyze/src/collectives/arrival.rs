//! Who arrives when: the wait and the transfer of every matched kernel.
//!
//! ```text
//!   rank 0   |wwwwwwwwwwwwttt|      w wait: until the last rank's start
//!   rank 1       |wwwwwwwwttt|      t transfer: the rest
//!   rank 2               |ttt|      last; its lateness is the time since rank 1's start
//! ```
//!
//! With all starts on one clock, wait = last start - own start, within [0, duration], and
//! transfer = duration - wait: the two always add up to the kernel's duration.

use super::clock::Clock;
use super::gather::Lane;
use super::matching::Group;
use crate::results::WindowStart;
use crate::stats;

/// A collective at a window's start is told apart when its wait is so many times that of the
/// comparable ones later,
const OUTLIER: f64 = 8.0;
/// and at least this long.
const LEAST_OUTLIER_NS: i64 = 100_000;

/// One collective with its arrivals.
pub(super) struct Arrival {
    pub(super) members: Vec<Member>,
    /// From the first start to the last.
    pub(super) skew_ns: i64,
    /// The last to start, as position in `members`.
    pub(super) last: usize,
    /// The one that starts before it, as position in `members`.
    pub(super) next_to_last: usize,
    /// From that one's start to the last's.
    pub(super) lateness_ns: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) lane: usize,
    pub(super) comm: usize,
    /// From its start to the last member's.
    pub(super) lag_ns: i64,
    pub(super) wait_ns: i64,
    pub(super) transfer_ns: i64,
}

/// Arrivals of every group, among its members whose clock is aligned.
pub(super) fn arrivals(lanes: &[Lane<'_>], groups: &[Group], clocks: &[Clock]) -> Vec<Arrival> {
    groups.iter().filter_map(|group| arrival(lanes, group, clocks)).collect()
}

fn arrival(lanes: &[Lane<'_>], group: &Group, clocks: &[Clock]) -> Option<Arrival> {
    let starts: Vec<(i64, usize, usize)> = group
        .members
        .iter()
        .filter_map(|&(lane, comm)| {
            let start = lanes[lane].comms[comm].interval.start.as_ns();
            Some((start.saturating_add(clocks[lane].shift_ns?), lane, comm))
        })
        .collect();
    if starts.len() < 2 {
        return None;
    }
    let latest_but = |but: usize| {
        let others = (0..starts.len()).filter(|&member| member != but);
        others.max_by_key(|&member| (starts[member].0, std::cmp::Reverse(member)))
    };
    let last = latest_but(usize::MAX)?;
    let next_to_last = latest_but(last)?;
    let (last_start, ..) = starts[last];
    let first_start = starts.iter().map(|(start, ..)| *start).min()?;
    let members = starts.iter().map(|&(start, lane, comm)| {
        let duration = lanes[lane].comms[comm].duration_ns();
        let lag_ns = last_start.saturating_sub(start);
        let wait_ns = lag_ns.clamp(0, duration);
        Member { lane, comm, lag_ns, wait_ns, transfer_ns: duration - wait_ns }
    });
    Some(Arrival {
        members: members.collect(),
        skew_ns: last_start.saturating_sub(first_start),
        last,
        next_to_last,
        lateness_ns: last_start.saturating_sub(starts[next_to_last].0),
    })
}

/// Which kernels take part in no mean or distribution.
pub(super) struct LeftOut {
    /// Per lane and kernel.
    pub(super) kernels: Vec<Vec<bool>>,
    /// Per lane and window.
    pub(super) windows: Vec<Vec<bool>>,
    pub(super) found: Vec<WindowStart>,
}

/// Finds collectives at the start of a rank's recording whose wait is far beyond the later ones':
/// the ranks' recordings began at different times. Without a match the duration stands for the
/// wait.
pub(super) fn window_starts(
    lanes: &[Lane<'_>],
    arrivals: &[Arrival],
    whole_window: bool,
) -> LeftOut {
    let mut left_out = LeftOut {
        kernels: lanes.iter().map(|lane| vec![false; lane.comms.len()]).collect(),
        windows: lanes.iter().map(|lane| vec![false; lane.windows.len()]).collect(),
        found: Vec::new(),
    };
    let comm = |member: &Member| &lanes[member.lane].comms[member.comm];
    let all: Vec<(i64, bool)> = arrivals
        .iter()
        .map(|arrival| {
            let first = arrival.members.iter().any(|member| comm(member).position == 0);
            (arrival.skew_ns, first && !whole_window)
        })
        .collect();
    let mut matched = vec![false; lanes.len()];
    for (index, arrival) in arrivals.iter().enumerate() {
        let firsts: Vec<&Member> =
            arrival.members.iter().filter(|member| comm(member).first_recorded).collect();
        for member in &firsts {
            matched[member.lane] = true;
        }
        // Only the few first recorded ones are compared with all the others.
        if firsts.is_empty() {
            continue;
        }
        let steady = steady(&all, index).filter(|steady| is_outlier(arrival.skew_ns, *steady));
        if let Some(steady_ns) = steady {
            let Some(waits) = arrival.members.iter().max_by_key(|member| member.wait_ns) else {
                continue;
            };
            let late = &lanes[arrival.members[arrival.last].lane];
            left_out.found.push(WindowStart {
                late_rank: late.rank(),
                ..found(lanes, waits.lane, waits.comm, waits.wait_ns, steady_ns)
            });
            for member in &arrival.members {
                left_out.leave(lanes, member.lane, member.comm, whole_window);
            }
        }
    }
    for (index, lane) in lanes.iter().enumerate().filter(|(lane, _)| !matched[*lane]) {
        let Some(first) = lane.comms.iter().position(|comm| comm.first_recorded) else {
            continue;
        };
        let all: Vec<(i64, bool)> = lane
            .comms
            .iter()
            .map(|comm| (comm.duration_ns(), comm.position == 0 && !whole_window))
            .collect();
        let duration = lane.comms[first].duration_ns();
        if let Some(steady) = steady(&all, first).filter(|steady| is_outlier(duration, *steady)) {
            left_out.found.push(found(lanes, index, first, duration, steady));
            left_out.leave(lanes, index, first, whole_window);
        }
    }
    left_out
}

impl LeftOut {
    fn leave(&mut self, lanes: &[Lane<'_>], lane: usize, comm: usize, whole_window: bool) {
        if whole_window {
            self.kernels[lane][comm] = true;
            return;
        }
        let window = lanes[lane].comms[comm].window;
        self.windows[lane][window] = true;
        for comm in lanes[lane].windows[window].clone() {
            self.kernels[lane][comm] = true;
        }
    }

    /// Whether any member of a collective is left out: then it is.
    pub(super) fn has(&self, arrival: &Arrival) -> bool {
        arrival.members.iter().any(|member| self.kernels[member.lane][member.comm])
    }
}

fn found(
    lanes: &[Lane<'_>],
    lane: usize,
    comm: usize,
    window_start_wait_ns: i64,
    steady_ns: f64,
) -> WindowStart {
    let of = &lanes[lane];
    WindowStart {
        rank: of.rank(),
        device: of.device(),
        late_rank: None,
        category: of.comms[comm].category.to_owned(),
        window_start_wait_ns,
        steady_ns,
        step: of.step(of.comms[comm].window),
    }
}

/// What to compare value `index` with: the larger of the medians of the other values and of the
/// others that are first in their step.
fn steady(all: &[(i64, bool)], index: usize) -> Option<f64> {
    let others = || all.iter().enumerate().filter(|(other, _)| *other != index);
    let median = |only_first: bool| {
        let values = others().filter(|(_, (_, first))| *first || !only_first);
        stats::median(&mut values.map(|(_, (value, _))| *value).collect::<Vec<i64>>())
    };
    let overall = median(false)?;
    Some(median(true).map_or(overall, |first| first.max(overall)))
}

fn is_outlier(value: i64, steady: f64) -> bool {
    value >= LEAST_OUTLIER_NS && value as f64 > OUTLIER * steady
}
