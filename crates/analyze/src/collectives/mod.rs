//! Communication between ranks: how much, how long, and who waits for whom.
//!
//! A communication kernel runs from its rank's arrival until all ranks are done: its duration is
//! waiting for the last rank, then transfer. One rank alone cannot tell the two apart; several can,
//! once their kernels are matched ([`matching`]) and their clocks aligned ([`clock`]):
//!
//! ```text
//!   rank 0   ##|wwwwwwwwwwwwwwttt|##         w waits for rank 1, t transfers
//!   rank 1   ################|ttt|##         late
//! ```
//!
//! A kernel counts to the step in whose period it starts, with its whole duration. It is hidden
//! while a compute kernel runs on the same device, else exposed; overlapping communication kernels
//! each count in full.

mod arrival;
mod clock;
mod gather;
mod late;
mod matching;
mod message;
mod pairing;
mod summary;

use crate::results::{Collectives, CrossRank, LedgerScope, MatchedBy, RankClock};
use crate::simulate::{MatchedCollective, MatchedKernel};
use crate::stats::distribution;
use crate::view::LaneView;

use arrival::{Arrival, LeftOut};
use clock::Clock;
use gather::{Keys, Lane};
use matching::Matching;

/// Mismatches that are listed.
const LISTED_MISMATCHES: usize = 20;

/// What the communication kernels tell.
pub(crate) struct Communication {
    pub(crate) collectives: Collectives,
    /// Steps (view, position on its lane) in which a kernel waits for a rank whose recording began
    /// later: no steady steps.
    pub(crate) window_starts: Vec<(usize, usize)>,
    pub(crate) matched: Vec<MatchedCollective>,
}

/// Accounts for the communication kernels in the windows of all lanes.
pub(crate) fn collectives(scope: LedgerScope, views: &[LaneView<'_>]) -> Communication {
    let whole_window = scope != LedgerScope::Steps;
    let mut keys = Keys::default();
    let lanes: Vec<Lane<'_>> =
        views.iter().filter_map(|view| gather::gather(view, &mut keys)).collect();
    let count: usize = lanes.iter().map(|lane| lane.comms.len()).sum();

    let matched = (lanes.len() > 1).then(|| match_ranks(&lanes, &keys, whole_window));
    let arrivals = matched.as_ref().map_or(&[][..], |matched| &matched.arrivals);
    let waits = summary::waits(&lanes, arrivals);
    let left_out = arrival::window_starts(&lanes, arrivals, whole_window);
    let step_counts = summary::step_counts(&lanes, &left_out);
    let no_cross_rank = match (lanes.as_slice(), arrivals) {
        ([], _) => Some("no communication kernels"),
        ([_], _) => Some("one rank only: waiting cannot be told from transfer"),
        (_, []) => Some(
            "no collective could be matched over ranks with their clocks aligned: waiting cannot \
             be told from transfer",
        ),
        _ => None,
    };
    let view_of = |lane: usize| views.iter().position(|v| std::ptr::eq(v, lanes[lane].view));
    let kernel = |member: &arrival::Member| {
        Some(MatchedKernel {
            view: view_of(member.lane)?,
            op: lanes[member.lane].comms[member.comm].op,
            lag_ns: member.lag_ns,
            transfer_ns: member.transfer_ns,
        })
    };
    let of_arrival = |arrival: &Arrival| MatchedCollective {
        members: arrival.members.iter().filter_map(kernel).collect(),
    };
    let window_starts = views.iter().enumerate().flat_map(|(index, view)| {
        let lane = lanes.iter().position(|lane| std::ptr::eq(lane.view, view));
        let left_out = lane.map_or(&[][..], |lane| &left_out.windows[lane]);
        let steps = view.selected.iter().zip(left_out);
        steps.filter(|(_, left_out)| **left_out).map(move |(&step, _)| (index, step))
    });
    let window_starts = window_starts.collect();
    let left_out_count = left_out.kernels.iter().flatten().filter(|left_out| **left_out).count();
    let collectives = Collectives {
        count: count as u64,
        left_out_count: left_out_count as u64,
        ranks: summary::ranks(&lanes, &left_out, &step_counts),
        sizes: summary::sizes(&lanes, &waits, &left_out, whole_window),
        steps: summary::steps(&lanes, &waits, &left_out),
        cross_rank: matched
            .as_ref()
            .filter(|_| no_cross_rank.is_none())
            .map(|matched| cross_rank(&lanes, matched, &left_out, &step_counts, whole_window)),
        no_cross_rank: no_cross_rank.map(str::to_owned),
        window_starts: left_out.found,
    };
    let matched = arrivals.iter().map(of_arrival).collect();
    Communication { collectives, window_starts, matched }
}

/// The ranks' kernels on one clock.
struct Matched {
    matching: Matching,
    /// Origins of the clocks relative to the reference's, when recorded.
    bases: Option<Vec<i64>>,
    clocks: Vec<Clock>,
    arrivals: Vec<Arrival>,
}

fn match_ranks(lanes: &[Lane<'_>], keys: &Keys<'_>, whole_window: bool) -> Matched {
    let recorded: Vec<Option<i64>> =
        lanes.iter().map(|lane| lane.view.lane.trace.meta.base_time_ns).collect();
    let relative_to = |reference: i64| {
        recorded.iter().map(|base| base.map(|base| base.saturating_sub(reference))).collect()
    };
    let bases_to = |lane: usize| -> Option<Vec<i64>> { recorded[lane].and_then(relative_to) };
    // Without recorded origins all timestamps are absolute, or from one recorder.
    let zeros = vec![0; lanes.len()];
    let none_recorded = recorded.iter().all(Option::is_none).then(|| zeros.clone());
    let shared = bases_to(0).or(none_recorded);
    let matching = matching::match_collectives(lanes, keys, whole_window, shared.as_deref());
    let bases = bases_to(matching.reference);
    let origins = bases.as_deref().unwrap_or(&zeros);
    let clocks = clock::align(lanes, &matching.groups, matching.reference, origins);
    let arrivals = arrival::arrivals(lanes, &matching.groups, &clocks);
    Matched { matching, bases, clocks, arrivals }
}

fn cross_rank(
    lanes: &[Lane<'_>],
    matched: &Matched,
    left_out: &LeftOut,
    step_counts: &[u64],
    whole_window: bool,
) -> CrossRank {
    let Matched { matching, bases, clocks, arrivals } = matched;
    let uncertainty_ns = clocks
        .iter()
        .filter(|clock| clock.shift_ns.is_some())
        .filter_map(|clock| clock.spread_ns)
        .max()
        .unwrap_or(0);
    let counted: Vec<&Arrival> = arrivals.iter().filter(|arrival| !left_out.has(arrival)).collect();
    let late: Vec<&Arrival> =
        counted.iter().copied().filter(|arrival| arrival.lateness_ns > uncertainty_ns).collect();
    let kernels: usize = lanes.iter().map(|lane| lane.comms.len()).sum();
    let matched_kernels: usize = arrivals.iter().map(|arrival| arrival.members.len()).sum();
    let clock = |(index, lane): (usize, &Lane<'_>)| {
        let (clock, pairing) = (&clocks[index], matching.pairings[index]);
        RankClock {
            rank: lane.rank(),
            device: lane.device(),
            steps_matched_by: pairing.by,
            step_shift: pairing.shift as i64,
            base_offset_ns: bases.as_ref().map(|bases| bases[index]),
            residual_ns: clock.residual_ns,
            uncertainty_ns: clock.spread_ns.filter(|_| clock.shift_ns.is_some()),
            n: clock.n,
            not_aligned: clock.not_aligned.clone(),
        }
    };
    CrossRank {
        matched_by: matched_by(matching),
        matched_count: arrivals.len() as u64,
        unmatched_count: (kernels - matched_kernels) as u64,
        mismatches: matching.mismatches.iter().take(LISTED_MISMATCHES).cloned().collect(),
        mismatch_count: matching.mismatches.len() as u64,
        clocks: lanes.iter().enumerate().map(clock).collect(),
        uncertainty_ns,
        n: counted.len() as u64,
        together_count: (counted.len() - late.len()) as u64,
        skew_ns: distribution(counted.iter().map(|arrival| arrival.skew_ns)),
        ranks: summary::rank_arrivals(lanes, &counted, step_counts, uncertainty_ns),
        late: late::late_ranks(lanes, &late, step_counts),
        positions: if whole_window {
            Vec::new()
        } else {
            summary::positions(lanes, &counted, uncertainty_ns)
        },
    }
}

fn matched_by(matching: &Matching) -> MatchedBy {
    let mut by: Vec<MatchedBy> = matching.groups.iter().map(|group| group.by).collect();
    by.sort_unstable();
    by.dedup();
    match by.as_slice() {
        [only] => *only,
        _ => MatchedBy::Mixed,
    }
}
