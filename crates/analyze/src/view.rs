//! What every analysis of steps looks at: one lane with its links, categories and windows.

use steptally_trace_model::Timestamp;
use steptally_trace_model::interval::Interval;

use crate::categories::{Categories, KernelCategories};
use crate::gpu::Lane;
use crate::links::{ApiIndex, OpTree};
use crate::results::LedgerScope;
use crate::steps::{LaneSteps, Selection};

/// One lane and the windows on it that are accounted for.
pub(crate) struct LaneView<'a> {
    pub(crate) lane: &'a Lane<'a>,
    pub(crate) api: &'a ApiIndex,
    pub(crate) tree: &'a OpTree,
    /// Category of each kernel name of the lane's trace.
    pub(crate) categories: KernelCategories<'a>,
    /// The lane's steps, when there is a selection.
    pub(crate) steps: Option<&'a LaneSteps>,
    /// Positions of the selected steps in `steps`; one per window, empty without a selection.
    pub(crate) selected: Vec<usize>,
    /// The periods that are accounted for, in order, not overlapping; the whole span of the lane
    /// when there is no selection.
    pub(crate) windows: Vec<Interval>,
}

impl LaneView<'_> {
    /// When the host worked for the accounted steps: from each one's mark to the next mark; without
    /// marks the periods themselves, without steps always.
    pub(crate) fn host_windows(&self) -> Vec<Interval> {
        let Some(steps) = self.steps else {
            let always = Interval { start: Timestamp::MIN, end: Timestamp::MAX };
            return if self.windows.is_empty() { Vec::new() } else { vec![always] };
        };
        let mark = |position: usize| steps.steps.get(position)?.mark;
        let host_window = |position: usize| {
            let start = mark(position)?.interval.start;
            let next = (position + 1..steps.steps.len()).find_map(mark)?.interval.start;
            Some(Interval { start, end: next.max(start) })
        };
        let mut host: Vec<Interval> = (self.selected.iter().zip(&self.windows))
            .map(|(&position, window)| host_window(position).unwrap_or(*window))
            .collect();
        host.sort_by_key(|window| window.start);
        host
    }
}

/// The views of all lanes, and what their windows are.
pub(crate) fn views<'a>(
    lanes: &'a [Lane<'a>],
    links: &[&'a (ApiIndex, OpTree)],
    lane_steps: &'a [LaneSteps],
    selection: Option<&Selection>,
    categories: &'a Categories,
) -> (LedgerScope, Vec<LaneView<'a>>) {
    let scope = match selection {
        Some(_) => LedgerScope::Steps,
        None if lanes.iter().any(|lane| !lane.ops.is_empty()) => LedgerScope::WholeWindow,
        None => LedgerScope::Empty,
    };
    let view = |(index, lane): (usize, &'a Lane<'a>)| {
        let selected = selection.map_or(Vec::new(), |s| s.lanes[index].clone());
        let windows = match selection {
            Some(_) => {
                let period = |&step: &usize| lane_steps[index].periods[step];
                selected.iter().filter_map(period).collect()
            }
            None => lane.span().into_iter().filter(|span| !span.is_empty()).collect(),
        };
        let (api, tree) = links[index];
        let trace = lane.trace;
        LaneView {
            lane,
            api,
            tree,
            categories: KernelCategories::new(categories, &trace.strings, &trace.kernels.name),
            steps: selection.map(|_| &lane_steps[index]),
            selected,
            windows,
        }
    };
    (scope, lanes.iter().enumerate().map(view).collect())
}

/// Number of windows and sum of their lengths in ns over all lanes.
pub(crate) fn extent(views: &[LaneView<'_>]) -> (usize, i64) {
    let windows = || views.iter().flat_map(|view| &view.windows);
    (windows().count(), windows().map(|window| window.length().as_ns()).sum())
}
