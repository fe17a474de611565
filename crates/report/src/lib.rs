//! Results of an analysis as text: a report for the terminal, and JSON with a versioned schema.
//!
//! The only place where a number becomes text. Nothing here measures or decides anything; what is
//! shown comes from [`steptally_analyze::results`], or from the tables of a trace ([`Inspection`]).

mod capture;
mod diff;
mod gap;
mod inspect;
mod json;
mod kernel_name;
mod redaction;
mod report;
mod roofline;
mod saved;
mod text;

pub use capture::CaptureReport;
pub use diff::{DiffReport, DiffSource, diff_schema};
pub use gap::{GapReport, gap_schema};
pub use inspect::{DeviceInspection, EventCounts, Inspection, TraceInspection, Version};
pub use json::{json_schema, to_json};
pub use kernel_name::short_kernel_name;
pub use redaction::{Redaction, Removed, redaction_text};
pub use report::{Example, Input, InputFile, InputIssue, Report, SCHEMA_VERSION, Severity, Tool};
pub use roofline::{RooflineReport, roofline_schema};
pub use saved::{SavedReport, SavedReportError, is_saved_report};
pub use text::{
    BenchComparison, BenchRow, BenchTable, TerminalStyle, bench_text, bytes, capture_text,
    diff_markdown, diff_text, gap_markdown, gap_text, gate_line, inspection_text, roofline_text,
    terminal,
};
