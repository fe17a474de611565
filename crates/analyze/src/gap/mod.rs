//! What lies between the least time of a decode step and the step that was captured.
//!
//! ```text
//!   bound  + kernels  + communication  + copies  + idle, by cause       = captured step
//!   |=====|----------|---------------|---------|-----------------------|
//!                                              |-------| with TPOT: idle cut down to the true step
//! ```
//!
//! The rows are the ledger's accounts against the parts of the [roofline](crate::roofline), so their
//! sum is the captured step exactly. A profiler slows the host, not the GPU: with TPOT measured
//! without one, time on the GPU is kept and the idle accounts are cut down in proportion, as nothing
//! tells which gap was widened by how much.

mod alone;
mod components;
mod layers;
mod waterfall;

use crate::results::{
    Alone, Analysis, Baseline, BoundGap, Component, Dilation, GapAccount, GapComponent, GapCopy,
    LedgerScope, UnprofiledStep,
};
use crate::roofline::{
    Deployment, Gpu, Hardware, Measured, ModelConfig, Roofline, RooflineError, roofline,
};

use components::{COMPONENTS, Place, Share, place};

/// Copies that are held against the memory's bandwidth, and from which share of the step on.
const MOST_COPIES: usize = 5;
const LEAST_COPY: f64 = 0.005;

/// A component is below its bound when it misses more than this share of the whole bound.
const LEAST_BELOW: f64 = 0.01;

/// What a captured step is held against.
#[derive(Clone, Copy, Debug)]
pub struct GapInputs<'a> {
    /// The model.
    pub model: &'a ModelConfig,
    /// The GPU's limits.
    pub gpu: &'a Gpu,
    /// How the model is served.
    pub deployment: &'a Deployment,
    /// Measured limits, and operations measured alone.
    pub measured: &'a Measured,
    /// TPOT without a profiler.
    pub baseline: Option<&'a Baseline>,
    /// What of the deployment is a guess, for want of a source: shown among the cautions.
    pub guesses: &'a [String],
}

/// Why there is no gap to show.
#[derive(Debug, thiserror::Error)]
pub enum GapError {
    /// The analysis gives no verdict.
    #[error("the trace does not support a verdict: {0}")]
    Refused(String),
    /// Nothing says where a step begins.
    #[error("no complete step was found in the trace")]
    NoSteps,
    /// The bound is one of decoding.
    #[error("the steps are of kind {kind}, and the bound is for decode steps")]
    OtherKind {
        /// Their kind.
        kind: String,
    },
    /// The deployment is not possible.
    #[error(transparent)]
    Roofline(#[from] RooflineError),
}

impl GapError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Refused(_) => "`steptally analyze` says what is missing",
            Self::NoSteps => "say what a step is with --step-pattern",
            Self::OtherKind { .. } => "capture decode steps, or choose them with --kind decode",
            Self::Roofline(_) => "check --tp, --ep, --batch and the other sizes",
        }
    }
}

/// Holds the captured step against its bound.
///
/// # Errors
/// [`GapError`] when there is no decode step, or no bound.
pub fn bound_gap(analysis: &Analysis, inputs: GapInputs<'_>) -> Result<BoundGap, GapError> {
    if let Some(refusal) = &analysis.quality.refused {
        return Err(GapError::Refused(refusal.reason.clone()));
    }
    let ledger = &analysis.ledger;
    if ledger.scope != LedgerScope::Steps || ledger.n == 0 {
        return Err(GapError::NoSteps);
    }
    let kind = analysis.steps.selected.as_ref().map_or("", |selected| selected.kind.as_str());
    if ["extend", "mixed", "draft", "idle"].contains(&kind) {
        return Err(GapError::OtherKind { kind: kind.to_owned() });
    }
    let bound = roofline(inputs.model, inputs.gpu, inputs.deployment, inputs.measured)?;
    let per_step = |total: i64| total as f64 / ledger.n as f64;
    let captured = per_step(ledger.period_sum_ns);
    let (unprofiled, not_corrected) = match inputs.baseline {
        None => (None, Some("no TPOT without it is known".to_owned())),
        Some(baseline) => match unprofiled(analysis, baseline, &bound) {
            Ok(step) => (Some(step), None),
            Err(why) => (None, Some(format!("the TPOT without it says nothing here: {why}"))),
        },
    };

    let seen = waterfall::seen(&ledger.accounts);
    let mut shares = components::shares(&bound);
    components::move_unseen(&mut shares, &seen);
    let total = unprofiled.as_ref().map(|step| step.total_ns);
    let rows = waterfall::rows(&ledger.accounts, ledger.n, &shares, total);
    let explained: i64 = rows.iter().map(|row| row.total_ns).sum();
    let busy = ledger.accounts.iter().filter(|account| place(account) != Place::Idle);
    let alone = alone::alone(inputs.model, inputs.measured, &bound);
    let mut gap = BoundGap {
        kind: kind.to_owned(),
        n: ledger.n,
        bound_ns: bound.step_ns,
        captured_ns_per_step: captured,
        captured_total_ns: ledger.period_sum_ns,
        busy_ns_per_step: per_step(busy.map(|account| account.total_ns).sum()),
        unprofiled,
        rows,
        unexplained_ns: ledger.period_sum_ns - explained,
        components: components_of(analysis, &shares, &seen, alone.as_ref()),
        layers: layers::layers(analysis.layers.as_ref(), &inputs),
        copies: copies(analysis, bound.memory_bytes_per_s),
        alone,
        cautions: Vec::new(),
        roofline: bound,
    };
    gap.cautions = not_corrected
        .map(|why| format!("idle time is an upper bound: a profiler slows the host, and {why}"))
        .into_iter()
        .chain(cautions(analysis, &inputs, &gap))
        .collect();
    Ok(gap)
}

/// The step that TPOT states, or why it states none. With speculation a request gets the accepted
/// tokens of a step at once.
fn unprofiled(
    analysis: &Analysis,
    baseline: &Baseline,
    bound: &Roofline,
) -> Result<UnprofiledStep, String> {
    let tokens = match bound.deployment.speculation {
        Some(plan) => plan.accepted_tokens,
        None => Dilation::of(&analysis.steps, &analysis.ledger, baseline).map(|_| 1.0)?,
    };
    let ledger = &analysis.ledger;
    let ns_per_step = baseline.tpot_ns.median * tokens;
    let total = ns_per_step * ledger.n as f64;
    Ok(UnprofiledStep {
        ns_per_step,
        total_ns: total.round() as i64,
        dilation_ratio: ledger.period_sum_ns as f64 / total.max(1.0),
        baseline: baseline.clone(),
    })
}

fn components_of(
    analysis: &Analysis,
    shares: &[Share; COMPONENTS.len()],
    seen: &[i64; COMPONENTS.len()],
    alone: Option<&Alone>,
) -> Vec<GapComponent> {
    let ledger = &analysis.ledger;
    let there = (0..COMPONENTS.len()).filter(|&at| seen[at] != 0 || shares[at].ns != 0);
    let mut list: Vec<GapComponent> = there
        .map(|at| {
            let own = |place: Place| place == Place::Component(COMPONENTS[at]);
            // The ledger has most time first.
            let accounts = ledger.accounts.iter().filter(|account| own(place(account)));
            let ns_per_step = seen[at] as f64 / ledger.n as f64;
            let bound_ns = shares[at].ns;
            let rows = alone.iter().flat_map(|alone| &alone.rows);
            let own_rows = rows.filter(|row| row.component == COMPONENTS[at]);
            let alone_ns: f64 = own_rows.map(|row| row.ns_per_step).sum();
            GapComponent {
                component: COMPONENTS[at],
                total_ns: seen[at],
                ns_per_step,
                bound_ns,
                times_bound: (bound_ns > 0).then(|| ns_per_step / bound_ns as f64),
                alone_ns_per_step: (alone_ns > 0.0).then_some(alone_ns),
                parts: shares[at].parts.clone(),
                accounts: accounts
                    .map(|account| GapAccount {
                        account: account.account.clone(),
                        ns_per_step: account.ns_per_step,
                    })
                    .collect(),
            }
        })
        .collect();
    let above = |of: &GapComponent| of.ns_per_step - of.bound_ns as f64;
    list.sort_by(|a, b| above(b).total_cmp(&above(a)));
    list
}

/// The largest copies within device memory whose bytes are known.
fn copies(analysis: &Analysis, bytes_per_s: f64) -> Vec<GapCopy> {
    let within = |category: &str| !["memcpy.h2d", "memcpy.d2h", "memcpy.h2h"].contains(&category);
    let rows = analysis.copies.rows.iter();
    rows.filter(|row| row.ratio >= LEAST_COPY && within(&row.category))
        .filter_map(|row| {
            let bytes_per_step = row.calls_per_step * (row.read_bytes? + row.written_bytes?);
            Some(GapCopy {
                category: row.category.clone(),
                name: row.op.clone().unwrap_or_else(|| row.name.clone()),
                bytes_per_step,
                least_ns: bytes_per_step / bytes_per_s * 1e9,
                ns_per_step: row.ns_per_step,
                pool_sized: row.pool_sized,
            })
        })
        .take(MOST_COPIES)
        .collect()
}

/// What does not fit, and what the numbers do not say.
fn cautions(analysis: &Analysis, inputs: &GapInputs<'_>, gap: &BoundGap) -> Vec<String> {
    let mut list = Vec::new();
    let served = inputs.deployment;
    match &gap.unprofiled {
        Some(step) if step.ns_per_step < gap.busy_ns_per_step => list.push(
            "TPOT is shorter than the GPU's busy time in the capture: the profiler, or waiting for \
             another rank that it slows, made kernels longer; or TPOT was measured on another load"
                .to_owned(),
        ),
        Some(step) if step.dilation_ratio < 0.95 => list.push(
            "TPOT is longer than the captured step: it was measured on another load, or requests \
             wait for more than their steps"
                .to_owned(),
        ),
        _ => {}
    }
    if gap.bound_ns as f64 > gap.busy_ns_per_step {
        list.push(
            "the bound is above the GPU's busy time: something that it assumes does not hold here"
                .to_owned(),
        );
    }
    if !["decode", "verify"].contains(&gap.kind.as_str()) {
        list.push(format!(
            "nothing says that the steps ({}) are decode steps, which the bound is for",
            gap.kind
        ));
    }
    let below = |of: &&GapComponent| {
        of.bound_ns as f64 - of.ns_per_step > LEAST_BELOW * gap.bound_ns as f64
    };
    for of in gap.components.iter().filter(below) {
        let hidden = match of.component {
            Component::Communication if analysis.ledger.hidden_communication_ns_per_step > 0.0 => {
                "part of it runs while something else computes"
            }
            Component::Communication => "a collective takes less time than is assumed for it",
            _ => {
                "part of that work runs in kernels of another category, or an assumption does not \
                 hold"
            }
        };
        list.push(format!("{} take less than their bound: {hidden}", plural(of.component)));
    }
    let batch = analysis.steps.selected.as_ref().and_then(|selected| selected.batch_size);
    let own_batch = served.batch.div_ceil(u64::from(served.attention_dp.max(1)));
    if let Some(other) = batch.filter(|batch| *batch != own_batch) {
        list.push(format!("the steps have batch size {other}, the bound is for {own_batch}"));
    }
    let ranks = analysis.ranks.iter().filter_map(|rank| rank.world_size).max();
    if let Some(ranks) = ranks.filter(|ranks| *ranks != served.tp) {
        let ranks = if ranks == 1 { "one rank".to_owned() } else { format!("{ranks} ranks") };
        list.push(format!("the trace is of {ranks}, the bound is for {}", served.tp));
    }
    list.extend(other_gpu(analysis, inputs.gpu));
    list.extend(inputs.measured.of_other_gpu(inputs.gpu));
    list.extend(inputs.guesses.iter().cloned());
    list
}

/// Whether the trace is from another GPU than the bound's, as far as its name tells.
fn other_gpu(analysis: &Analysis, gpu: &Gpu) -> Option<String> {
    let name = analysis.ranks.iter().find_map(|rank| rank.gpu_name.as_deref())?;
    let hardware = Hardware::built_in().ok()?;
    let found = hardware.find(name).ok().filter(|found| found.name != gpu.name)?;
    Some(format!("the trace is from {}, the bound is for {}", found.name, gpu.name))
}

fn plural(component: Component) -> &'static str {
    match component {
        Component::Attention => "attention's kernels",
        Component::Indexer => "the indexer's kernels",
        Component::Experts => "the experts' kernels",
        Component::DenseGemm => "dense matrix products",
        Component::Norms => "norms",
        Component::Embedding => "embedding lookups",
        Component::Communication => "collectives",
        Component::OtherKernels => "the other kernels",
    }
}
