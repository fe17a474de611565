//! Taking times: warm-up, many samples, work that is repeated inside a CUDA graph.
//!
//! ```text
//! event | op 0 | op 1 | .. | op n-1 | event      one sample = (end - start) / n
//! ```
//!
//! The operations of a sample are the nodes of one graph, so that the host's launches are no part of
//! the time, as in a server that replays graphs. Each operation takes the next of its buffers, whose
//! sum exceeds the L2 cache.

use std::time::Instant;

use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

use crate::error::BenchError;
use crate::gpu::{During, Gpu};
use crate::stats::Spread;

/// Samples per measurement.
pub(crate) const SAMPLES: usize = 25;

/// What one sample should take at least, so that the events' resolution and the graph's start do not
/// count.
const SAMPLE_NS: f64 = 1e6;

/// Most operations in one sample.
const MOST_OPERATIONS: usize = 200;

/// Sizes of buffers, together, after which the cache holds nothing of the first.
pub(crate) fn beyond_cache(gpu: &Gpu) -> u64 {
    (4 * gpu.facts.l2_bytes).max(256 << 20)
}

/// How many buffers of `bytes` are needed so that none is in the cache when its turn comes again; not
/// more than a sample has operations, so that what is small in a decode step stays cached, as there.
pub(crate) fn rotation(gpu: &Gpu, bytes: u64) -> u64 {
    (beyond_cache(gpu).div_ceil(bytes.max(1)) + 1).min(MOST_OPERATIONS as u64)
}

/// Operations of about `one_ns` that fill a sample.
pub(crate) fn operations(one_ns: f64) -> usize {
    ((SAMPLE_NS / one_ns.max(1.0)).ceil() as usize).clamp(1, MOST_OPERATIONS)
}

/// Records the operations into a graph.
pub(crate) fn graph(
    gpu: &Gpu,
    operations: usize,
    mut launch: impl FnMut(usize) -> Result<(), BenchError>,
) -> Result<CudaGraph, BenchError> {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    gpu.stream.begin_capture(mode).during("cuStreamBeginCapture")?;
    let launched = (0..operations).try_for_each(&mut launch);
    // The capture is ended also when a launch failed, else the stream stays unusable.
    let ended = gpu.stream.end_capture(CUgraphInstantiate_flags(0)).during("cuStreamEndCapture");
    launched?;
    let Some(graph) = ended? else {
        let detail = "no graph was recorded".to_owned();
        return Err(BenchError::Driver { call: "cuStreamEndCapture", detail });
    };
    graph.upload().during("cuGraphUpload")?;
    Ok(graph)
}

/// Time between two events around `work`, in nanoseconds.
pub(crate) fn elapsed(
    gpu: &Gpu,
    work: impl FnOnce() -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let (start, end) = (gpu.event()?, gpu.event()?);
    start.record(&gpu.stream).during("cuEventRecord")?;
    work()?;
    end.record(&gpu.stream).during("cuEventRecord")?;
    Ok(f64::from(start.elapsed_ms(&end).during("cuEventElapsedTime")?) * 1e6)
}

/// Time of one operation: `launch(i)` puts the `i`-th into the stream.
pub(crate) fn time(
    gpu: &Gpu,
    what: &str,
    mut launch: impl FnMut(usize) -> Result<(), BenchError>,
) -> Result<Spread, BenchError> {
    gpu.bind()?;
    (0..3).try_for_each(&mut launch)?;
    gpu.wait()?;
    let one_ns = elapsed(gpu, || (0..3).try_for_each(&mut launch))? / 3.0;
    let operations = operations(one_ns);
    let graph = graph(gpu, operations, launch)?;
    let sample = || elapsed(gpu, || graph.launch().during("cuGraphLaunch"));
    (0..3).try_for_each(|_| sample().map(|_| ()))?;
    let samples: Result<Vec<f64>, BenchError> =
        (0..SAMPLES).map(|_| Ok(sample()? / operations as f64)).collect();
    spread(what, &samples?)
}

/// Time on the host's clock of one of `operations` calls of `work`, after a few for warm-up.
pub(crate) fn time_on_host(
    gpu: &Gpu,
    what: &str,
    operations: usize,
    mut work: impl FnMut() -> Result<(), BenchError>,
) -> Result<Spread, BenchError> {
    gpu.bind()?;
    let mut samples = Vec::with_capacity(SAMPLES);
    for sample in 0..SAMPLES + 3 {
        gpu.wait()?;
        let start = Instant::now();
        (0..operations).try_for_each(|_| work())?;
        let ns = start.elapsed().as_nanos() as f64 / operations as f64;
        if sample >= 3 {
            samples.push(ns);
        }
    }
    gpu.wait()?;
    spread(what, &samples)
}

/// Sums up samples.
pub(crate) fn spread(what: &str, samples: &[f64]) -> Result<Spread, BenchError> {
    Spread::of(samples).ok_or_else(|| BenchError::NoTime { what: what.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_takes_about_a_millisecond() {
        assert_eq!(operations(10_000.0), 100);
        assert_eq!(operations(300_000.0), 4);
        assert_eq!(operations(5e6), 1);
        assert_eq!(operations(0.0), MOST_OPERATIONS);
    }
}
