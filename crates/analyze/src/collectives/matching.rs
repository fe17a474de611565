//! Which kernels of different ranks are one collective.
//!
//! By process group and sequence number where recorded. Else by order within the step, among
//! kernels of the same process group (if recorded) and category, in steps that are the same on both
//! ranks (see [`pairing`](super::pairing)); ids that a recorder assigned differ between ranks and
//! are never used. Where the numbers of kernels differ in a step, none of their kind is matched
//! there, and the step is listed.

use hashbrown::HashMap;

use super::gather::{Comm, Keys, Lane};
use super::pairing::{self, Pairing};
use crate::results::{CollectiveMismatch, MatchedBy, StepsMatchedBy};

/// One collective: a kernel each of two or more ranks.
pub(super) struct Group {
    /// (lane, position in its `comms`), in order of lane.
    pub(super) members: Vec<(usize, usize)>,
    pub(super) by: MatchedBy,
}

/// How a lane's steps go with the reference's.
#[derive(Clone, Copy, Debug)]
pub(super) struct LanePairing {
    pub(super) by: Option<StepsMatchedBy>,
    pub(super) shift: isize,
}

pub(super) struct Matching {
    pub(super) groups: Vec<Group>,
    /// The lane that others are paired with.
    pub(super) reference: usize,
    /// One per lane.
    pub(super) pairings: Vec<LanePairing>,
    pub(super) mismatches: Vec<CollectiveMismatch>,
}

/// Matches the kernels of all lanes. `bases` has the origin of each lane's clock, relative to any
/// one of them, if the lanes share a clock.
pub(super) fn match_collectives(
    lanes: &[Lane<'_>],
    keys: &Keys<'_>,
    whole_window: bool,
    bases: Option<&[i64]>,
) -> Matching {
    let mut groups = by_sequence(lanes);
    let mut order = OrderMatch::new(lanes, keys, whole_window, bases);
    if lanes.iter().flat_map(|lane| &lane.comms).any(|comm| !has_sequence(comm)) {
        if whole_window { order.match_window() } else { order.match_steps() }
    }
    groups.extend(order.groups);
    let mut mismatches = order.mismatches;
    mismatches.sort_by_key(|mismatch| mismatch.step);
    Matching { groups, reference: order.reference, pairings: order.pairings, mismatches }
}

fn has_sequence(comm: &Comm<'_>) -> bool {
    comm.sequence.is_some()
}

fn by_sequence(lanes: &[Lane<'_>]) -> Vec<Group> {
    let mut places: HashMap<(u32, u64, u32), usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for (lane, of_lane) in lanes.iter().enumerate() {
        // Kernels of one collective call share a number: they go by order among themselves.
        let mut seen: HashMap<(u32, u64), u32> = HashMap::new();
        for (index, comm) in of_lane.comms.iter().enumerate() {
            let Some(sequence) = comm.sequence else {
                continue;
            };
            let repeat = seen.entry((comm.key, sequence)).or_default();
            let place = *places.entry((comm.key, sequence, *repeat)).or_insert_with(|| {
                groups.push(Group { members: Vec::new(), by: MatchedBy::Sequence });
                groups.len() - 1
            });
            groups[place].members.push((lane, index));
            *repeat += 1;
        }
    }
    groups.retain(|group| group.members.len() > 1);
    groups
}

struct OrderMatch<'a> {
    lanes: &'a [Lane<'a>],
    keys: &'a Keys<'a>,
    whole_window: bool,
    bases: Option<&'a [i64]>,
    reference: usize,
    groups: Vec<Group>,
    pairings: Vec<LanePairing>,
    mismatches: Vec<CollectiveMismatch>,
}

/// The kernels of one kind in one step (or window) by lane, in order.
type ByLane = Vec<(usize, Vec<usize>)>;

impl<'a> OrderMatch<'a> {
    fn new(
        lanes: &'a [Lane<'a>],
        keys: &'a Keys<'a>,
        whole_window: bool,
        bases: Option<&'a [i64]>,
    ) -> Self {
        let steps = |lane: &Lane<'_>| lane.windows.iter().filter(|w| !w.is_empty()).count();
        let most = lanes.iter().map(steps).max();
        let reference = lanes.iter().position(|lane| Some(steps(lane)) == most).unwrap_or(0);
        let by = |lane| (lane == reference).then_some(StepsMatchedBy::Reference);
        let pairings =
            (0..lanes.len()).map(|lane| LanePairing { by: by(lane), shift: 0 }).collect();
        let (groups, mismatches) = (Vec::new(), Vec::new());
        Self { lanes, keys, whole_window, bases, reference, groups, pairings, mismatches }
    }

    /// The end of a kernel on the clock that lanes share, if they do.
    fn end(&self, lane: usize, comm: usize) -> i64 {
        let base = self.bases.map_or(0, |bases| bases[lane]);
        self.lanes[lane].comms[comm].interval.end.as_ns().saturating_add(base)
    }

    fn ends(&self, (lane, comms): &(usize, Vec<usize>)) -> Vec<i64> {
        comms.iter().map(|&comm| self.end(*lane, comm)).collect()
    }

    fn pair(&self, reference: &[i64], other: &[i64]) -> Option<Pairing> {
        pairing::pair(reference, other, self.bases.is_some())
    }

    fn match_steps(&mut self) {
        // Steps with communication, by the last end in each.
        let steps: Vec<Vec<(usize, i64)>> = (0..self.lanes.len())
            .map(|lane| {
                let windows = self.lanes[lane].windows.iter().enumerate();
                let last = |comms: &std::ops::Range<usize>| {
                    comms.clone().map(|comm| self.end(lane, comm)).max()
                };
                windows.filter_map(|(window, comms)| Some((window, last(comms)?))).collect()
            })
            .collect();
        let ends = |lane: usize| steps[lane].iter().map(|(_, end)| *end).collect::<Vec<i64>>();
        let reference_ends = ends(self.reference);
        // For each step of the reference, the windows of all lanes that are it.
        let mut same: Vec<Vec<(usize, usize)>> = vec![Vec::new(); reference_ends.len()];
        for (lane, own_steps) in steps.iter().enumerate() {
            let same_as: Vec<Option<usize>> = if lane == self.reference {
                (0..reference_ends.len()).map(Some).collect()
            } else {
                let Some(pairing) = self.pair(&reference_ends, &ends(lane)) else {
                    continue;
                };
                self.pairings[lane] = LanePairing { by: Some(pairing.by), shift: pairing.shift };
                pairing.of_other
            };
            for ((window, _), step) in own_steps.iter().zip(same_as) {
                if let Some(step) = step {
                    same[step].push((lane, *window));
                }
            }
        }
        for windows in same {
            self.match_step(&windows);
        }
    }

    fn match_step(&mut self, windows: &[(usize, usize)]) {
        let by_key = self.by_key(windows);
        let step = windows.first().and_then(|&(lane, window)| self.lanes[lane].step(window));
        for (key, kernels) in by_key {
            let expected = self.expected(key, windows.iter().map(|(lane, _)| *lane), &kernels);
            if let Some(same) = self.same_count(key, step, &expected, &kernels) {
                for position in 0..same {
                    let members =
                        kernels.iter().map(|(lane, comms)| (*lane, comms[position])).collect();
                    self.groups.push(Group { members, by: MatchedBy::OrderInStep });
                }
            }
        }
    }

    fn match_window(&mut self) {
        let windows: Vec<(usize, usize)> = (0..self.lanes.len()).map(|lane| (lane, 0)).collect();
        for (key, kernels) in self.by_key(&windows) {
            let expected = self.expected(key, 0..self.lanes.len(), &kernels);
            let differs = self.same_count(key, None, &expected, &kernels).is_none();
            let Some((first, rest)) = kernels.split_first() else {
                continue;
            };
            let mut members: Vec<Vec<(usize, usize)>> =
                first.1.iter().map(|&comm| vec![(first.0, comm)]).collect();
            let first_ends = self.ends(first);
            for other in rest {
                let Some(pairing) = self.pair(&first_ends, &self.ends(other)) else {
                    continue;
                };
                // Different counts without evidence of which are the same: no guess.
                if differs && pairing.by == StepsMatchedBy::OrderFromEnd {
                    continue;
                }
                self.pairings[other.0] = LanePairing { by: Some(pairing.by), shift: pairing.shift };
                for (&comm, of) in other.1.iter().zip(pairing.of_other) {
                    if let Some(of) = of {
                        members[of].push((other.0, comm));
                    }
                }
            }
            let found = members.into_iter().filter(|members| members.len() > 1);
            let by = MatchedBy::OrderInWindow;
            self.groups.extend(found.map(|members| Group { members, by }));
        }
    }

    /// Kernels without a sequence number in these windows, by key and lane.
    fn by_key(&self, windows: &[(usize, usize)]) -> Vec<(u32, ByLane)> {
        let mut places: HashMap<u32, usize> = HashMap::new();
        let mut by_key: Vec<(u32, ByLane)> = Vec::new();
        for &(lane, window) in windows {
            for index in self.lanes[lane].windows[window].clone() {
                let comm = &self.lanes[lane].comms[index];
                if has_sequence(comm) {
                    continue;
                }
                let place = *places.entry(comm.key).or_insert_with(|| {
                    by_key.push((comm.key, Vec::new()));
                    by_key.len() - 1
                });
                let by_lane = &mut by_key[place].1;
                match by_lane.last_mut() {
                    Some((last, comms)) if *last == lane => comms.push(index),
                    _ => by_lane.push((lane, vec![index])),
                }
            }
        }
        by_key
    }

    /// The lanes, of those there, that take part in collectives of this key: the members of the
    /// process group; those that have any when a group is recorded without its members; else all.
    fn expected(
        &self,
        key: u32,
        there: impl Iterator<Item = usize>,
        kernels: &ByLane,
    ) -> Vec<usize> {
        let key = &self.keys.all[key as usize];
        let has_any = |lane: usize| kernels.iter().any(|(other, _)| *other == lane);
        let takes_part = |lane: &usize| match (&key.members, self.lanes[*lane].rank()) {
            (Some(members), Some(rank)) => members.contains(&rank) || has_any(*lane),
            _ => key.process_group.is_empty() || has_any(*lane),
        };
        there.filter(takes_part).collect()
    }

    /// The number of kernels when it is the same on every lane of several; else notes the mismatch.
    fn same_count(
        &mut self,
        key: u32,
        step: Option<u64>,
        expected: &[usize],
        kernels: &ByLane,
    ) -> Option<usize> {
        if expected.len() < 2 {
            return None;
        }
        let count = |lane: usize| {
            kernels.iter().find(|(other, _)| *other == lane).map_or(0, |(_, comms)| comms.len())
        };
        let first = count(expected[0]);
        if expected.iter().all(|&lane| count(lane) == first) {
            return Some(first);
        }
        let key = &self.keys.all[key as usize];
        self.mismatches.push(CollectiveMismatch {
            step: step.filter(|_| !self.whole_window),
            category: key.category.to_owned(),
            process_group: key.process_group.to_owned(),
            counts: expected
                .iter()
                .map(|&lane| (self.lanes[lane].rank(), count(lane) as u64))
                .collect(),
        });
        None
    }
}
