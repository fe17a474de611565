//! What is read of torch.profiler traces, good and damaged.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod damage;
mod damage_whole;
mod forms;
mod kinds;
mod missing;
mod mutations;
mod support;
mod times;
mod truth;
