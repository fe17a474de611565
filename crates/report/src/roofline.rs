//! The result of `steptally roofline`.

use schemars::JsonSchema;
use serde::Serialize;
use steptally_analyze::roofline::Roofline;

use crate::json::to_json;
use crate::{SCHEMA_VERSION, Tool};

/// The bound of a decode step, and what it was read from.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RooflineReport {
    /// Version of this form, see [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What wrote it.
    pub tool: Tool,
    /// The model's files.
    pub files: Vec<String>,
    /// The bound.
    #[serde(flatten)]
    pub roofline: Roofline,
}

impl RooflineReport {
    /// The report of a bound whose model was read from `files`.
    #[must_use]
    pub fn new(tool: Tool, files: Vec<String>, roofline: Roofline) -> Self {
        Self { schema_version: SCHEMA_VERSION, tool, files, roofline }
    }
}

/// The JSON Schema (2020-12) of a [`RooflineReport`], as indented JSON with a line end.
#[must_use]
pub fn roofline_schema() -> String {
    to_json(&schemars::schema_for!(RooflineReport))
}
