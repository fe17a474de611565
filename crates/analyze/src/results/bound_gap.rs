//! From the least time of a step to the step that was captured.

use schemars::JsonSchema;
use serde::Serialize;

use super::Baseline;
use crate::roofline::{Part, Roofline};

/// What lies between the bound of a decode step and the captured step.
///
/// Lengths that end in `total_ns` are sums over the `n` steps, in whole nanoseconds; those of
/// `rows` add up to `captured_total_ns` exactly.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BoundGap {
    /// Kind of the steps: `decode`, `verify`, or a mark's own name.
    pub kind: String,
    /// Number of steps over all ranks.
    pub n: u64,
    /// The least time of a step: that of `roofline`.
    pub bound_ns: i64,
    /// Mean period of the steps, as profiled.
    pub captured_ns_per_step: f64,
    /// Sum of their periods.
    pub captured_total_ns: i64,
    /// Mean time per step in which the GPU works.
    pub busy_ns_per_step: f64,
    /// The step without the profiler; `null` when nobody measured TPOT.
    pub unprofiled: Option<UnprofiledStep>,
    /// The waterfall, from the bound to the captured step.
    pub rows: Vec<GapRow>,
    /// What the rows do not explain of `captured_total_ns`: 0, as they are the ledger's accounts
    /// against the bound.
    pub unexplained_ns: i64,
    /// What runs on the GPU against its part of the bound, most time above it first.
    pub components: Vec<GapComponent>,
    /// Each layer against its part of the bound.
    pub layers: GapLayers,
    /// The largest copies within device memory, against what moving their bytes takes at least.
    pub copies: Vec<GapCopy>,
    /// The components as they were measured alone; `null` without such measurements.
    pub alone: Option<Alone>,
    /// What a reader should know before using the numbers.
    pub cautions: Vec<String>,
    /// The bound, with all that it assumes.
    pub roofline: Roofline,
}

/// The step as requests see it without a profiler.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UnprofiledStep {
    /// Its length: median TPOT, times the accepted tokens of a step with speculation.
    pub ns_per_step: f64,
    /// The same for `n` steps, in whole nanoseconds: what the rows' `unprofiled_total_ns` add up to.
    pub total_ns: i64,
    /// Mean captured period over it.
    pub dilation_ratio: f64,
    /// What was measured.
    pub baseline: Baseline,
}

/// What a row of the waterfall is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GapKind {
    /// The least time of the step.
    Bound,
    /// Kernels that take longer than their part of the bound, or are no part of it.
    Kernels,
    /// Communication that no compute hides, beyond its part of the bound.
    Communication,
    /// Copies, casts and fills: the model needs none of them.
    Copies,
    /// The GPU had nothing to do.
    Idle,
    /// What is left between the GPU's busy time and a TPOT that is shorter, or the step and a TPOT
    /// that is longer without any idle account to put it in; 0 in the captured step.
    Remainder,
}

/// One row of the waterfall.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GapRow {
    /// What it is.
    pub kind: GapKind,
    /// The component, or the account of the ledger.
    pub name: String,
    /// Time that it adds over all steps; below 0 when a component takes less than its bound.
    pub total_ns: i64,
    /// Mean over steps.
    pub ns_per_step: f64,
    /// The same in the step without the profiler, where idle accounts are cut down in proportion;
    /// `null` without a baseline.
    pub unprofiled_total_ns: Option<i64>,
}

/// A group of kernel categories that can be held against parts of the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// Attention over the KV cache, rotary positions, writing the cache.
    Attention,
    /// Sparse attention's indexer over its keys.
    Indexer,
    /// Routed experts: routing, permuting, matrix products.
    Experts,
    /// All other matrix products, router and output head included.
    DenseGemm,
    /// Normalisation.
    Norms,
    /// The embedding's lookup.
    Embedding,
    /// Communication between ranks.
    Communication,
    /// Kernels that are no part of the bound (elementwise, activation, quantisation, sampling,
    /// uncategorised, graphs recorded as a whole), and parts of the bound without kernels of their
    /// own category.
    OtherKernels,
}

/// A component's time against its part of the bound.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GapComponent {
    /// Which.
    pub component: Component,
    /// Time of its accounts over all steps.
    pub total_ns: i64,
    /// Mean over steps.
    pub ns_per_step: f64,
    /// Its part of the bound, per step.
    pub bound_ns: i64,
    /// `ns_per_step / bound_ns`; `null` when the bound has nothing of it.
    pub times_bound: Option<f64>,
    /// What its operations took when they were measured alone, per step, as far as they were; `null`
    /// when none was.
    pub alone_ns_per_step: Option<f64>,
    /// Parts of the bound that are held against it.
    pub parts: Vec<Part>,
    /// Its accounts, most time first.
    pub accounts: Vec<GapAccount>,
}

/// An account's share of a component.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GapAccount {
    /// The account.
    pub account: String,
    /// Mean over steps.
    pub ns_per_step: f64,
}

/// The layers against the bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct GapLayers {
    /// Why they are not compared; `null` when they are.
    pub not_compared: Option<String>,
    /// The layers, or repeats of several, in order.
    pub rows: Vec<GapLayer>,
    /// Bound of what is in no layer: embedding, last norm, output head.
    pub outside_bound_ns: i64,
    /// GPU busy time per step before the first layer and after the last.
    pub outside_ns_per_step: f64,
}

/// One layer against its bound.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GapLayer {
    /// Its position.
    pub index: u64,
    /// GPU busy time per step, copies included.
    pub ns_per_step: f64,
    /// Idle time per step before it and in it.
    pub idle_ns_per_step: f64,
    /// Its bound.
    pub bound_ns: i64,
    /// `ns_per_step / bound_ns`.
    pub times_bound: f64,
}

/// A copy against the memory's bandwidth.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GapCopy {
    /// Category, an account of the ledger.
    pub category: String,
    /// The operator that launches it, else the kernel.
    pub name: String,
    /// Bytes read and written per step.
    pub bytes_per_step: f64,
    /// What that takes at least at the bound's bandwidth, per step.
    pub least_ns: f64,
    /// Mean time per step.
    pub ns_per_step: f64,
    /// Whether it goes over a whole pool.
    pub pool_sized: bool,
}

/// The step put together from measurements of single operations, as `steptally bench` takes them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Alone {
    /// Why the measurements cannot be used for this step; `null` when they can.
    pub not_comparable: Option<String>,
    /// Where they were taken.
    pub device: Option<String>,
    /// Time of all rows.
    pub ns_per_step: f64,
    /// The operations, most time first.
    pub rows: Vec<AloneRow>,
    /// What the step needs and was not measured.
    pub not_measured: Vec<String>,
}

/// One operation measured alone.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AloneRow {
    /// Which component it is part of.
    pub component: Component,
    /// What it is.
    pub name: String,
    /// Median time of one.
    pub each_ns: f64,
    /// How many a step has.
    pub calls_per_step: u64,
    /// Time of all.
    pub ns_per_step: f64,
}
