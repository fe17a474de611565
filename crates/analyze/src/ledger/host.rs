//! What the host did while the GPU waited for it.
//!
//! The thread that launched the next work is followed through its nested events; each stretch goes
//! to the innermost one:
//!
//! ```text
//!   range     |--scheduler.run_batch---------------|
//!   frame       |--forward----------------|
//!   op             |--aten::mm------|
//!   api               |sync|
//!   account   hhhhhhhhbbbbbbhhhhhhhhhhhhhhhhhhhhhhh   b host blocked, h host launched late
//! ```
//!
//! Time inside a blocking call is `idle.host_blocked`. The rest is `idle.between_steps` when the next
//! work begins a step or the thread is outside any mark of a step, else `idle.host_launched_late`.

use hashbrown::HashMap;
use steptally_trace_model::StringId;

use super::accounts::AccountId;
use super::gaps::GapBook;
use super::idle::HostTime;
use crate::timeline::{ActivityKind, StepMarks, Timeline};
use crate::view::LaneView;

/// What the host was in, and the account its time is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Activity<'a> {
    pub(super) account: AccountId,
    pub(super) kind: ActivityKind,
    pub(super) name: &'a str,
    pub(super) within: &'a str,
}

/// Adds the host's time to its accounts and to its gaps; returns it by activity.
pub(super) fn attribute<'a>(
    view: &LaneView<'a>,
    mut host_time: Vec<HostTime>,
    amounts: &mut [Vec<i64>],
    gaps: &mut GapBook<'a>,
) -> HashMap<Activity<'a>, i64> {
    let trace = view.lane.trace;
    let marks = StepMarks::new(view);
    let blocking = view.api.blocking_calls();
    let mut sums: HashMap<Key, i64> = HashMap::new();
    host_time.sort_by_key(|time| (time.thread, time.interval.start));
    for of_thread in host_time.chunk_by(|a, b| a.thread == b.thread) {
        let thread = of_thread[0].thread;
        let mut timeline = Timeline::new(trace, thread, blocking, &marks);
        for time in of_thread {
            timeline.walk(time.interval, |within, state| {
                let account = if state.blocked {
                    AccountId::HOST_BLOCKED
                } else if marks.is_between(thread, time.at_boundary, state) {
                    AccountId::BETWEEN
                } else {
                    AccountId::HOST_LATE
                };
                let ns = within.length().as_ns();
                amounts[time.window][account.index()] += ns;
                let key = Key { account, kind: state.kind, name: state.name, within: state.within };
                *sums.entry(key).or_default() += ns;
                gaps.add_host(time.gap, account, key.kind, key.name, key.within, ns);
            });
        }
    }
    let text = |id| trace.text(id);
    let activity = |key: Key| Activity {
        account: key.account,
        kind: key.kind,
        name: text(key.name),
        within: text(key.within),
    };
    sums.into_iter().map(|(key, ns)| (activity(key), ns)).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    account: AccountId,
    kind: ActivityKind,
    name: StringId,
    within: StringId,
}
