//! Before against after: what changed from one analysis to another, and whether a step got longer.
//!
//! ```text
//!   A, B --> same capture? --> comparable? --> TPOT on both sides?  yes: it decides
//!                                              no: periods, as far as the profiler lets them tell
//! ```
//!
//! A profiled step takes at least its GPU busy time without the profiler, and at most its profiled
//! period. Where the host is the bound, the profiler stretches the period by up to a few times, so
//! equal periods say nothing when GPU busy times differ.

mod bound;
mod change;
mod comparable;
mod gates;
mod kernels;
mod verdict;
mod waterfall;

use serde::Deserialize;

pub use gates::{Gate, GateError};

use crate::results::{
    Analysis, Baseline, DecidedBy, Diff, DiffSide, Dilation, KernelSummary, Ledger, LedgerScope,
    Quality, RankSummary, Reason, StepTable, Verdict,
};
use crate::{Section, Sections};

/// What a diff needs to know about one side: a part of an [`Analysis`], so that a saved report of
/// an earlier version can be one.
#[derive(Clone, Debug, Deserialize)]
pub struct DiffInput {
    /// How far the numbers can be trusted.
    pub quality: Quality,
    /// The ranks.
    pub ranks: Vec<RankSummary>,
    /// The steps.
    pub steps: StepTable,
    /// Where their time went.
    pub ledger: Ledger,
    /// Kernels and copies.
    pub kernels: Vec<KernelSummary>,
    /// The layers, when they were looked for and found.
    #[serde(default)]
    pub layers: Option<LayerCount>,
    /// What was measured without a profiler.
    #[serde(default)]
    pub baseline: Option<Baseline>,
}

/// How many layers were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct LayerCount {
    /// Number of layers.
    pub count: u64,
}

impl From<Analysis> for DiffInput {
    fn from(analysis: Analysis) -> Self {
        let Analysis { quality, ranks, steps, ledger, kernels, layers, .. } = analysis;
        let layers = layers.map(|layers| LayerCount { count: layers.count });
        Self { quality, ranks, steps, ledger, kernels, layers, baseline: None }
    }
}

impl DiffInput {
    /// The sections of an analysis that a diff looks at.
    #[must_use]
    pub fn sections() -> Sections {
        Sections::only(&[Section::Steps, Section::Ledger, Section::Kernels, Section::Layers])
    }

    /// The same with what was measured without a profiler.
    #[must_use]
    pub fn with_baseline(self, baseline: Option<Baseline>) -> Self {
        Self { baseline, ..self }
    }

    /// Whether there are periods to compare.
    fn has_steps(&self) -> bool {
        self.quality.refused.is_none()
            && self.ledger.scope == LedgerScope::Steps
            && self.ledger.n > 0
            && self.steps.period_ns.is_some()
    }

    /// By whole numbers only: a mean that went through JSON may differ in its last digit.
    fn is_same_capture(&self, other: &Self) -> bool {
        let kernels = |input: &Self| -> Vec<(String, u64, i64)> {
            let of = |kernel: &KernelSummary| (kernel.name.clone(), kernel.calls, kernel.total_ns);
            input.kernels.iter().map(of).collect()
        };
        let accounts = |input: &Self| -> Vec<(String, i64)> {
            let of = &input.ledger.accounts;
            of.iter().map(|account| (account.account.clone(), account.total_ns)).collect()
        };
        self.ranks == other.ranks
            && self.steps.steps == other.steps.steps
            && kernels(self) == kernels(other)
            && accounts(self) == accounts(other)
            && !(self.kernels.is_empty() && self.steps.steps.is_empty())
    }
}

/// Choices of a diff.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiffOptions {
    /// Give a verdict also on captures that are not comparable.
    pub force: bool,
}

/// What changed from `a` to `b`.
#[must_use]
pub fn diff(a: &DiffInput, b: &DiffInput, options: DiffOptions) -> Diff {
    let steps = a.has_steps() && b.has_steps();
    let samples =
        |pick: change::Pick| (change::samples(&a.steps, pick), change::samples(&b.steps, pick));
    let changed = |pick: change::Pick| {
        let (a, b) = samples(pick);
        if steps { change::of_steps(&a, &b) } else { None }
    };
    let mut diff = Diff {
        verdict: Verdict::Inconclusive,
        decided_by: DecidedBy::Nothing,
        reasons: Vec::new(),
        cautions: Vec::new(),
        same_capture: a.is_same_capture(b),
        comparability: comparable::compare(a, b, options.force),
        a: side(a),
        b: side(b),
        period: changed(|step| step.period_ns),
        gpu_busy: changed(|step| step.gpu_busy_ns),
        tpot: change::of_tpot(a.baseline.as_ref(), b.baseline.as_ref()),
        waterfall: if steps { waterfall::waterfall(&a.ledger, &b.ledger) } else { None },
        kernels: kernels::pair(a, b),
    };
    let judged = verdict::judge(&diff, steps);
    diff.verdict = judged.verdict;
    diff.decided_by = judged.decided_by;
    diff.reasons = judged.reasons;
    diff.cautions = judged.cautions;
    diff
}

fn side(input: &DiffInput) -> DiffSide {
    let steps = &input.steps;
    let selected = steps.selected.as_ref();
    let mut gpu_names: Vec<String> =
        input.ranks.iter().filter_map(|rank| rank.gpu_name.clone()).collect();
    gpu_names.sort();
    gpu_names.dedup();
    let events: u64 = input.ranks.iter().map(|rank| rank.event_count).sum();
    let step_count: u64 = steps.kinds.values().sum();
    let median = |distribution: Option<crate::results::Distribution>| {
        distribution.map(|of| of.median).filter(|&median| median > 0.0)
    };
    let (period, busy) = (median(steps.period_ns), median(steps.gpu_busy_ns));
    let tpot = input.baseline.as_ref().map(|of| of.tpot_ns.median).filter(|&median| median > 0.0);
    DiffSide {
        kind: selected.map(|selected| selected.kind.clone()),
        n: input.ledger.n,
        batch_size: selected.and_then(|selected| selected.batch_size),
        rank_count: input.ranks.len() as u64,
        gpu_names,
        layer_count: input.layers.map(|layers| layers.count),
        grade: input.quality.grade,
        confidence: steps.confidence,
        period_ns: steps.period_ns,
        gpu_busy_ns: steps.gpu_busy_ns,
        busy_ratio: period.zip(busy).map(|(period, busy)| busy / period),
        events_per_step: (step_count > 0).then(|| events as f64 / step_count as f64),
        baseline: input.baseline.clone(),
        dilation_ratio: input
            .baseline
            .as_ref()
            .and_then(|baseline| Dilation::of(steps, &input.ledger, baseline).ok())
            .map(|dilation| dilation.ratio),
        bound: if input.has_steps() { bound::bound(input, period, busy, tpot) } else { None },
    }
}

fn reason(code: &str, text: impl Into<String>) -> Reason {
    Reason { code: code.to_owned(), text: text.into() }
}
