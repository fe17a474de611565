//! The result of `steptally gap`.

use schemars::JsonSchema;
use serde::Serialize;
use steptally_analyze::results::BoundGap;

use crate::json::to_json;
use crate::{SCHEMA_VERSION, Tool};

/// What lies between the bound and the captured step, and what both were read from.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GapReport {
    /// Version of this form, see [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What wrote it.
    pub tool: Tool,
    /// The trace, or the folder of traces.
    pub trace: String,
    /// The model's files.
    pub model_files: Vec<String>,
    /// Whether part of the trace could not be read.
    pub partial: bool,
    /// The waterfall and what belongs to it.
    #[serde(flatten)]
    pub gap: BoundGap,
}

impl GapReport {
    /// The report of `gap`, whose step was read from `trace` and whose model from `model_files`.
    #[must_use]
    pub fn new(
        tool: Tool,
        trace: String,
        model_files: Vec<String>,
        partial: bool,
        gap: BoundGap,
    ) -> Self {
        Self { schema_version: SCHEMA_VERSION, tool, trace, model_files, partial, gap }
    }
}

/// The JSON Schema (2020-12) of a [`GapReport`], as indented JSON with a line end.
#[must_use]
pub fn gap_schema() -> String {
    to_json(&schemars::schema_for!(GapReport))
}
