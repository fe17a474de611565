//! Gaps by what runs before and after them: the same gap recurs in every layer and step.

use hashbrown::HashMap;
use steptally_trace_model::StringId;

use super::accounts::{AccountId, Accounts};
use super::sweep;
use crate::gpu::{GpuKind, GpuOp};
use crate::results::{Gap, GapCause, HostActivity};
use crate::stats;
use crate::timeline::ActivityKind;
use crate::view::LaneView;

/// Gaps are listed until they make up this share of the idle time.
const LISTED_SHARE: f64 = 0.95;
/// Host activities listed for a gap.
const LISTED_ACTIVITIES: usize = 5;

type Host<Text> = (AccountId, ActivityKind, Text, Text);

/// The gaps of one lane.
pub(super) struct GapBook<'a> {
    view: &'a LaneView<'a>,
    /// Position in `sums` of each gap.
    place: Vec<u32>,
    sums: Vec<(Key<StringId>, Sums<StringId>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key<Text> {
    after: Text,
    before: Text,
    ends_step: bool,
}

struct Sums<Text> {
    lengths: Vec<i64>,
    causes: Vec<(AccountId, i64)>,
    host: Vec<(Host<Text>, i64)>,
}

impl<Text> Default for Sums<Text> {
    fn default() -> Self {
        Self { lengths: Vec::new(), causes: Vec::new(), host: Vec::new() }
    }
}

impl<'a> GapBook<'a> {
    pub(super) fn new(view: &'a LaneView<'a>, gaps: &[sweep::Gap]) -> Self {
        let mut places: HashMap<Key<StringId>, u32> = HashMap::new();
        let mut book = Self { view, place: Vec::with_capacity(gaps.len()), sums: Vec::new() };
        for gap in gaps {
            let name = |op: Option<usize>| op.map_or(StringId::default(), |op| book.name(op));
            let key = Key {
                after: name(gap.previous),
                before: name(gap.next),
                ends_step: gap.at_boundary,
            };
            let place = *places.entry(key).or_insert_with(|| {
                book.sums.push((key, Sums::default()));
                book.sums.len() as u32 - 1
            });
            book.sums[place as usize].1.lengths.push(gap.interval.length().as_ns());
            book.place.push(place);
        }
        book
    }

    fn name(&self, op: usize) -> StringId {
        let GpuOp { kind, row, .. } = self.view.lane.ops[op];
        let trace = self.view.lane.trace;
        match kind {
            GpuKind::Kernel => trace.kernels.name[row as usize],
            GpuKind::Copy => trace.copies.name[row as usize],
            GpuKind::OpaqueGraph => StringId::default(),
        }
    }

    pub(super) fn add(&mut self, gap: usize, account: AccountId, ns: i64) {
        if ns != 0 {
            add(&mut self.sums[self.place[gap] as usize].1.causes, account, ns);
        }
    }

    pub(super) fn add_host(
        &mut self,
        gap: usize,
        account: AccountId,
        kind: ActivityKind,
        name: StringId,
        within: StringId,
        ns: i64,
    ) {
        let sums = &mut self.sums[self.place[gap] as usize].1;
        add(&mut sums.causes, account, ns);
        add(&mut sums.host, (account, kind, name, within), ns);
    }
}

/// Few distinct keys: a list is faster than a map.
fn add<K: PartialEq>(sums: &mut Vec<(K, i64)>, key: K, ns: i64) {
    match sums.iter_mut().find(|(other, _)| *other == key) {
        Some((_, sum)) => *sum += ns,
        None => sums.push((key, ns)),
    }
}

/// The gaps of all lanes that make up most of the idle time; `n` is the number of windows.
pub(super) fn summarise<'a>(
    books: impl Iterator<Item = &'a GapBook<'a>>,
    accounts: &Accounts<'_>,
    n: usize,
) -> Vec<Gap> {
    let mut joined: HashMap<Key<&str>, Sums<&str>> = HashMap::new();
    for book in books {
        let text = |id: StringId| book.view.lane.trace.text(id);
        for (key, sums) in &book.sums {
            let Key { after, before, ends_step } = *key;
            let key = Key { after: text(after), before: text(before), ends_step };
            let whole = joined.entry(key).or_default();
            whole.lengths.extend(&sums.lengths);
            for &(account, ns) in &sums.causes {
                add(&mut whole.causes, account, ns);
            }
            for &((account, kind, name, within), ns) in &sums.host {
                add(&mut whole.host, (account, kind, text(name), text(within)), ns);
            }
        }
    }
    let mut rows: Vec<(i64, Key<&str>, Sums<&str>)> =
        joined.into_iter().map(|(key, sums)| (sums.lengths.iter().sum(), key, sums)).collect();
    rows.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let idle: i64 = rows.iter().map(|(total, ..)| total).sum();
    let mut listed = 0;
    rows.into_iter()
        .take_while(|(total, ..)| {
            let more = (listed as f64) < LISTED_SHARE * idle as f64;
            listed += total;
            more
        })
        .map(|(total, key, sums)| summary(total, key, sums, accounts, n as f64))
        .collect()
}

fn summary(
    total: i64,
    key: Key<&str>,
    mut sums: Sums<&str>,
    accounts: &Accounts<'_>,
    n: f64,
) -> Gap {
    let name = |account: AccountId| accounts.key(account).name.to_owned();
    sums.causes.sort_by_key(|(account, ns)| (-ns, account.index()));
    sums.host.sort_by(|a, b| {
        b.1.cmp(&a.1).then_with(|| (a.0.1, a.0.2, a.0.3).cmp(&(b.0.1, b.0.2, b.0.3)))
    });
    Gap {
        after: key.after.to_owned(),
        before: key.before.to_owned(),
        ends_step: key.ends_step,
        count_per_step: sums.lengths.len() as f64 / n,
        ns_per_step: total as f64 / n,
        max_ns: sums.lengths.iter().copied().max().unwrap_or(0),
        median_ns: stats::median(&mut sums.lengths).unwrap_or(0.0),
        causes: (sums.causes.iter())
            .map(|&(account, ns)| GapCause { account: name(account), ns_per_step: ns as f64 / n })
            .collect(),
        host_activity: (sums.host.iter().take(LISTED_ACTIVITIES))
            .map(|&((account, kind, activity, within), ns)| HostActivity {
                account: name(account),
                kind: kind.code().to_owned(),
                name: activity.to_owned(),
                within: within.to_owned(),
                ns_per_step: ns as f64 / n,
            })
            .collect(),
    }
}
