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
    /// What recording adds to a step; `null` when nothing tells.
    pub profiler_cost: Option<ProfilerCost>,
}

/// What recording adds to the host's time of a step, and to the step itself where the host is its bound.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ProfilerCost {
    /// What it is known from.
    pub basis: ProfilerCostBasis,
    /// Of a baseline: `manifest` or `given`; of costs: what they were measured on.
    pub source: String,
    /// What it likely adds; negative where steps without a profiler were measured to take longer.
    pub added_ns_per_step: f64,
    /// What it adds at least.
    pub least_ns_per_step: f64,
    /// What it adds at most.
    pub most_ns_per_step: f64,
    /// The events of a step and what each costs, so that they add up to `added_ns_per_step` (to 0
    /// where that is negative). Empty for recorders whose costs were not measured.
    pub events: Vec<EventCost>,
}

/// Where a profiler's cost is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProfilerCostBasis {
    /// TPOT measured without a profiler.
    Baseline,
    /// The recorded events and what each costs on the machine where that was measured.
    EventCosts,
}

/// Recorded events of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct EventCost {
    /// `cpu_op`, `launch` (with the work it launches), `other_api_call`, `graph_node`,
    /// `python_frame` or `range`.
    pub kind: String,
    /// Mean number per step.
    pub per_step: f64,
    /// What recording one adds.
    pub ns_each: f64,
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
/// step. Both are of the profiled step; `unprofiled` is of the step without the profiler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Saving {
    /// GPU time per step that the fix removes (sum of durations; of collectives that were matched
    /// over ranks, without the waiting).
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
    /// The same change of the step without the profiler; `null` when nothing tells how long that is.
    pub unprofiled: Option<UnprofiledSaving>,
}

/// What fixing a finding is worth without the profiler. See `profiler_cost` for what it rests on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UnprofiledSaving {
    /// Period without the profiler, the same for all findings: TPOT where it is known, else an
    /// estimate of the mean.
    pub period_before_ns: f64,
    /// Mean period after the fix.
    pub period_after_ns: f64,
    /// How far the difference of the two may be off.
    pub uncertainty_ns: f64,
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
