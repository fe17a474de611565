//! Pure functions over traces: what the steps are, where their time went, and how far to trust it.
//!
//! [`analyze`] runs them all in order: quality gate, steps, categories, ledger, kernels, operators.
//! Nothing here reads a file, a clock or the environment, and nothing prints.

pub mod categories;
mod collectives;
mod config;
mod gpu;
mod kernels;
mod ledger;
mod links;
mod ops;
mod quality;
pub mod results;
pub mod roofline;
mod run;
mod simulate;
mod stats;
mod steps;
mod timeline;
mod view;

pub use config::Config;
pub use run::analyze;
pub use stats::distribution;
