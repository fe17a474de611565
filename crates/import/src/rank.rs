//! Which rank a trace belongs to.
//!
//! In order of precedence: the process prefix of a merged trace, `distributedInfo.rank` (or what
//! the nsys reader found in process titles), the file's name, then the order of devices in an nsys
//! export; else unknown. Several files that all say `rank 0` of a world of one may be replicas: there
//! the names decide, when they state different data-parallel replicas (`DP-0`, `DP-1`). Any other
//! position (`TP-1`) is impossible in a world of one.

use std::collections::BTreeSet;

use steptally_trace_model::{Rank, RankSource, Trace};

/// The axes of parallelism that a name or prefix may state, and the whole rank.
const AXES: [&str; 8] = ["RANK", "DP", "PP", "TP", "CP", "PCP", "DCP", "EP"];
const RANK: usize = 0;
const DP: usize = 1;
const PP: usize = 2;
const TP: usize = 3;

/// The position of a rank on each axis that was stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position([Option<u32>; AXES.len()]);

impl Position {
    /// From a merged trace's prefix: `TP00-DP01-PP00-EP00`, with or without brackets.
    pub(crate) fn of_prefix(prefix: &str) -> Option<Self> {
        let mut position = Self::default();
        for (axis, number, _) in tokens(prefix) {
            position.0[axis] = Some(number);
        }
        (position != Self::default()).then_some(position)
    }

    /// From a file's or folder's name: `..-TP-0-DP-1..`, `dp0_pp0_tp0_rank0`, `rank-3`, `rank_3`,
    /// `rank3`. The last mention of an axis counts. A lone `tp8` states the size of a group rather
    /// than a position, and says nothing; `TP-8` does.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let found: Vec<_> = tokens(name).collect();
        let mut position = Self::default();
        for (index, &(axis, number, separated)) in found.iter().enumerate() {
            let others = found.iter().enumerate().any(|(other, &(other_axis, _, glued))| {
                other.abs_diff(index) == 1 && other_axis != axis && glued == separated
            });
            if separated || axis == RANK || others {
                position.0[axis] = Some(number);
            }
        }
        (position != Self::default()).then_some(position)
    }

    fn on(&self, axis: usize) -> u32 {
        self.0[axis].unwrap_or(0)
    }

    /// Which axes were stated.
    fn axes(&self) -> [bool; AXES.len()] {
        self.0.map(|number| number.is_some())
    }

    /// The axes as text, `TP0-DP1`; empty when there is one only.
    fn label(&self) -> String {
        let stated = |axis: &usize| self.0[*axis].is_some();
        let order = [TP, DP, PP, 4, 5, 6, 7, RANK];
        let parts: Vec<_> = order
            .into_iter()
            .filter(stated)
            .map(|axis| format!("{}{}", AXES[axis], self.on(axis)))
            .collect();
        if parts.len() > 1 { parts.join("-") } else { String::new() }
    }
}

/// The `(axis, number, separated)` in a name: an axis' letters, an optional `-` or `_`
/// (`separated`), digits, with neither letters before nor letters or digits after.
fn tokens(name: &str) -> impl Iterator<Item = (usize, u32, bool)> + '_ {
    let bytes = name.as_bytes();
    let is_start = move |at: usize| at == 0 || !bytes[at - 1].is_ascii_alphanumeric();
    (0..bytes.len()).filter(move |&at| is_start(at)).filter_map(move |at| {
        let letters = bytes[at..].iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        let word = &bytes[at..at + letters];
        let axis = AXES.iter().position(|axis| word.eq_ignore_ascii_case(axis.as_bytes()))?;
        let mut rest = &bytes[at + letters..];
        let separated = matches!(rest, [b'-' | b'_', ..]);
        if separated {
            rest = &rest[1..];
        }
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let ends = !rest.get(digits).is_some_and(u8::is_ascii_alphanumeric);
        let number = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
        ends.then_some((axis, number, separated))
    })
}

/// A number for each position; equal positions get equal numbers.
///
/// The stated rank (or TP, where nothing else is stated) when that tells the positions apart; else
/// TP when the pipeline stage is the same everywhere and TP tells them apart (with data-parallel
/// attention TP counts over DP); else the place in the order of (PP, TP) or, when that does not
/// tell them apart, of (DP, PP, TP). Positions that state different axes cannot be put in order.
fn number(positions: &[Position]) -> Vec<u32> {
    let distinct: BTreeSet<_> = positions.iter().copied().collect();
    let tells_apart = |key: &dyn Fn(&Position) -> Vec<u32>| {
        distinct.iter().map(key).collect::<BTreeSet<_>>().len() == distinct.len()
    };
    let is_stated = |position: &Position| {
        position.0[RANK].is_some() || position.0.iter().flatten().count() == 1
    };
    let stated = |position: &Position| position.0[RANK].unwrap_or_else(|| position.on(TP));
    let comparable = distinct.iter().map(Position::axes).collect::<BTreeSet<_>>().len() <= 1;
    if !comparable
        || distinct.iter().all(is_stated) && tells_apart(&|position| vec![stated(position)])
    {
        return positions.iter().map(stated).collect();
    }
    let stages: BTreeSet<_> = distinct.iter().map(|position| position.on(PP)).collect();
    if stages.len() == 1 && tells_apart(&|position| vec![position.on(TP)]) {
        return positions.iter().map(|position| position.on(TP)).collect();
    }
    let by_stage = |position: &Position| vec![position.on(PP), position.on(TP)];
    let mut order: Vec<_> = distinct.iter().copied().collect();
    if tells_apart(&by_stage) {
        order.sort_by_key(by_stage);
    } else {
        order.sort_by_key(|position| {
            ([position.on(DP), position.on(PP), position.on(TP)], *position)
        });
    }
    let place = |position| order.iter().position(|other| other == position).unwrap_or(0) as u32;
    positions.iter().map(place).collect()
}

/// A trace, and what beside it may tell its rank.
pub(crate) struct Claim<'a> {
    pub(crate) trace: &'a mut Trace,
    /// The prefix of its lane in a merged file; empty when there is none.
    pub(crate) prefix: &'a str,
    /// Where its file's name puts it. `None` also for one of several traces of a file.
    pub(crate) by_name: Option<Position>,
}

/// Sets `meta.rank` of every trace for which something tells it.
pub(crate) fn assign_ranks(claims: &mut [Claim<'_>]) {
    let prefixed: Vec<_> = (0..claims.len())
        .filter_map(|index| Some((index, Position::of_prefix(claims[index].prefix)?)))
        .collect();
    for (number, (index, _)) in number_all(&prefixed).into_iter().zip(&prefixed) {
        let claim = &mut claims[*index];
        let label = claim.prefix.trim_matches(['[', ']']).to_owned();
        claim.trace.meta.rank = Some(Rank { number, source: RankSource::ProcessPrefix, label });
    }
    let named: Vec<_> = (0..claims.len())
        .filter(|index| prefixed.iter().all(|(other, _)| other != index))
        .filter(|&index| is_named_better(claims, index))
        .filter_map(|index| Some((index, claims[index].by_name?)))
        .collect();
    for (number, (index, position)) in number_all(&named).into_iter().zip(&named) {
        let label = position.label();
        claims[*index].trace.meta.rank = Some(Rank { number, source: RankSource::FileName, label });
    }
    for claim in claims {
        if let (Some(rank), Some(position)) = (&mut claim.trace.meta.rank, claim.by_name)
            && rank.label.is_empty()
        {
            rank.label = position.label();
        }
    }
}

fn number_all(positions: &[(usize, Position)]) -> Vec<u32> {
    number(&positions.iter().map(|(_, position)| *position).collect::<Vec<_>>())
}

/// Whether the file's name says more about the rank than the file does.
fn is_named_better(claims: &[Claim<'_>], index: usize) -> bool {
    let claim = &claims[index];
    let Some(rank) = &claim.trace.meta.rank else {
        return true;
    };
    match rank.source {
        RankSource::DeviceOrder => true,
        RankSource::DistributedInfo => {
            // Replicas that are worlds of their own: each is rank 0 of 1.
            let alone = |claim: &Claim<'_>| claim.trace.meta.world_size.is_none_or(|size| size < 2);
            let same: Vec<_> = claims
                .iter()
                .filter(|other| other.trace.rank() == Some(rank.number) && other.prefix.is_empty())
                .collect();
            let replicas: BTreeSet<_> =
                same.iter().filter_map(|other| other.by_name?.0[DP]).collect();
            same.len() > 1 && replicas.len() == same.len() && same.into_iter().all(alone)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(parts: &[(usize, u32)]) -> Position {
        let mut position = Position::default();
        for &(axis, number) in parts {
            position.0[axis] = Some(number);
        }
        position
    }

    #[test]
    fn names_state_positions() {
        const EP: usize = 7;
        const DCP: usize = 6;
        let cases: [(&str, &[(usize, u32)]); 22] = [
            ("1795969540.5310109-TP-0.trace.json.gz", &[(TP, 0)]),
            (
                "x-1795969540.53-TP-3-DP-1-PP-2-EP-4-DECODE.trace.json.gz",
                &[(TP, 3), (DP, 1), (PP, 2), (EP, 4)],
            ),
            ("TP-3.trace.json.gz", &[(TP, 3)]),
            // The size of the group in a prefix, the position at the end.
            ("TP2_off__steps5__1795970054.150842-TP-1.trace.json.gz", &[(TP, 1)]),
            ("rank-3.json", &[(RANK, 3)]),
            ("rank_3.json", &[(RANK, 3)]),
            ("rank3.json", &[(RANK, 3)]),
            ("Rank03", &[(RANK, 3)]),
            ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", &[(RANK, 34)]),
            ("inference_rank_1.json.gz", &[(RANK, 1)]),
            ("sampled_rank-0.json.gz", &[(RANK, 0)]),
            ("bs_104_rank0.json.gz", &[(RANK, 0)]),
            ("cuda_graph_capture-EagerRunner-TP-5.json.gz", &[(TP, 5)]),
            (
                "dp1_pp0_tp2_dcp0_ep3_rank2.1700000000.pt.trace.json.gz",
                &[(DP, 1), (PP, 0), (TP, 2), (DCP, 0), (EP, 3), (RANK, 2)],
            ),
            ("worker0.1623143089861.pt.trace.json.gz", &[]),
            ("rank_not_found.json.gz", &[]),
            ("glm5-tp8.json.gz", &[]),
            ("frank3.json", &[]),
            ("rank3a.json", &[]),
            ("host_123.1700.pt.trace.json.gz", &[]),
            ("rank-99999999999999999999.json", &[]),
            ("", &[]),
        ];
        for (name, parts) in cases {
            let expected = (!parts.is_empty()).then(|| position(parts));
            assert_eq!(Position::of_name(name), expected, "{name}");
        }
        let expected = Some(position(&[(TP, 0), (DP, 1), (PP, 0), (EP, 0)]));
        assert_eq!(Position::of_prefix("TP00-DP01-PP00-EP00"), expected);
        assert_eq!(Position::of_prefix("[TP07] "), Some(position(&[(TP, 7)])));
        assert_eq!(Position::of_prefix("host"), None);
    }

    #[test]
    fn positions_become_numbers() {
        // Data-parallel attention: TP counts over DP.
        let dp_attention = [(0, 0), (1, 0), (2, 1), (3, 1)];
        let positions = dp_attention.map(|(tp, dp)| position(&[(TP, tp), (DP, dp)]));
        assert_eq!(number(&positions), [0, 1, 2, 3]);
        // Replicas of two: DP outermost.
        let replicas = [(0, 1), (1, 1), (0, 0), (1, 0)];
        let positions = replicas.map(|(tp, dp)| position(&[(TP, tp), (DP, dp)]));
        assert_eq!(number(&positions), [2, 3, 0, 1]);
        // Two stages of two.
        let stages = [(1, 1), (0, 0), (1, 0), (0, 1)];
        let positions = stages.map(|(tp, pp)| position(&[(TP, tp), (PP, pp)]));
        assert_eq!(number(&positions), [3, 0, 1, 2]);
        // The rank of a replica is not unique, so the order decides.
        let vllm = [(0, 0), (1, 0)].map(|(dp, rank)| position(&[(DP, dp), (TP, 0), (RANK, rank)]));
        assert_eq!(number(&vllm), [0, 1]);
        // A subset keeps its numbers, and equal positions are equal.
        let subset = [6, 2, 6].map(|rank| position(&[(RANK, rank)]));
        assert_eq!(number(&subset), [6, 2, 6]);
        assert_eq!(number(&[]), [0; 0]);
        // Names of two kinds: no order between them, a conflict stays one.
        let mixed = [position(&[(RANK, 1)]), position(&[(TP, 3)]), position(&[(TP, 1), (DP, 0)])];
        assert_eq!(number(&mixed), [1, 3, 1]);
    }

    #[test]
    fn precedence_of_claims() {
        let info = |number| {
            let source = RankSource::DistributedInfo;
            let mut trace = Trace::default();
            trace.meta.rank = Some(Rank { number, source, label: String::new() });
            trace
        };
        let ranks = |traces: &mut [(Trace, &str, &str)]| {
            let mut claims: Vec<_> = traces
                .iter_mut()
                .map(|(trace, prefix, name)| Claim {
                    trace,
                    prefix,
                    by_name: Position::of_name(name),
                })
                .collect();
            assign_ranks(&mut claims);
            traces
                .iter()
                .map(|(trace, ..)| {
                    trace.meta.rank.as_ref().map(|r| (r.number, r.source, r.label.clone()))
                })
                .collect::<Vec<_>>()
        };
        let rank = |number, source, label: &str| Some((number, source, label.to_owned()));
        use RankSource::{DistributedInfo, FileName, ProcessPrefix};
        // The file outranks its name.
        assert_eq!(ranks(&mut [(info(5), "", "rank-3.json")]), [rank(5, DistributedInfo, "")]);
        assert_eq!(ranks(&mut [(Trace::default(), "", "rank-3")]), [rank(3, FileName, "")]);
        assert_eq!(ranks(&mut [(Trace::default(), "", "worker0")]), [None]);
        // Lanes of a merged file.
        let mut merged = [(info(0), "TP01", ""), (info(0), "TP00", "")];
        assert_eq!(
            ranks(&mut merged),
            [rank(1, ProcessPrefix, "TP01"), rank(0, ProcessPrefix, "TP00")]
        );
        // Two worlds of one, told apart by name; the same without names stays as recorded.
        let mut replicas = [(info(0), "", "a-TP-0-DP-1.json"), (info(0), "", "a-TP-0-DP-0.json")];
        assert_eq!(
            ranks(&mut replicas),
            [rank(1, FileName, "TP0-DP1"), rank(0, FileName, "TP0-DP0")]
        );
        // In a world of one there is no second rank of tensor parallelism.
        let mut unrelated = [(info(0), "", "a-TP-0.json"), (info(0), "", "b-TP-1.json")];
        assert_eq!(ranks(&mut unrelated), vec![rank(0, DistributedInfo, ""); 2]);
        let mut nameless = [(info(0), "", "a.json"), (info(0), "", "b.json")];
        assert_eq!(ranks(&mut nameless), vec![rank(0, DistributedInfo, ""); 2]);
    }
}
