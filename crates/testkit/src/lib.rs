//! Synthetic traces for tests: private to this workspace.
//!
//! - [`TraceDsl`] writes a trace as a timeline, in whole nanoseconds, so that a test's expected
//!   numbers can be worked out in a comment.
//! - [`write_torch_json`] writes a built trace as `torch.profiler` would, so that the same run can
//!   be read through the importer.
//! - [`write_nsys_sqlite`] writes built traces as nsys would export them.
//! - [`decode_run`] makes plausible decode runs of several ranks from a seed, with the truth about
//!   every step beside the traces.
//! - [`many_ranks`] makes a run of many ranks from a captured one of few, with one rank slowed when
//!   asked; [`Template`] makes a trace long by repeating it. Both work on the text of torch JSON.
//! - [`pool_cast_run`] is GLM-5 with a known fault: every layer casts the whole KV pool.
//!
//! Test code may panic; everything here panics on misuse.
#![allow(clippy::panic, reason = "a test that misuses the DSL must fail loudly")]

mod dsl;
mod generate;
mod json_text;
mod modifiers;
mod nsys_sqlite;
mod pool_cast;
mod ranks;
mod replicate;
mod torch_json;

pub use dsl::{AllReduce, TraceDsl};
pub use generate::{DecodeMode, StepTruth, SyntheticRun, decode_run};
pub use nsys_sqlite::write_nsys_sqlite;
pub use pool_cast::pool_cast_run;
pub use ranks::{SlowRank, base_shift_ns, clock_error_ns, many_ranks, read_captured};
pub use replicate::Template;
pub use torch_json::write_torch_json;
