//! The ledger: every nanosecond of a step's period lies in exactly one account.
//!
//! While GPU work runs, its account has the time; of several, compute goes before communication
//! before copies before fills before opaque graphs, and the earlier start before the later. While
//! none runs, the gap before the next piece of work is split by cause (see [`idle`]).
//!
//! ```text
//!   stream 7   ######          ####        compute
//!   stream 8      @@@@@@@                  communication: 3 of 7 hidden
//!   account    ccccccmmmmiiiiiicccc        c compute, m communication, i idle.*
//! ```

mod accounts;
mod gaps;
mod host;
mod idle;
mod sweep;

use hashbrown::HashMap;
use steptally_trace_model::Nanos;

use crate::categories::{Categories, UNCATEGORISED};
use crate::results::{Account, AccountGroup, Gap, HostActivity, Ledger, LedgerScope};
use crate::stats::distribution;
use crate::view::{LaneView, extent};

use accounts::AccountId;
pub(crate) use accounts::{Accounts, IDLE_BETWEEN, IDLE_HOST_BLOCKED, IDLE_HOST_LATE, IDLE_LAUNCH};
use gaps::GapBook;
use host::Activity;

/// Amounts of one lane: per window and account, and beside the accounts.
struct LaneLedger<'a> {
    /// One row per window, one column per account.
    amounts: Vec<Vec<i64>>,
    hidden_communication: Nanos,
    hidden_copy: Nanos,
    activity: HashMap<Activity<'a>, i64>,
    gaps: GapBook<'a>,
}

/// Accounts for the windows of all lanes; also the gaps that make up most of the idle time.
pub(crate) fn account_time(
    scope: LedgerScope,
    views: &[LaneView<'_>],
    categories: &Categories,
) -> (Ledger, Vec<Gap>) {
    let accounts = Accounts::new(categories);
    let ledgers: Vec<LaneLedger<'_>> =
        views.iter().map(|view| account_lane(view, &accounts)).collect();
    let windows: Vec<&Vec<i64>> = ledgers.iter().flat_map(|ledger| &ledger.amounts).collect();
    let (n, period_sum) = extent(views);
    let total = |id: AccountId| windows.iter().map(|amounts| amounts[id.index()]).sum::<i64>();
    let per_step = |total: i64| if n == 0 { 0.0 } else { total as f64 / n as f64 };
    let share = |part: i64, whole: i64| (whole != 0).then(|| part as f64 / whole as f64);

    let mut entries: Vec<Account> = accounts
        .iter()
        .filter(|(id, _)| total(*id) != 0)
        .filter_map(|(id, key)| {
            let total_ns = total(id);
            Some(Account {
                account: key.name.to_owned(),
                group: key.group,
                ns_per_step: per_step(total_ns),
                ratio: share(total_ns, period_sum).unwrap_or(0.0),
                total_ns,
                per_step_ns: distribution(windows.iter().map(|amounts| amounts[id.index()]))?,
                rank_range_ns: rank_range(&ledgers, id),
                meaning: accounts::meaning(key).to_owned(),
            })
        })
        .collect();
    entries.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then(a.account.cmp(&b.account)));

    let sum_of = |keep: &dyn Fn(&Account) -> bool| {
        entries.iter().filter(|account| keep(account)).map(|account| account.total_ns).sum::<i64>()
    };
    let busy = sum_of(&|account| account.group != AccountGroup::Idle);
    let uncategorised = sum_of(&|account| account.account == UNCATEGORISED);
    let unknown_idle = sum_of(&|account| account.account == accounts::IDLE_UNKNOWN);
    let hidden = |part: fn(&LaneLedger<'_>) -> Nanos| {
        per_step(ledgers.iter().map(|ledger| part(ledger).as_ns()).sum())
    };
    let gaps = gaps::summarise(ledgers.iter().map(|ledger| &ledger.gaps), &accounts, n);
    let ledger = Ledger {
        scope,
        n: n as u64,
        uncategorised_ratio: share(uncategorised, busy),
        unknown_idle_ratio: share(unknown_idle, period_sum),
        sum_ns: entries.iter().map(|account| account.total_ns).sum(),
        period_sum_ns: period_sum,
        hidden_communication_ns_per_step: hidden(|ledger| ledger.hidden_communication),
        hidden_copy_ns_per_step: hidden(|ledger| ledger.hidden_copy),
        host_activity: host_activity(&ledgers, &accounts, per_step),
        accounts: entries,
    };
    (ledger, gaps)
}

/// Mean of an account on the rank that has least and on the one that has most.
fn rank_range(ledgers: &[LaneLedger<'_>], id: AccountId) -> Option<(f64, f64)> {
    let means: Vec<f64> = ledgers
        .iter()
        .filter(|ledger| !ledger.amounts.is_empty())
        .map(|ledger| {
            let total: i64 = ledger.amounts.iter().map(|amounts| amounts[id.index()]).sum();
            total as f64 / ledger.amounts.len() as f64
        })
        .collect();
    (means.len() > 1).then(|| {
        let least = means.iter().copied().fold(f64::INFINITY, f64::min);
        (least, means.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    })
}

fn host_activity(
    ledgers: &[LaneLedger<'_>],
    accounts: &Accounts<'_>,
    per_step: impl Fn(i64) -> f64,
) -> Vec<HostActivity> {
    let mut sums: HashMap<Activity<'_>, i64> = HashMap::new();
    for (activity, ns) in ledgers.iter().flat_map(|ledger| &ledger.activity) {
        *sums.entry(*activity).or_default() += ns;
    }
    let mut rows: Vec<(i64, HostActivity)> = sums
        .into_iter()
        .map(|(activity, ns)| {
            let row = HostActivity {
                account: accounts.key(activity.account).name.to_owned(),
                kind: activity.kind.code().to_owned(),
                name: activity.name.to_owned(),
                within: activity.within.to_owned(),
                ns_per_step: per_step(ns),
            };
            (ns, row)
        })
        .collect();
    rows.sort_by(|(a_ns, a), (b_ns, b)| {
        b_ns.cmp(a_ns)
            .then_with(|| (&a.account, &a.name, &a.within).cmp(&(&b.account, &b.name, &b.within)))
    });
    rows.into_iter().map(|(_, row)| row).collect()
}

fn account_lane<'a>(view: &'a LaneView<'a>, accounts: &Accounts<'_>) -> LaneLedger<'a> {
    let mut amounts = vec![vec![0i64; accounts.len()]; view.windows.len()];
    let swept = sweep::sweep(view, accounts, &mut amounts);
    let mut causes = idle::Causes::new(view);
    let mut gaps = GapBook::new(view, &swept.gaps);
    for (index, gap) in swept.gaps.iter().enumerate() {
        causes.split(index, gap, |account, ns| {
            amounts[gap.window][account.index()] += ns;
            gaps.add(index, account, ns);
        });
    }
    let activity = host::attribute(view, causes.into_host_time(), &mut amounts, &mut gaps);
    LaneLedger {
        amounts,
        hidden_communication: swept.hidden_communication,
        hidden_copy: swept.hidden_copy,
        activity,
        gaps,
    }
}
