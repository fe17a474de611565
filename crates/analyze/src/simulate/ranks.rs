//! All ranks replayed together: a collective ends when the last of them has arrived and transferred.
//!
//! ```text
//!   captured   rank 0   ####|wwwwttt|      simulated,   rank 0   ##|wwwwwwttt|     rank 0 is faster,
//!              rank 1   ########|ttt|      # shorter    rank 1   ########|ttt|     and waits as much longer
//! ```
//!
//! Let `lag` be how long before the last arrival a rank started its kernel, and `moved` by how much its
//! start moves in the replay. The last arrival then moves by the largest `moved - lag`, and so do the
//! ends; but no kernel takes less than its own transfer. Without any change nothing moves.

use super::host::{Clock, Pace};
use super::{Change, Replay, Simulation};

/// A collective whose kernels were matched over ranks.
#[derive(Clone, Debug)]
pub(crate) struct MatchedCollective {
    pub(crate) members: Vec<MatchedKernel>,
}

/// A rank's kernel of a matched collective.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchedKernel {
    /// Position of the lane among all views.
    pub(crate) view: usize,
    /// Position among the lane's ops.
    pub(crate) op: usize,
    /// From its start to the last member's.
    pub(crate) lag_ns: i64,
    /// What is left of it after waiting.
    pub(crate) transfer_ns: i64,
}

/// Replays these lanes, each with a change for every one of its ops, with hosts of this pace.
/// Collectives with a member on another lane keep their durations.
pub(crate) fn run(
    lanes: &[Replay<'_>],
    collectives: &[MatchedCollective],
    changes: &[Vec<Change>],
    pace: Pace,
) -> Vec<Simulation> {
    let mut meetings = Meetings::new(lanes, collectives);
    let mut runs: Vec<Progress<'_>> = (lanes.iter().zip(changes))
        .map(|(replay, changes)| Progress::new(replay, changes, pace))
        .collect();
    loop {
        let mut has_moved = false;
        for (lane, run) in runs.iter_mut().enumerate() {
            has_moved |= run.advance(lane, &mut meetings);
        }
        let Some(blocked) = runs.iter().position(|run| !run.is_done()) else { break };
        if !has_moved {
            // Crossed on several streams: this one is not waited for.
            meetings.give_up(blocked, runs[blocked].ends.len());
        }
    }
    runs.into_iter().map(Progress::into_simulation).collect()
}

/// The members of all collectives, by lane and op.
struct Meetings {
    /// Per lane: (op, collective, lag, transfer), in order of op.
    of_lane: Vec<Vec<(usize, usize, i64, i64)>>,
    states: Vec<Meeting>,
}

#[derive(Clone, Copy)]
struct Meeting {
    /// Members that have not arrived yet.
    missing: usize,
    /// By how much the last arrival of those that have moves.
    moved: i64,
    /// Nobody waits for anybody.
    is_off: bool,
}

impl Meetings {
    fn new(lanes: &[Replay<'_>], collectives: &[MatchedCollective]) -> Self {
        let mut of_lane = vec![Vec::new(); lanes.len()];
        let mut states = Vec::new();
        for collective in collectives {
            let lane = |kernel: &MatchedKernel| lanes.iter().position(|l| l.index == kernel.view);
            let members: Option<Vec<(usize, &MatchedKernel)>> =
                collective.members.iter().map(|kernel| Some((lane(kernel)?, kernel))).collect();
            let Some(members) = members else { continue };
            for (lane, kernel) in &members {
                of_lane[*lane].push((kernel.op, states.len(), kernel.lag_ns, kernel.transfer_ns));
            }
            states.push(Meeting { missing: members.len(), moved: i64::MIN, is_off: false });
        }
        for members in &mut of_lane {
            members.sort_unstable();
        }
        Self { of_lane, states }
    }

    fn give_up(&mut self, lane: usize, op: usize) {
        let members = &self.of_lane[lane];
        if let Ok(at) = members.binary_search_by_key(&op, |member| member.0) {
            self.states[members[at].1].is_off = true;
        }
    }
}

/// How far the replay of one lane has come.
struct Progress<'a> {
    replay: &'a Replay<'a>,
    changes: &'a [Change],
    pace: Pace,
    clock: Clock<'a>,
    starts: Vec<i64>,
    ends: Vec<i64>,
    host_bound: usize,
    /// Position among the lane's members of collectives.
    next_member: usize,
}

impl<'a> Progress<'a> {
    fn new(replay: &'a Replay<'a>, changes: &'a [Change], pace: Pace) -> Self {
        let n = replay.works.len();
        let origin = replay.bounds.first().map_or(0, |(first, _)| *first);
        Self {
            replay,
            changes,
            pace,
            clock: replay.host.clock(replay.works[origin].start, pace),
            starts: Vec::with_capacity(n),
            ends: Vec::with_capacity(n),
            host_bound: 0,
            next_member: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.ends.len() == self.replay.works.len()
    }

    /// Replays up to a collective in which somebody is missing. Whether it came any further.
    fn advance(&mut self, lane: usize, meetings: &mut Meetings) -> bool {
        let before = (self.starts.len(), self.ends.len());
        while !self.is_done() {
            let index = self.ends.len();
            let member = meetings.of_lane[lane].get(self.next_member).copied();
            let member = member.filter(|(op, ..)| *op == index);
            let is_new = self.starts.len() == index;
            if is_new {
                let start = self.start(index);
                self.starts.push(start);
            }
            let change = self.changes[index];
            if let Some((_, collective, lag, _)) = member.filter(|_| is_new) {
                let state = &mut meetings.states[collective];
                state.missing -= 1;
                if change != Change::Remove {
                    let moved = self.starts[index] - self.replay.works[index].start.as_ns();
                    state.moved = state.moved.max(moved - lag);
                }
            }
            let meeting =
                member.map(|(_, collective, _, transfer)| (meetings.states[collective], transfer));
            let meeting = meeting.filter(|(state, _)| !state.is_off);
            if meeting.is_some_and(|(state, _)| state.missing > 0) {
                break;
            }
            self.next_member += usize::from(member.is_some());
            let end =
                self.end(index, change, meeting.map(|(state, transfer)| (state.moved, transfer)));
            self.ends.push(end);
        }
        before != (self.starts.len(), self.ends.len())
    }

    fn launched(&self, index: usize) -> Option<i64> {
        let calls = &self.replay.view.lane.trace.api_calls;
        self.replay.works[index].call.map(|call| {
            // From a call's start on most of the delay is the host's, too.
            self.clock.at(calls.start[call], calls.thread[call])
                + self.pace.scale(self.replay.delays.launch(index))
        })
    }

    /// `delay` after the end of other work.
    fn after(&self, other: Option<usize>, delay: i64) -> Option<i64> {
        other.map(|other| self.ends[other] + delay)
    }

    fn start(&mut self, index: usize) -> i64 {
        let work = self.replay.works[index];
        self.clock.advance(work.start, &self.ends);
        let delays = &self.replay.delays;
        let launched = self.launched(index);
        let queued = self.after(work.previous, delays.queue(index));
        let waited = self.after(work.other, delays.other(index));
        let last = [launched, queued, waited].into_iter().flatten().max();
        let start = last.unwrap_or_else(|| work.start.as_ns());
        self.host_bound += usize::from(launched == Some(start) && queued < launched);
        start
    }

    /// `meeting`: by how much the last arrival moves, and the kernel's own transfer.
    fn end(&self, index: usize, change: Change, meeting: Option<(i64, i64)>) -> i64 {
        let (work, start) = (self.replay.works[index], self.starts[index]);
        let length = match change {
            Change::Keep => (work.end - work.start).as_ns(),
            Change::Resize(length) => length,
            // What comes after it waits for what came before it.
            Change::Remove => {
                let before = self.after(work.previous, 0).or_else(|| self.launched(index));
                return before.unwrap_or(start).min(start);
            }
        };
        match meeting {
            None => start + length,
            Some((moved, transfer)) => {
                let shorter = (transfer - length).max(0);
                let transfer = transfer - shorter;
                (work.end.as_ns() - shorter).saturating_add(moved).max(start + transfer)
            }
        }
    }

    fn into_simulation(self) -> Simulation {
        let captured = |work: usize| self.replay.works[work].start.as_ns();
        let bounds = &self.replay.bounds;
        Simulation {
            before: bounds.iter().map(|&(a, b)| captured(b) - captured(a)).collect(),
            after: bounds.iter().map(|&(a, b)| self.starts[b] - self.starts[a]).collect(),
            host_bound_ratio: self.host_bound as f64 / self.replay.works.len().max(1) as f64,
        }
    }
}
