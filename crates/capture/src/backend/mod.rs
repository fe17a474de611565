//! Ways to get a profiler going on a server, behind one trait.
//!
//! There is a place for nsys too: `nsys start` and `nsys stop` around the same session, with an
//! `.nsys-rep` to wait for instead of traces.

mod hook;
mod sglang;
mod vllm;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use serde_json::Value;

use crate::error::{Failure, HttpError};
use crate::session::Conduct;

pub use hook::{HOOK_SOURCES, TorchHook, install_hook};
pub use sglang::SglangEndpoint;
pub(crate) use vllm::VLLM_PROFILER_HINT;
pub use vllm::VllmEndpoint;

/// Something that will be done.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Operators, annotations and calls on the host.
    Cpu,
    /// Kernels, copies and calls that launch them.
    Gpu,
    /// `cudaProfilerStart` and `cudaProfilerStop` for nsys; never together with the others, which
    /// kills SGLang when it saves.
    CudaProfiler,
}

impl Activity {
    /// As engines spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
            Self::CudaProfiler => "CUDA_PROFILER",
        }
    }
}

/// What to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Steps.
    pub steps: u32,
    /// Activities.
    pub activities: Vec<Activity>,
    /// Shapes of operators' inputs.
    pub record_shapes: bool,
    /// Python stacks, which slow the host and make traces large.
    pub with_stack: bool,
    /// Where the server is to write, as the server sees it.
    pub server_folder: PathBuf,
}

/// Why a profiler did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError {
    /// Why.
    pub failure: Failure,
    /// Whether it may run nevertheless.
    pub is_unclear: bool,
}

impl StartError {
    fn of(error: HttpError, failure: impl FnOnce(HttpError) -> Failure) -> Self {
        let is_unclear = !error.kind.is_refusal();
        Self { failure: failure(error), is_unclear }
    }
}

/// What a stop found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The profiler ran; it is off now.
    Now,
    /// It was off already.
    Before,
}

/// A profiler on a server.
pub trait Backend: Send + Sync {
    /// Its name in manifests.
    fn code(&self) -> &'static str;

    /// How its profiler behaves.
    fn conduct(&self) -> Conduct;

    /// Labels of the ranks that write a trace; `None`: not known.
    fn expected_ranks(&self) -> Option<Vec<String>>;

    /// The label of the rank that wrote the file; `None`: it is no trace.
    fn rank_of(&self, file: &str) -> Option<String>;

    /// What `start` sends.
    fn request(&self) -> Value;

    /// Starts the profiler.
    fn start(&self) -> Pending<'_, Result<(), StartError>>;

    /// Stops it.
    fn stop(&self) -> Pending<'_, Result<Stopped, Failure>>;
}
