//! What a caller can choose about an analysis.

use regex::Regex;

use crate::Sections;
use crate::categories::Categories;
use crate::results::Baseline;

/// Choices of an analysis.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Which kind of step to account for; `None`: decode if there is any, else the kind that takes
    /// most time.
    pub kind: Option<String>,
    /// Which of the steps of that kind, by position on each rank: first included, last excluded.
    pub steps: Option<std::ops::Range<u64>>,
    /// Only this rank.
    pub rank: Option<u32>,
    /// Marks (annotations, NVTX ranges) that are steps; `None`: the known grammars.
    pub step_pattern: Option<Regex>,
    /// How many layers the model has; the layers that are found are checked against it.
    pub num_layers: Option<u32>,
    /// How many tokens the server's KV pool holds; a copy of as many is one of the whole pool.
    pub kv_token_capacity: Option<u64>,
    /// What was measured without a profiler.
    pub baseline: Option<Baseline>,
    /// Rules that put kernels into categories.
    pub categories: Categories,
    /// What the report shows; what nothing that is shown needs is not worked out.
    pub sections: Sections,
}
