//! The delays between what work waits for and its start.

use super::Work;
use crate::stats;
use crate::view::LaneView;

/// Delay of each piece of work after each of the things it may wait for, in ns.
///
/// The binding one is exactly what was captured, so that an unchanged replay gives the captured
/// start. The others are medians of binding delays, at most what the capture allows.
pub(super) struct Delays {
    launch: Vec<i64>,
    queue: Vec<i64>,
    other: Vec<i64>,
}

/// Which of the things was last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    Launch,
    Queue,
    Other,
    Nothing,
}

impl Delays {
    pub(super) fn new(view: &LaneView<'_>, works: &[Work]) -> Self {
        let calls = &view.lane.trace.api_calls;
        let after_call = |work: &Work| Some((work.start - calls.start[work.call?]).as_ns());
        let after =
            |work: &Work, other: Option<usize>| Some((work.start - works[other?].end).as_ns());
        let bound = |work: &Work| {
            let delays = [
                (after(work, work.other), Bound::Other),
                (after(work, work.previous), Bound::Queue),
                (after_call(work), Bound::Launch),
            ];
            let last = delays.into_iter().filter_map(|(delay, bound)| Some((delay?, bound)));
            last.min_by_key(|(delay, _)| *delay).map_or(Bound::Nothing, |(_, bound)| bound)
        };
        let bounds: Vec<Bound> = works.iter().map(bound).collect();
        let typical = |wanted: Bound, delay: &dyn Fn(&Work) -> Option<i64>| {
            let mut binding: Vec<i64> = (works.iter().zip(&bounds))
                .filter(|(_, bound)| **bound == wanted)
                .filter_map(|(work, _)| delay(work))
                .collect();
            stats::median(&mut binding).unwrap_or(0.0) as i64
        };
        let column = |own: Bound, delay: &dyn Fn(&Work) -> Option<i64>| {
            let typical = typical(own, delay);
            (works.iter().zip(&bounds))
                .map(|(work, bound)| {
                    let captured = delay(work).unwrap_or(0);
                    if *bound == own { captured } else { typical.min(captured) }
                })
                .collect::<Vec<i64>>()
        };
        Self {
            launch: column(Bound::Launch, &after_call),
            queue: column(Bound::Queue, &|work| after(work, work.previous)),
            other: column(Bound::Other, &|work| after(work, work.other)),
        }
    }

    pub(super) fn launch(&self, work: usize) -> i64 {
        self.launch[work]
    }

    pub(super) fn queue(&self, work: usize) -> i64 {
        self.queue[work]
    }

    pub(super) fn other(&self, work: usize) -> i64 {
        self.other[work]
    }
}
