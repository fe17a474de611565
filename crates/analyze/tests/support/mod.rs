//! Shared by the integration tests: run an analysis, read accounts by name.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;

use steptally_analyze::results::Analysis;
use steptally_analyze::{Config, analyze};
use steptally_trace_model::Trace;

/// Analyses with the default choices.
pub fn run(trace: Trace) -> Analysis {
    analyze(&[trace], &Config::default())
}

/// The accounts and their totals; fails when they do not add up to the periods.
pub fn accounts(analysis: &Analysis) -> BTreeMap<&str, i64> {
    assert_eq!(analysis.ledger.sum_ns, analysis.ledger.period_sum_ns, "the ledger does not add up");
    analysis.ledger.accounts.iter().map(|a| (a.account.as_str(), a.total_ns)).collect()
}

/// Checks all accounts of the ledger: nothing else may be in it.
pub fn check_accounts(trace: Trace, expected: &[(&str, i64)]) {
    let analysis = run(trace);
    assert_eq!(accounts(&analysis), expected.iter().copied().collect());
}

/// Analyses a fixture of the repository.
pub fn fixture(name: &str) -> Analysis {
    fixture_with(name, &Config::default())
}

/// Analyses a fixture of the repository with these choices.
pub fn fixture_with(name: &str, config: &Config) -> Analysis {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let options = steptally_import::ImportOptions::default();
    let run = steptally_import::import_path(&root.join(name), &options).expect(name);
    analyze(&run.traces, config)
}
