//! One clock for all ranks, from the ends of their collectives.
//!
//! Ranks leave a collective together, within a few hundred ns on one host. Traces say how their
//! clocks' origins differ, but clocks of different hosts disagree by up to milliseconds beyond
//! that. The median over matched collectives of how much later a rank's ends come than the
//! reference's is therefore taken out; the spread around that median is the uncertainty.
//!
//! ```text
//!   reference      #####|     ######|      ###|
//!   rank 1           #####|       ####|   ######|      always 2 later: residual 2, spread 0
//! ```

use super::gather::Lane;
use super::matching::Group;
use super::pairing;

/// Ends further apart than this (after alignment, in a tenth of the collectives) are not those of
/// the same collectives.
const LARGEST_SPREAD_NS: i64 = 100_000;

/// How to put a lane on the reference's clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// What to add to its timestamps; `None` when nothing anchors it.
    pub(super) shift_ns: Option<i64>,
    pub(super) residual_ns: Option<i64>,
    pub(super) spread_ns: Option<i64>,
    pub(super) n: u64,
    pub(super) not_aligned: Option<String>,
}

/// The clock of every lane. `bases` has the origins of their clocks relative to the reference's,
/// zero where not known.
pub(super) fn align(
    lanes: &[Lane<'_>],
    groups: &[Group],
    reference: usize,
    bases: &[i64],
) -> Vec<Clock> {
    let mut clocks = vec![Clock::default(); lanes.len()];
    clocks[reference] = reference_clock(groups, reference, bases);
    let end = |(lane, comm): (usize, usize)| lanes[lane].comms[comm].interval.end.as_ns();
    // A rank that shares no collective with the reference may share some with one that does.
    loop {
        let mut later: Vec<Vec<i64>> = vec![Vec::new(); lanes.len()];
        for group in groups {
            let anchor = |member: &&(usize, usize)| clocks[member.0].shift_ns.is_some();
            let Some(&known) = group.members.iter().find(anchor) else {
                continue;
            };
            let at = end(known).saturating_add(clocks[known.0].shift_ns.unwrap_or(0));
            for &member in &group.members {
                let clock = &clocks[member.0];
                if clock.shift_ns.is_none() && clock.not_aligned.is_none() {
                    let on_base = end(member).saturating_add(bases[member.0]);
                    later[member.0].push(on_base.saturating_sub(at));
                }
            }
        }
        if later.iter().all(Vec::is_empty) {
            // Ranks that meet only one another (their own process group) have their own reference.
            let open = |member: &&(usize, usize)| {
                clocks[member.0].shift_ns.is_none() && clocks[member.0].not_aligned.is_none()
            };
            let meets = |group: &&Group| group.members.iter().filter(open).count() > 1;
            let Some(apart) = groups.iter().find(meets) else {
                break;
            };
            if let Some(&(lane, _)) = apart.members.iter().find(open) {
                clocks[lane] = reference_clock(groups, lane, bases);
            }
            continue;
        }
        for (lane, mut later) in later.into_iter().enumerate().filter(|(_, l)| !l.is_empty()) {
            let (residual, spread) = pairing::spread(&mut later);
            let fits = spread <= LARGEST_SPREAD_NS;
            clocks[lane] = Clock {
                shift_ns: fits.then(|| bases[lane].saturating_sub(residual)),
                residual_ns: Some(residual),
                spread_ns: Some(spread),
                n: later.len() as u64,
                not_aligned: (!fits).then(|| {
                    format!(
                        "its collectives do not end with those of the other ranks (off by up to \
                         {spread} ns after alignment)"
                    )
                }),
            };
        }
    }
    for clock in &mut clocks {
        if clock.shift_ns.is_none() && clock.not_aligned.is_none() {
            clock.not_aligned = Some(
                "no collective was matched with another rank: nothing anchors its clock".into(),
            );
        }
    }
    clocks
}

fn reference_clock(groups: &[Group], lane: usize, bases: &[i64]) -> Clock {
    Clock {
        shift_ns: Some(bases[lane]),
        residual_ns: Some(0),
        spread_ns: Some(0),
        n: groups.iter().filter(|group| has(group, lane)).count() as u64,
        not_aligned: None,
    }
}

fn has(group: &Group, lane: usize) -> bool {
    group.members.iter().any(|(other, _)| *other == lane)
}
