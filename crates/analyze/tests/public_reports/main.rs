//! Valid files from which public tools gave wrong numbers: a test for each report, which fails on the
//! wrong behaviour.
//!
//! Some of the reports are about reading, and their tests are where reading is tested:
//!
//! | what went wrong | test |
//! | --- | --- |
//! | of a folder the graph-capture trace was analysed, as it came first by name | `a_graph_capture_beside_a_real_trace_is_left_out` in `crates/import/tests/folder.rs` |
//! | two files of vLLM without a rank in their names were "incomplete" | `two_files_without_a_rank_are_no_conflict` in `crates/import/tests/folder.rs` |
//! | all ranks wrote the same path, and blocks of their files are mixed | `two_files_in_one_are_noticed` in `crates/import/tests/torch/damage_whole.rs` |
//! | marks of an engine were not recognised: zero steps, silently | `engines_marks_are_read` in `crates/analyze/src/steps/grammar.rs`, and here |

#![allow(clippy::unwrap_used, clippy::panic)] // in the tests' own functions

mod busy;
mod causes;
mod several;
mod steps;
#[path = "../support/mod.rs"]
mod support;
