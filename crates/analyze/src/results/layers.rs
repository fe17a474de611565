//! Layers of the model within a step.

use schemars::JsonSchema;
use serde::Serialize;

/// Where the GPU time of a step went by layer.
///
/// `prologue`, `layers` and `epilogue` share out the GPU busy time of the steps that have the
/// pattern: their `gpu_busy_ns` add up to `gpu_busy_ns` exactly. Where work overlaps, the time
/// belongs to what began first.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Layers {
    /// `kernel_sequence` (the sequence of kernels within a step repeats), or where the modules are
    /// from when no sequence repeats: `module_marks`, `layer_ranges`, `module_frames`.
    pub detected_by: String,
    /// Number of layers; 0 when modules are marked, but not layers.
    pub count: u64,
    /// Number of layers that the caller expects.
    pub expected_count: Option<u64>,
    /// Whether `count` is what is expected; `null` without an expectation.
    pub matches_expected: Option<bool>,
    /// How many layers of the model one repeat holds, when the expected number is a multiple of
    /// `count` (layers of several kinds that take turns).
    pub layers_per_repeat: Option<u64>,
    /// Number of steps, over all ranks, that have the pattern. Times are means over them.
    pub n: u64,
    /// Selected steps that do not have it, and are left out.
    pub irregular_steps: u64,
    /// Share of a step's kernels that lie in layers.
    pub covered_ratio: f64,
    /// GPU busy time of those `n` steps.
    pub gpu_busy_ns: i64,
    /// Before the first layer: scheduling, embedding. `null` when no sequence repeats.
    pub prologue: Option<LayerTime>,
    /// The layers, in order.
    pub layers: Vec<LayerTime>,
    /// After the last layer: final norm, head, sampling. `null` when no sequence repeats.
    pub epilogue: Option<LayerTime>,
    /// Mean time per step in which nothing ran after its last work. With the idle time of prologue,
    /// layers and epilogue it adds up to that of the `n` steps. `null` when no sequence repeats: then
    /// no idle time is known by layer.
    pub idle_after_ns_per_step: Option<f64>,
    /// Median over the layers of their GPU busy time per step.
    pub median_ns_per_step: f64,
    /// Layers that take more than 1.5 times the median, and more than 3 median absolute deviations
    /// above it.
    pub slow_layers: Vec<u64>,
    /// What a layer consists of, by position; empty when no sequence repeats.
    pub roles: Vec<LayerRole>,
    /// The tree of modules, where something marks them.
    pub modules: Option<Modules>,
}

/// GPU time of a layer, or of what lies before or after the layers.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LayerTime {
    /// Position among the layers; `null` for prologue and epilogue.
    pub index: Option<u64>,
    /// GPU busy time over all steps.
    pub gpu_busy_ns: i64,
    /// Mean over steps.
    pub ns_per_step: f64,
    /// Share of the steps' GPU busy time.
    pub ratio: f64,
    /// Mean number of kernels per step.
    pub kernels_per_step: f64,
    /// Mean time per step in which nothing ran, between two pieces of its work.
    pub idle_ns_per_step: f64,
    /// Mean time per step in which nothing ran before its first work.
    pub idle_before_ns_per_step: f64,
    /// Whether its kernels are not those of the other layers (a dense layer among expert layers,
    /// another first norm).
    pub odd: bool,
}

/// One position within a layer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LayerRole {
    /// Position, from 0.
    pub position: u64,
    /// Name of the kernel.
    pub name: String,
    /// Its category.
    pub category: String,
    /// Mean duration.
    pub mean_ns: f64,
    /// Over how many calls: all steps and all layers that are not odd.
    pub calls: u64,
}

/// Modules as something marks them on the host.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Modules {
    /// `module_marks` (NVTX texts that name a module), `layer_ranges` (ranges named after a layer),
    /// `module_frames` (`nn.Module` calls).
    pub detected_by: String,
    /// Share of the selected steps' GPU time (sum of durations) that lies in a module.
    pub covered_ratio: f64,
    /// How many different layers the modules name.
    pub layer_count: u64,
    /// Whether the kernel sequence has as many layers; `null` when it does not repeat.
    pub same_layer_count: Option<bool>,
    /// The largest difference of a layer's share of all layers' time between modules and kernel
    /// sequence (0.01: one percent of the layers' time); `null` when they cannot be compared.
    pub largest_share_difference: Option<f64>,
    /// The tree, parents before children, siblings in order of appearance.
    pub rows: Vec<ModuleTime>,
}

/// GPU time of one module.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ModuleTime {
    /// Path, `model.layers.0.self_attn`; calls of `nn.Module` are joined by `/`.
    pub path: String,
    /// Depth in the tree, 0 at the root.
    pub depth: u64,
    /// The layer that it is in, as its path says.
    pub layer: Option<u64>,
    /// Kernels and copies launched in it, per step, those of its children included.
    pub gpu_ops_per_step: f64,
    /// Duration of the GPU work launched in it, per step, with its children's.
    pub gpu_total_ns_per_step: f64,
    /// The same without its children's.
    pub gpu_self_ns_per_step: f64,
}
