//! nsys exports: real ones against reference values, and small ones written here for each schema.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod damage;
mod privacy;
mod processes;
mod schemas;
mod support;
mod truth;
