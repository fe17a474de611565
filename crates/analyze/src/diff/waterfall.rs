//! The change of the mean period, account by account, to the nanosecond.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::kernels::fate;
use crate::results::{AccountDiff, AccountGroup, Ledger, Waterfall};

/// The accounts of both ledgers; `None` when a side has no steps.
///
/// The exact change of an account is a fraction: total_b / n_b - total_a / n_a. All changes are
/// rounded down, and the nanoseconds that are missing to the rounded change of the period go to the
/// accounts with the largest remainders, one each.
pub(super) fn waterfall(a: &Ledger, b: &Ledger) -> Option<Waterfall> {
    if a.n == 0 || b.n == 0 {
        return None;
    }
    let mut totals: BTreeMap<&str, (AccountGroup, i64, i64)> = BTreeMap::new();
    for account in &a.accounts {
        totals.entry(&account.account).or_insert((account.group, 0, 0)).1 += account.total_ns;
    }
    for account in &b.accounts {
        totals.entry(&account.account).or_insert((account.group, 0, 0)).2 += account.total_ns;
    }

    let (a_n, b_n) = (i128::from(a.n), i128::from(b.n));
    let whole = a_n * b_n;
    let change = |a: i64, b: i64| i128::from(b) * a_n - i128::from(a) * b_n;
    let sums = totals.values().fold((0, 0), |sums, of| (sums.0 + of.1, sums.1 + of.2));
    let target = (2 * change(sums.0, sums.1) + whole).div_euclid(2 * whole);

    let mut rows: Vec<(i128, AccountDiff)> = totals
        .into_iter()
        .map(|(account, (group, a_total, b_total))| {
            let exact = change(a_total, b_total);
            let per_step = |total: i64, n: u64| total as f64 / n as f64;
            let present = |total: i64, n: u64| (total != 0).then(|| (per_step(total, n), 0.0));
            let row = AccountDiff {
                account: account.to_owned(),
                group,
                fate: fate(present(a_total, a.n), present(b_total, b.n)),
                a_total_ns: a_total,
                b_total_ns: b_total,
                change_ns: to_i64(exact.div_euclid(whole)),
            };
            (exact.rem_euclid(whole), row)
        })
        .collect();
    let missing = target - rows.iter().map(|(_, row)| i128::from(row.change_ns)).sum::<i128>();
    // The sort is stable, and the rows are in order of name.
    rows.sort_by_key(|(remainder, _)| Reverse(*remainder));
    for (_, row) in rows.iter_mut().take(usize::try_from(missing).unwrap_or(0)) {
        row.change_ns += 1;
    }
    let mut rows: Vec<AccountDiff> = rows.into_iter().map(|(_, row)| row).collect();
    rows.sort_by(|a, b| {
        let size = |row: &AccountDiff| row.change_ns.unsigned_abs();
        size(b).cmp(&size(a)).then_with(|| a.account.cmp(&b.account))
    });
    Some(Waterfall {
        a_n: a.n,
        b_n: b.n,
        a_sum_ns: sums.0,
        b_sum_ns: sums.1,
        change_ns: to_i64(target),
        rows,
    })
}

fn to_i64(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}
