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
use std::time::Duration;

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
    /// Name, without its extension, of the report that nsys writes, when that is to be waited for.
    pub report: Option<String>,
}

impl Recording {
    /// Whether nsys records, and the server only says when.
    #[must_use]
    pub fn is_for_nsys(&self) -> bool {
        self.activities.contains(&Activity::CudaProfiler)
    }

    /// How the range of such a recording behaves: it may end by itself before the time is over.
    pub(crate) fn range(&self) -> Conduct {
        Conduct {
            record_for: Some(self.at_most()),
            ends_itself: self.report.is_some(),
            writes_elsewhere: self.report.is_none(),
            ..Conduct::default()
        }
    }

    /// Long enough for the steps, which a profiler may make several times longer.
    pub(crate) fn at_most(&self) -> Duration {
        Duration::from_millis(1000 + 100 * u64::from(self.steps))
    }

    /// Whether a file is the report: `run.nsys-rep`, or `run.1.nsys-rep` of a range that is repeated.
    pub(crate) fn is_report(&self, file: &str) -> bool {
        let Some(stem) = self.report.as_deref() else { return false };
        let rest = file.strip_prefix(stem).and_then(|rest| rest.strip_suffix(".nsys-rep"));
        rest.is_some_and(|rest| {
            rest.is_empty()
                || rest.strip_prefix('.').is_some_and(|number| number.parse::<u32>().is_ok())
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_nsys() {
        let recording = Recording {
            steps: 5,
            activities: vec![Activity::CudaProfiler],
            record_shapes: false,
            with_stack: false,
            server_folder: PathBuf::new(),
            report: Some("run".to_owned()),
        };
        for (name, is_report) in [
            ("run.nsys-rep", true),
            ("run.2.nsys-rep", true),
            ("run2.nsys-rep", false),
            ("run.x.nsys-rep", false),
            ("run.qdstrm", false),
        ] {
            assert_eq!(recording.is_report(name), is_report, "{name}");
        }
        assert!(!Recording { report: None, ..recording }.is_report("run.nsys-rep"));
    }
}
