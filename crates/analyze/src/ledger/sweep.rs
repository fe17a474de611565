//! The sweep over GPU work: who has each nanosecond, and where nothing runs.

use steptally_trace_model::interval::Interval;
use steptally_trace_model::{Nanos, Timestamp};

use super::accounts::{AccountId, Accounts, OPAQUE_GRAPH};
use crate::categories::copy_account;
use crate::gpu::{GpuKind, GpuOp};
use crate::results::AccountGroup;
use crate::view::LaneView;
use steptally_trace_model::CopyKind;

/// A stretch of a window in which nothing runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) window: usize,
    pub(super) interval: Interval,
    /// The work that ends it (index into the lane's ops); `None` at the end of the last window of
    /// a whole-window ledger.
    pub(super) next: Option<usize>,
    /// The work whose end begins it: the last to end of all before it.
    pub(super) previous: Option<usize>,
    /// Whether the next work is the first of the next step.
    pub(super) at_boundary: bool,
}

pub(super) struct Swept {
    pub(super) gaps: Vec<Gap>,
    pub(super) hidden_communication: Nanos,
    pub(super) hidden_copy: Nanos,
}

/// Who goes first among overlapping work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Compute,
    Communication,
    Copy,
    Fill,
    OpaqueGraph,
}

#[derive(Clone, Copy)]
struct Active {
    class: Class,
    start: Timestamp,
    end: Timestamp,
    account: AccountId,
}

/// Adds each busy nanosecond of the windows to its account; returns the idle ones.
pub(super) fn sweep(
    view: &LaneView<'_>,
    accounts: &Accounts<'_>,
    amounts: &mut [Vec<i64>],
) -> Swept {
    let ops = &view.lane.ops;
    let classify = Classifier::new(view, accounts);
    let mut swept =
        Swept { gaps: Vec::new(), hidden_communication: Nanos::ZERO, hidden_copy: Nanos::ZERO };
    let mut active: Vec<Active> = Vec::new();
    let mut next = 0;
    let mut last_to_end: Option<usize> = None;
    for (window, &within) in view.windows.iter().enumerate() {
        let mut at = within.start;
        while at < within.end {
            while let Some(op) = ops.get(next).filter(|op| op.start <= at) {
                active.push(classify.active(*op));
                if last_to_end.is_none_or(|last| ops[last].end <= op.end) {
                    last_to_end = Some(next);
                }
                next += 1;
            }
            active.retain(|work| work.end > at);
            let next_start = ops.get(next).map_or(Timestamp::MAX, |op| op.start);
            let Some(first) = active.iter().min_by_key(|work| (work.class, work.start)) else {
                let interval = Interval { start: at, end: within.end.min(next_start) };
                swept.gaps.push(Gap {
                    window,
                    interval,
                    next: (next < ops.len()).then_some(next),
                    previous: last_to_end,
                    at_boundary: next_start >= within.end,
                });
                at = interval.end;
                continue;
            };
            let until = active.iter().map(|work| work.end).min().unwrap_or(at);
            let until = until.min(next_start).min(within.end);
            let length = until - at;
            amounts[window][first.account.index()] += length.as_ns();
            let class = first.class;
            let runs = |wanted: &[Class]| active.iter().any(|work| wanted.contains(&work.class));
            if class == Class::Compute && runs(&[Class::Communication]) {
                swept.hidden_communication += length;
            }
            if class < Class::Copy && runs(&[Class::Copy, Class::Fill]) {
                swept.hidden_copy += length;
            }
            at = until;
        }
    }
    swept
}

/// Class and account of each piece of work, looked up once per name.
struct Classifier<'a> {
    view: &'a LaneView<'a>,
    by_name: Vec<(Class, AccountId)>,
    copies: [AccountId; 7],
    opaque: AccountId,
}

impl<'a> Classifier<'a> {
    fn new(view: &'a LaneView<'a>, accounts: &Accounts<'_>) -> Self {
        let trace = view.lane.trace;
        let mut by_name = vec![(Class::Compute, AccountId::UNKNOWN); trace.strings.len()];
        let mut known = vec![false; trace.strings.len()];
        for name in &trace.kernels.name {
            if !std::mem::replace(&mut known[name.index()], true) {
                let account = accounts.find(view.categories.of(*name));
                let class = match accounts.key(account).group {
                    AccountGroup::Communication => Class::Communication,
                    _ => Class::Compute,
                };
                by_name[name.index()] = (class, account);
            }
        }
        let copy = |kind| accounts.find(copy_account(kind));
        let copies = [
            copy(CopyKind::HostToDevice),
            copy(CopyKind::DeviceToHost),
            copy(CopyKind::DeviceToDevice),
            copy(CopyKind::PeerToPeer),
            copy(CopyKind::HostToHost),
            copy(CopyKind::Memset),
            copy(CopyKind::Unknown),
        ];
        Self { view, by_name, copies, opaque: accounts.find(OPAQUE_GRAPH) }
    }

    fn active(&self, op: GpuOp) -> Active {
        let trace = self.view.lane.trace;
        let row = op.row as usize;
        let (class, account) = match op.kind {
            GpuKind::Kernel => self.by_name[trace.kernels.name[row].index()],
            GpuKind::Copy => {
                let kind = trace.copies.kind[row];
                let class = if kind == CopyKind::Memset { Class::Fill } else { Class::Copy };
                (class, self.copies[kind as usize])
            }
            GpuKind::OpaqueGraph => (Class::OpaqueGraph, self.opaque),
        };
        Active { class, start: op.start, end: op.end, account }
    }
}
