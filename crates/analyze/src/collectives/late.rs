//! Why a rank is late: its host, or its GPU; and what the host was doing.
//!
//! Between two collectives a rank's GPU works, or stands idle because its host has not launched the
//! next work. Of the lateness, so much is the host's as the late rank's GPU stood idle for its host
//! longer than that of the rank which arrived next to last:
//!
//! ```text
//!   next to last   |coll|####  ####   |coll
//!                            hh              idle for its host: 2
//!   late           |coll|####     ####         |coll
//!                            hhhhh              5: three of the lateness are the host's
//! ```
//!
//! What that host did is read from the launching thread during those stretches.

use hashbrown::HashMap;
use steptally_trace_model::interval::Interval;
use steptally_trace_model::{StringId, ThreadId};

use super::arrival::Arrival;
use super::gather::Lane;
use crate::results::{LateActivity, LateRank};
use crate::stats;
use crate::timeline::{ActivityKind, StepMarks, Timeline};

/// Activities that are listed.
const LISTED: usize = 5;

/// Lateness of every lane that is ever last, most first. `late` are the collectives with a last
/// rank; `steps` the number of steps of each lane.
pub(super) fn late_ranks(lanes: &[Lane<'_>], late: &[&Arrival], steps: &[u64]) -> Vec<LateRank> {
    let mut by_lane: Vec<Vec<&Arrival>> = vec![Vec::new(); lanes.len()];
    for arrival in late {
        by_lane[arrival.members[arrival.last].lane].push(arrival);
    }
    let mut ranks: Vec<LateRank> = by_lane
        .iter()
        .enumerate()
        .filter(|(_, arrivals)| !arrivals.is_empty())
        .map(|(lane, arrivals)| late_rank(lanes, lane, arrivals, steps[lane]))
        .collect();
    ranks.sort_by_key(|rank| std::cmp::Reverse(rank.lateness_ns));
    ranks
}

fn late_rank(lanes: &[Lane<'_>], index: usize, arrivals: &[&Arrival], steps: u64) -> LateRank {
    let lane = &lanes[index];
    let (mut host, mut gpu, mut unknown) = (0, 0, 0);
    let mut delays = Vec::new();
    let mut stretches: Vec<(ThreadId, Interval)> = Vec::new();
    for arrival in arrivals {
        let late = arrival.members[arrival.last];
        let other = arrival.members[arrival.next_to_last];
        let comm = &lane.comms[late.comm];
        let Some(delay) = comm.launch_delay_ns else {
            unknown += arrival.lateness_ns;
            continue;
        };
        delays.push(delay);
        let more = lane.host_idle_ns(late.comm) - lanes[other.lane].host_idle_ns(other.comm);
        let of_host = more.clamp(0, arrival.lateness_ns);
        host += of_host;
        gpu += arrival.lateness_ns - of_host;
        if of_host > 0 {
            let (from, to) = comm.gaps;
            stretches.extend(lane.host_gaps[from..to].iter().map(|gap| (gap.thread, gap.interval)));
        }
    }
    LateRank {
        rank: lane.rank(),
        device: lane.device(),
        n: arrivals.len() as u64,
        lateness_ns: host + gpu + unknown,
        host_late_ns: host,
        gpu_late_ns: gpu,
        unknown_ns: unknown,
        median_launch_delay_ns: stats::median(&mut delays),
        host_activity: activity(lane, stretches, steps),
    }
}

/// What the launching threads did during `stretches`.
fn activity(
    lane: &Lane<'_>,
    mut stretches: Vec<(ThreadId, Interval)>,
    steps: u64,
) -> Vec<LateActivity> {
    if stretches.is_empty() {
        return Vec::new();
    }
    let trace = lane.view.lane.trace;
    let marks = StepMarks::new(lane.view);
    let blocking = lane.view.api.blocking_calls();
    let mut sums: HashMap<(ActivityKind, StringId, StringId), i64> = HashMap::new();
    stretches.sort_by_key(|(thread, interval)| (*thread, interval.start));
    for of_thread in stretches.chunk_by(|a, b| a.0 == b.0) {
        let mut timeline = Timeline::new(trace, of_thread[0].0, blocking, &marks);
        for (_, interval) in of_thread {
            timeline.walk(*interval, |within, state| {
                let key = (state.kind, state.name, state.within);
                *sums.entry(key).or_default() += within.length().as_ns();
            });
        }
    }
    let mut rows: Vec<LateActivity> = sums
        .into_iter()
        .map(|((kind, name, within), total_ns)| LateActivity {
            kind: kind.code().to_owned(),
            name: trace.text(name).to_owned(),
            within: trace.text(within).to_owned(),
            total_ns,
            ns_per_step: if steps == 0 { 0.0 } else { total_ns as f64 / steps as f64 },
        })
        .collect();
    rows.sort_by(|a, b| {
        let text = |row: &LateActivity| (row.kind.clone(), row.name.clone(), row.within.clone());
        b.total_ns.cmp(&a.total_ns).then_with(|| text(a).cmp(&text(b)))
    });
    rows.truncate(LISTED);
    rows
}
