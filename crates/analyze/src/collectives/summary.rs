//! Sums and distributions of communication kernels: per rank, step, size and place in the step.

use std::collections::BTreeMap;

use super::arrival::{Arrival, LeftOut};
use super::gather::Lane;
use super::message;
use crate::results::{
    CollectivePlace, CollectiveSize, PositionWait, RankArrival, RankCollectives, StepCollectives,
};
use crate::stats::{self, distribution};

/// (wait, transfer, ranks of the collective) of each kernel that was matched, per lane and kernel.
pub(super) type Waits = Vec<Vec<Option<(i64, i64, u32)>>>;

pub(super) fn waits(lanes: &[Lane<'_>], arrivals: &[Arrival]) -> Waits {
    let mut waits: Waits = lanes.iter().map(|lane| vec![None; lane.comms.len()]).collect();
    for arrival in arrivals {
        for member in &arrival.members {
            let ranks = arrival.members.len() as u32;
            waits[member.lane][member.comm] = Some((member.wait_ns, member.transfer_ns, ranks));
        }
    }
    waits
}

/// The steps of each lane that are not left out.
pub(super) fn step_counts(lanes: &[Lane<'_>], left_out: &LeftOut) -> Vec<u64> {
    (0..lanes.len())
        .map(|lane| left_out.windows[lane].iter().filter(|left_out| !**left_out).count() as u64)
        .collect()
}

pub(super) fn steps(lanes: &[Lane<'_>], waits: &Waits, left_out: &LeftOut) -> Vec<StepCollectives> {
    let mut rows = Vec::new();
    for (index, lane) in lanes.iter().enumerate() {
        for (window, comms) in lane.windows.iter().enumerate() {
            let own = || &lane.comms[comms.clone()];
            let matched = || waits[index][comms.clone()].iter().flatten();
            let total_ns = own().iter().map(|comm| comm.duration_ns()).sum();
            let hidden_ns: i64 = own().iter().map(|comm| comm.hidden_ns).sum();
            rows.push(StepCollectives {
                rank: lane.rank(),
                device: lane.device(),
                step: lane.step(window),
                count: own().len() as u64,
                bytes: sum_bytes(own().iter().map(|comm| comm.message.bytes)),
                total_ns,
                exposed_ns: total_ns - hidden_ns,
                hidden_ns,
                matched_count: matched().count() as u64,
                wait_ns: matched().map(|(wait, ..)| wait).sum(),
                transfer_ns: matched().map(|(_, transfer, _)| transfer).sum(),
                left_out: left_out.windows[index][window],
            });
        }
    }
    rows
}

fn sum_bytes(mut all: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    all.try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
}

pub(super) fn ranks(
    lanes: &[Lane<'_>],
    left_out: &LeftOut,
    step_counts: &[u64],
) -> Vec<RankCollectives> {
    let rank = |(index, lane): (usize, &Lane<'_>)| {
        let n = step_counts[index];
        let counted = || {
            let with = lane.comms.iter().zip(&left_out.kernels[index]);
            with.filter(|(_, left_out)| !**left_out).map(|(comm, _)| comm)
        };
        let total: i64 = counted().map(|comm| comm.duration_ns()).sum();
        let hidden: i64 = counted().map(|comm| comm.hidden_ns).sum();
        let bytes = sum_bytes(counted().map(|comm| comm.message.bytes));
        RankCollectives {
            rank: lane.rank(),
            device: lane.device(),
            n,
            count_per_step: per(counted().count() as i64, n),
            bytes_per_step: bytes.map(|bytes| per(bytes as i64, n)),
            ns_per_step: per(total, n),
            exposed_ns_per_step: per(total - hidden, n),
            hidden_ns_per_step: per(hidden, n),
        }
    };
    lanes.iter().enumerate().map(rank).collect()
}

fn per(total: i64, n: u64) -> f64 {
    if n == 0 { 0.0 } else { total as f64 / n as f64 }
}

#[derive(Default)]
struct SizeSums {
    durations: Vec<i64>,
    transfers: Vec<i64>,
    exposed: i64,
}

pub(super) fn sizes(
    lanes: &[Lane<'_>],
    waits: &Waits,
    left_out: &LeftOut,
    whole_window: bool,
) -> Vec<CollectiveSize> {
    type Key<'a> = (&'a str, Option<u64>, Option<u32>, CollectivePlace);
    let mut sums: BTreeMap<Key<'_>, SizeSums> = BTreeMap::new();
    for (index, lane) in lanes.iter().enumerate() {
        for (at, comm) in lane.comms.iter().enumerate() {
            if left_out.kernels[index][at] {
                continue;
            }
            let matched = waits[index][at];
            let group_size = comm.message.group_size.or(matched.map(|(_, _, ranks)| ranks));
            let place = match comm.position {
                0 if !whole_window => CollectivePlace::FirstOfStep,
                _ => CollectivePlace::Steady,
            };
            let sums =
                sums.entry((comm.category, comm.message.bytes, group_size, place)).or_default();
            sums.durations.push(comm.duration_ns());
            sums.transfers.extend(matched.map(|(_, transfer, _)| transfer));
            sums.exposed += comm.duration_ns() - comm.hidden_ns;
        }
    }
    let mut rows: Vec<CollectiveSize> = sums
        .into_iter()
        .filter_map(|((category, bytes, group_size, place), sums)| {
            let total_ns = sums.durations.iter().sum();
            let duration_ns = distribution(sums.durations)?;
            let transfer_ns = distribution(sums.transfers);
            let time = transfer_ns.map_or(duration_ns.median, |transfer| transfer.median);
            let algbw = bytes.filter(|_| time > 0.0).map(|bytes| bytes as f64 * 1e9 / time);
            let factor = group_size.and_then(|n| message::bus_factor(category, n));
            Some(CollectiveSize {
                category: category.to_owned(),
                bytes,
                group_size,
                place,
                duration_ns,
                total_ns,
                exposed_ns: sums.exposed,
                transfer_ns,
                algbw_bytes_per_s: algbw,
                busbw_bytes_per_s: algbw.zip(factor).map(|(algbw, factor)| algbw * factor),
                bandwidth_of_transfer: transfer_ns.is_some(),
            })
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
    rows
}

/// Arrivals per rank, over `counted` collectives; of these, who is last counts where the lateness
/// is beyond `uncertainty_ns`.
pub(super) fn rank_arrivals(
    lanes: &[Lane<'_>],
    counted: &[&Arrival],
    step_counts: &[u64],
    uncertainty_ns: i64,
) -> Vec<RankArrival> {
    struct Sums {
        waits: i64,
        transfers: Vec<i64>,
        lateness: Vec<i64>,
    }
    let empty = || Sums { waits: 0, transfers: Vec::new(), lateness: Vec::new() };
    let mut sums: Vec<Sums> = lanes.iter().map(|_| empty()).collect();
    for arrival in counted {
        for member in &arrival.members {
            sums[member.lane].waits += member.wait_ns;
            sums[member.lane].transfers.push(member.transfer_ns);
        }
        if arrival.lateness_ns > uncertainty_ns {
            sums[arrival.members[arrival.last].lane].lateness.push(arrival.lateness_ns);
        }
    }
    let rank = |(index, mut sums): (usize, Sums)| {
        let (n, steps) = (sums.transfers.len(), step_counts[index]);
        let transfer_ns = sums.transfers.iter().sum();
        let (last, lateness) = (sums.lateness.len(), sums.lateness.iter().sum::<i64>());
        RankArrival {
            rank: lanes[index].rank(),
            device: lanes[index].device(),
            n: n as u64,
            wait_ns: sums.waits,
            transfer_ns,
            wait_ns_per_step: per(sums.waits, steps),
            transfer_ns_per_step: per(transfer_ns, steps),
            median_transfer_ns: stats::median(&mut sums.transfers).unwrap_or(0.0),
            last_count: last as u64,
            last_ratio: per(last as i64, n as u64),
            lateness_ns: (last > 0).then(|| per(lateness, last as u64)),
            lateness_ns_per_step: per(lateness, steps),
        }
    };
    sums.into_iter().enumerate().map(rank).filter(|rank| rank.n > 0).collect()
}

/// Waiting by place in the step.
pub(super) fn positions(
    lanes: &[Lane<'_>],
    counted: &[&Arrival],
    uncertainty_ns: i64,
) -> Vec<PositionWait> {
    let mut places: BTreeMap<(usize, usize, &str, Option<u64>), Vec<&Arrival>> = BTreeMap::new();
    for arrival in counted {
        let first = arrival.members[0];
        let lane = &lanes[first.lane];
        let comm = &lane.comms[first.comm];
        let of = lane.windows[comm.window].len();
        places
            .entry((comm.position, of, comm.category, comm.message.bytes))
            .or_default()
            .push(arrival);
    }
    let place = |((position, of, category, bytes), arrivals): ((usize, usize, &str, _), Vec<_>)| {
        let arrivals: Vec<&Arrival> = arrivals;
        let mut last: BTreeMap<usize, u64> = BTreeMap::new();
        for arrival in arrivals.iter().filter(|a| a.lateness_ns > uncertainty_ns) {
            *last.entry(arrival.members[arrival.last].lane).or_default() += 1;
        }
        let most = last.into_iter().max_by_key(|&(lane, n)| (n, std::cmp::Reverse(lane)));
        let n = arrivals.len() as u64;
        let members = || arrivals.iter().flat_map(|arrival| &arrival.members);
        let transfer: i64 = members().map(|member| member.transfer_ns).sum();
        PositionWait {
            position: position as u64,
            of: of as u64,
            category: category.to_owned(),
            bytes,
            n,
            skew_ns: per(arrivals.iter().map(|arrival| arrival.skew_ns).sum(), n),
            transfer_ns: per(transfer, members().count() as u64),
            late_rank: most.and_then(|(lane, _)| lanes[lane].rank()),
            late_ratio: most.map_or(0.0, |(_, last)| per(last as i64, n)),
        }
    };
    places.into_iter().map(place).collect()
}
