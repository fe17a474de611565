//! Pure functions over traces: what the steps are, where their time went, and how far to trust it.
//!
//! [`analyze`] runs them all in order: quality gate, steps, categories, ledger, kernels, layers, copies,
//! ranges, operators. [`gap::bound_gap`] holds the result against a model's [`roofline`].
//! Nothing here reads a file, a clock or the environment, and nothing prints.

pub mod categories;
mod collectives;
mod config;
mod copies;
pub mod diff;
pub mod findings;
pub mod gap;
mod gpu;
mod kernels;
mod launches;
mod layers;
mod ledger;
mod links;
mod nest;
mod ops;
mod profiler_cost;
mod quality;
mod ranges;
mod replays;
pub mod results;
pub mod roofline;
mod run;
mod sections;
mod simulate;
mod stats;
mod steps;
mod timeline;
mod view;

pub use config::Config;
pub use layers::{ModuleMark, parse_module_mark};
pub use run::analyze;
pub use sections::{Section, Sections, UnknownSection};
pub use stats::distribution;
