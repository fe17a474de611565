//! Findings: rules over results. One rule is one file below `rules`, with its doc, thresholds and
//! tests.

mod rules;
mod saving;
#[cfg(test)]
pub(crate) mod testing;
mod unprofiled;

use crate::profiler_cost::{Cost, profiler_cost};
use crate::results::{
    Baseline, Collectives, Copies, Evidence, Finding, Findings, KernelSummary, Launches, Layers,
    Ledger, LedgerScope, Quality, RuleOutcome, StepTable,
};
use crate::simulate::MatchedCollective;
use crate::view::LaneView;
use saving::Remedy;

/// A rule: what it looks for and how.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Stable code, such as `KV001`.
    pub code: &'static str,
    /// Name of the bad pattern.
    pub name: &'static str,
    /// What it is, why it costs, how it is found, what to do: Markdown.
    pub doc: &'static str,
    check: fn(&Facts<'_>) -> Outcome,
}

/// Every rule, in order of code.
#[must_use]
pub fn all_rules() -> &'static [Rule] {
    rules::ALL
}

/// Everything that rules look at.
pub(crate) struct Facts<'a> {
    pub(crate) views: &'a [LaneView<'a>],
    pub(crate) quality: &'a Quality,
    pub(crate) steps: &'a StepTable,
    pub(crate) ledger: &'a Ledger,
    pub(crate) launches: &'a Launches,
    pub(crate) layers: Option<&'a Layers>,
    pub(crate) copies: &'a Copies,
    pub(crate) collectives: &'a Collectives,
    pub(crate) matched: &'a [MatchedCollective],
    pub(crate) kernels: &'a [KernelSummary],
    /// What was measured without a profiler, if it is about these steps.
    pub(crate) tpot: Option<&'a Baseline>,
}

impl Facts<'_> {
    /// Mean time per step of the accounts that `keep` names.
    pub(crate) fn account_ns(&self, keep: impl Fn(&str) -> bool) -> f64 {
        let accounts = self.ledger.accounts.iter().filter(|account| keep(&account.account));
        accounts.map(|account| account.ns_per_step).sum()
    }

    /// Mean time per step in which the GPU is busy.
    pub(crate) fn busy_ns(&self) -> f64 {
        self.steps.gpu_busy_ns.map_or(0.0, |busy| busy.mean)
    }

    /// Whether most of what the GPU does is in graphs: a step may launch one and do all else
    /// without.
    pub(crate) fn mostly_in_graphs(&self) -> bool {
        self.launches.graph_time_ratio.is_some_and(|ratio| ratio > 0.5)
    }

    /// Mean period.
    pub(crate) fn period_ns(&self) -> f64 {
        if self.ledger.n == 0 {
            0.0
        } else {
            self.ledger.period_sum_ns as f64 / self.ledger.n as f64
        }
    }
}

/// What a rule says.
pub(crate) enum Outcome {
    Found(Box<Draft>),
    Clear,
    NotApplicable(String),
}

impl Outcome {
    pub(crate) fn not_applicable(reason: &str) -> Self {
        Self::NotApplicable(reason.to_owned())
    }
}

/// A finding before its saving is worked out.
pub(crate) struct Draft {
    pub(crate) headline: String,
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) advice: String,
    pub(crate) remedy: Remedy,
}

/// One number of evidence.
pub(crate) fn evidence(what: &str, value: f64, unit: &str) -> Evidence {
    // An empty sum of floats is -0.0; nobody wants to read that.
    Evidence { what: what.to_owned(), value: value + 0.0, unit: unit.to_owned() }
}

/// Applies every rule; findings come with what a fix recovers, most first.
pub(crate) fn find(facts: &Facts<'_>) -> Findings {
    let mut outcomes = Vec::new();
    let mut drafts: Vec<(&Rule, Box<Draft>)> = Vec::new();
    for rule in all_rules() {
        let (outcome, reason) = match verdict(rule, facts) {
            Outcome::Found(draft) => {
                drafts.push((rule, draft));
                ("found", None)
            }
            Outcome::Clear => ("clear", None),
            Outcome::NotApplicable(reason) => ("not_applicable", Some(reason)),
        };
        outcomes.push(RuleOutcome {
            code: rule.code.to_owned(),
            outcome: outcome.to_owned(),
            reason,
        });
    }
    let remedies: Vec<&Remedy> = drafts.iter().map(|(_, draft)| &draft.remedy).collect();
    let cost = cost_of_recording(facts);
    let (savings, combined) = saving::work_out(facts, &remedies, cost.as_ref());
    let mut findings: Vec<Finding> = (drafts.into_iter().zip(savings))
        .map(|((rule, draft), saving)| Finding {
            code: rule.code.to_owned(),
            name: rule.name.to_owned(),
            headline: draft.headline,
            evidence: draft.evidence,
            saving,
            advice: draft.advice,
        })
        .collect();
    findings.sort_by(|a, b| {
        saving::worth(&b.saving).total_cmp(&saving::worth(&a.saving)).then(a.code.cmp(&b.code))
    });
    Findings { findings, combined, rules: outcomes, profiler_cost: cost.map(|cost| cost.result) }
}

/// What recording adds to the steps, when there are any.
fn cost_of_recording(facts: &Facts<'_>) -> Option<Cost> {
    if facts.quality.refused.is_some() || facts.ledger.scope != LedgerScope::Steps {
        return None;
    }
    profiler_cost(facts.views, facts.period_ns(), facts.tpot, facts.mostly_in_graphs())
}

/// A rule about steps says nothing where there are none or the trace supports no verdict.
fn verdict(rule: &Rule, facts: &Facts<'_>) -> Outcome {
    let about_the_capture = rule.code.starts_with("CAP");
    if about_the_capture {
        return (rule.check)(facts);
    }
    if let Some(refused) = &facts.quality.refused {
        return Outcome::NotApplicable(refused.reason.clone());
    }
    if facts.ledger.scope != LedgerScope::Steps {
        return Outcome::not_applicable("the trace has no steps");
    }
    (rule.check)(facts)
}
