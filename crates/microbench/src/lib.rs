//! What the components of an LLM decode step cost on the GPU at hand, measured one by one in the
//! model's own shapes.
//!
//! [`run`] measures copies, matrix products, the small kernels between them, launches and
//! all-reduces; each result carries its spread, the share of the hardware's limit that it reaches,
//! and how many elements of it agreed with a reference. The driver, NVRTC, cuBLASLt and NCCL are
//! loaded at run time, so that this crate builds and its pure parts are tested without any of them.
//!
//! ```text
//! Plan { groups, devices, model, batch } --run--> BenchResult --> measured.json --> roofline
//!                                                     |
//!                           torch_reference.py --> compare --> Comparison per figure
//! ```
//!
//! Unsafe code is confined to calls of those libraries: `library`, `gpu`, `kernel`, `blas`, `nccl`
//! and the small copies of `benches::launch`.

mod benches;
mod blas;
mod compare;
mod error;
mod gpu;
mod kernel;
mod library;
mod model;
mod nccl;
mod numbers;
mod result;
mod run;
mod sample;
mod stats;

pub use compare::{
    Comparison, Reference, ReferenceAllReduce, ReferenceError, ReferenceGemm, compare,
};
pub use error::BenchError;
pub use gpu::DeviceFacts;
pub use model::{AttentionShape, ModelShape, MoeShape, Product};
pub use result::{
    AllReduce, BENCH_SCHEMA_VERSION, BenchResult, Compute, Group, Limits, Measurement, Skipped,
    Work,
};
pub use run::{Plan, Surroundings, run};
pub use stats::Spread;
