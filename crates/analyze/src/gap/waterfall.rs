//! The rows from the bound to the captured step, exact by construction.
//!
//! ```text
//!   bound                          n x bound of a step
//! + kernels, per component         its accounts - n x its part of the bound
//! + communication                  its accounts - n x its part of the bound
//! + copies, idle, per account      the account
//! = captured                       all accounts = all periods
//! ```
//!
//! Each part of the bound is added once, in the first row, and taken off once, in its component's.

use super::components::{COMPONENTS, Place, Share, place, position};
use crate::results::{Account, Component, GapKind, GapRow};

/// The accounts of `n` steps against the shares of one step's bound. With `unprofiled_total_ns` the
/// rows say too what the steps would be without the profiler: work on the GPU as it is, idle
/// accounts in proportion, so that all rows together are that time.
pub(super) fn rows(
    accounts: &[Account],
    n: u64,
    shares: &[Share; COMPONENTS.len()],
    unprofiled_total_ns: Option<i64>,
) -> Vec<GapRow> {
    let steps = i64::try_from(n).unwrap_or(i64::MAX);
    let bound = |ns: i64| ns.saturating_mul(steps);
    let row = |kind, name: &str, total_ns: i64| GapRow {
        kind,
        name: name.to_owned(),
        total_ns,
        ns_per_step: total_ns as f64 / n.max(1) as f64,
        unprofiled_total_ns: unprofiled_total_ns.map(|_| total_ns),
    };
    let measured = seen(accounts);
    let whole = shares.iter().map(|share| share.ns).sum();
    let mut rows = vec![row(GapKind::Bound, "bound", bound(whole))];
    let excess = |component: Component, kind, name: &str| {
        let at = position(component);
        let is_there = measured[at] != 0 || shares[at].ns != 0;
        is_there.then(|| row(kind, name, measured[at] - bound(shares[at].ns)))
    };
    let kernels = COMPONENTS.into_iter().filter(|of| *of != Component::Communication);
    rows.extend(kernels.filter_map(|of| excess(of, GapKind::Kernels, name(of))));
    rows[1..].sort_by_key(|row| std::cmp::Reverse(row.total_ns));
    let communication = Component::Communication;
    rows.extend(excess(communication, GapKind::Communication, name(communication)));
    for (wanted, kind) in [(Place::Copies, GapKind::Copies), (Place::Idle, GapKind::Idle)] {
        let there = accounts.iter().filter(|account| place(account) == wanted);
        rows.extend(there.map(|account| row(kind, &account.account, account.total_ns)));
    }
    if let Some(total) = unprofiled_total_ns {
        without_profiler(&mut rows, total);
    }
    rows
}

/// Time of each component's accounts.
pub(super) fn seen(accounts: &[Account]) -> [i64; COMPONENTS.len()] {
    let mut sums = [0; COMPONENTS.len()];
    for account in accounts {
        if let Place::Component(component) = place(account) {
            sums[position(component)] += account.total_ns;
        }
    }
    sums
}

/// Cuts the idle rows down (or up) so that all rows add up to `total`; what idle time cannot give or
/// take is a row of its own.
fn without_profiler(rows: &mut Vec<GapRow>, total: i64) {
    let of_kind = |rows: &[GapRow], idle: bool| -> i64 {
        let those = rows.iter().filter(|row| (row.kind == GapKind::Idle) == idle);
        those.map(|row| row.total_ns).sum()
    };
    let (busy, idle) = (of_kind(rows, false), of_kind(rows, true));
    let wanted = (total - busy).max(0);
    let at: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].kind == GapKind::Idle).collect();
    let parts: Vec<i64> = at.iter().map(|&i| rows[i].total_ns).collect();
    let given = if idle > 0 { share_out(wanted, &parts) } else { vec![0; parts.len()] };
    for (&row, &ns) in at.iter().zip(&given) {
        rows[row].unprofiled_total_ns = Some(ns);
    }
    let remainder = total - busy - given.iter().sum::<i64>();
    if remainder != 0 {
        rows.push(GapRow {
            kind: GapKind::Remainder,
            name: "not in the trace".to_owned(),
            total_ns: 0,
            ns_per_step: 0.0,
            unprofiled_total_ns: Some(remainder),
        });
    }
}

/// `total` in proportion to `parts` (none below 0, not all 0), to the nanosecond: rounded down, and
/// what is missing goes to the largest remainders, one each.
fn share_out(total: i64, parts: &[i64]) -> Vec<i64> {
    let whole: i128 = parts.iter().map(|part| i128::from(*part)).sum();
    let exact = |part: i64| i128::from(total) * i128::from(part);
    let floor = |part: i64| exact(part).div_euclid(whole) as i64; // at most `total`
    let mut given: Vec<i64> = parts.iter().map(|part| floor(*part)).collect();
    let missing = usize::try_from(total - given.iter().sum::<i64>()).unwrap_or(0);
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(exact(parts[at]).rem_euclid(whole)));
    for &at in order.iter().take(missing) {
        given[at] += 1;
    }
    given
}

/// A component in words.
fn name(component: Component) -> &'static str {
    match component {
        Component::Attention => "attention",
        Component::Indexer => "indexer",
        Component::Experts => "experts",
        Component::DenseGemm => "dense GEMM",
        Component::Norms => "norms",
        Component::Embedding => "embedding",
        Component::Communication => "communication",
        Component::OtherKernels => "other kernels",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gap::components::move_unseen;
    use crate::results::{AccountGroup, Distribution};
    use proptest::prelude::*;

    const NAMES: &[(&str, AccountGroup)] = &[
        ("gemm.bf16", AccountGroup::Compute),
        ("attn.mla", AccountGroup::Compute),
        ("moe.gemm.fp4", AccountGroup::Compute),
        ("norm", AccountGroup::Compute),
        ("uncategorised", AccountGroup::Compute),
        ("copy.cast", AccountGroup::Compute),
        ("comm.allreduce.nccl", AccountGroup::Communication),
        ("memcpy.h2d", AccountGroup::Memory),
        ("graph.opaque", AccountGroup::OpaqueGraph),
        ("idle.host_launched_late", AccountGroup::Idle),
        ("idle.launch_latency", AccountGroup::Idle),
        ("idle.between_steps", AccountGroup::Idle),
    ];

    fn accounts(totals: &[i64]) -> Vec<Account> {
        let one =
            Distribution { n: 1, median: 0.0, p90: 0.0, p99: 0.0, min: 0.0, max: 0.0, mean: 0.0 };
        let account = |(&(name, group), &total_ns): (&(&str, AccountGroup), &i64)| Account {
            account: name.to_owned(),
            group,
            ns_per_step: 0.0,
            ratio: 0.0,
            total_ns,
            per_step_ns: one,
            rank_range_ns: None,
            meaning: String::new(),
        };
        // The ledger has no account without time.
        NAMES.iter().zip(totals).filter(|(_, total)| **total != 0).map(account).collect()
    }

    fn shares(of: &[(Component, i64)]) -> [Share; COMPONENTS.len()] {
        let mut shares: [Share; COMPONENTS.len()] = Default::default();
        for (component, ns) in of {
            shares[position(*component)].ns = *ns;
        }
        shares
    }

    fn find(rows: &[GapRow], name: &str) -> (i64, Option<i64>) {
        let row = rows.iter().find(|row| row.name == name).expect(name);
        (row.total_ns, row.unprofiled_total_ns)
    }

    #[test]
    fn two_steps_by_hand() {
        // gemm 50, attn 8, uncategorised 4, cast 20, comm 10, idle 60 + 30 + 18 = 108: 200 in 2 steps.
        let accounts = accounts(&[50, 8, 0, 0, 4, 20, 10, 0, 0, 60, 30, 18]);
        let shares = shares(&[
            (Component::DenseGemm, 20),
            (Component::Attention, 6),
            (Component::Communication, 2),
        ]);
        // Unprofiled 2 x 65 = 130: busy 92 stays, idle 38 of 108.
        let rows = rows(&accounts, 2, &shares, Some(130));
        // bound 2 x 28; gemm 50 - 40; attention 8 - 12: below its bound; comm 10 - 4
        for (name, total) in [
            ("bound", 56),
            ("dense GEMM", 10),
            ("attention", -4),
            ("other kernels", 4),
            ("communication", 6),
            ("copy.cast", 20),
        ] {
            assert_eq!(find(&rows, name), (total, Some(total)), "{name}");
        }
        // 38 x 60 / 108 = 21.11, 38 x 30 / 108 = 10.56, 38 x 18 / 108 = 6.33: one more to the second
        assert_eq!(find(&rows, "idle.host_launched_late"), (60, Some(21)));
        assert_eq!(find(&rows, "idle.launch_latency"), (30, Some(11)));
        assert_eq!(find(&rows, "idle.between_steps"), (18, Some(6)));
        assert_eq!(rows.len(), 9);
        assert_eq!(rows[1].ns_per_step, 5.0);
    }

    #[test]
    fn a_tpot_below_the_busy_time_leaves_a_remainder() {
        let accounts = accounts(&[50, 0, 0, 0, 0, 0, 0, 0, 0, 60]);
        let rows = rows(&accounts, 1, &shares(&[]), Some(45));
        assert_eq!(find(&rows, "idle.host_launched_late"), (60, Some(0)));
        assert_eq!(find(&rows, "not in the trace"), (0, Some(-5)));
    }

    #[test]
    fn a_tpot_above_a_step_without_idle_time_too() {
        let rows = rows(&accounts(&[50]), 1, &shares(&[]), Some(70));
        assert_eq!(find(&rows, "not in the trace"), (0, Some(20)));
    }

    proptest! {
        #[test]
        fn rows_add_up_whatever_the_bound(
            totals in proptest::collection::vec(prop_oneof![Just(0), 1..10_000_000_000_i64], 12),
            bounds in proptest::collection::vec(prop_oneof![Just(0), 1..1_000_000_000_i64], 8),
            n in 1..5_000_u64,
            unprofiled in proptest::option::of(0..100_000_000_000_i64),
        ) {
            let accounts = accounts(&totals);
            let of: Vec<_> = COMPONENTS.into_iter().zip(bounds.iter().copied()).collect();
            let mut shares = shares(&of);
            move_unseen(&mut shares, &seen(&accounts));
            let rows = rows(&accounts, n, &shares, unprofiled);
            let captured: i64 = rows.iter().map(|row| row.total_ns).sum();
            prop_assert_eq!(captured, totals.iter().sum::<i64>());
            prop_assert_eq!(rows[0].total_ns, bounds.iter().sum::<i64>() * n as i64);
            let corrected: Option<i64> = rows.iter().map(|row| row.unprofiled_total_ns).sum();
            prop_assert_eq!(corrected, unprofiled);
            let idle = rows.iter().filter(|row| row.kind == GapKind::Idle);
            prop_assert!(idle.filter_map(|row| row.unprofiled_total_ns).all(|ns| ns >= 0));
        }
    }
}
