//! Findings: named faults with evidence, advice, and what fixing them is worth.

use schemars::JsonSchema;
use serde::Serialize;

/// What the rules found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Findings {
    /// What was found, what a fix recovers most first.
    pub findings: Vec<Finding>,
    /// All savings that were simulated, removed together: they are not added twice.
    pub combined: Option<Saving>,
    /// Outcome of every rule.
    pub rules: Vec<RuleOutcome>,
}

/// One named fault.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// Stable code; `steptally explain CODE` tells more.
    pub code: String,
    /// Name of the pattern.
    pub name: String,
    /// What was found, in one sentence with its main numbers.
    pub headline: String,
    /// The numbers that say so.
    pub evidence: Vec<Evidence>,
    /// What fixing it is worth.
    pub saving: Saving,
    /// What to do, naming the option where it is known.
    pub advice: String,
}

/// One number of evidence.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Evidence {
    /// What it is.
    pub what: String,
    /// Its value, in `unit`.
    pub value: f64,
    /// `ns`, `bytes`, `bytes_per_s`, `ratio`, `count`, `per_step`.
    pub unit: String,
}

/// How the change of the period was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SavingMethod {
    /// The step was re-simulated without the work.
    Simulated,
    /// Not simulated: the period cannot shrink by more.
    UpperBound,
    /// Nothing is claimed.
    #[default]
    None,
}

/// What fixing a finding is worth. Two figures, never one: removing GPU time need not shorten the
/// step. Both are of the profiled step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Saving {
    /// GPU time per step that the fix removes (sum of durations).
    pub gpu_ns_per_step: f64,
    /// Mean period as captured.
    pub period_before_ns: Option<f64>,
    /// Mean period after the fix.
    pub period_after_ns: Option<f64>,
    /// How `period_after_ns` was found.
    pub method: SavingMethod,
    /// How far the simulation without any change is from the captured period, at most.
    pub simulation_error_ns: Option<i64>,
    /// What bounds the step after the fix: `host` or `gpu`.
    pub next_bound: Option<String>,
}

/// Outcome of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RuleOutcome {
    /// The rule's code.
    pub code: String,
    /// `found`, `clear` or `not_applicable`.
    pub outcome: String,
    /// Why it is not applicable.
    pub reason: Option<String>,
}
