//! A capture together with the report of its traces.

use serde::Serialize;
use steptally_trace_model::manifest::CaptureManifest;

use crate::Report;

/// What `steptally profile` has to say: the keys of a [`Report`], and `capture`.
#[derive(Clone, Debug, Serialize)]
pub struct CaptureReport {
    /// The capture's manifest.
    pub capture: CaptureManifest,
    /// The report of its traces; without traces that can be read its keys are absent.
    #[serde(flatten)]
    pub report: Option<Report>,
}
