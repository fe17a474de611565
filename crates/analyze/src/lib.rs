//! Pure functions over traces: what the steps are, where their time went, and how far to trust it.
//!
//! [`analyze`] runs them all in order: quality gate, steps, categories, ledger, kernels, operators.
//! Nothing here reads a file, a clock or the environment, and nothing prints.

pub mod categories;
mod config;
pub mod results;
pub mod roofline;

pub use config::Config;
