//! What it costs to start work, to wait for it, and to learn four bytes of its result.

use cudarc::driver::result;

use super::{Bench, Outcome};
use crate::error::BenchError;
use crate::gpu::{During, Gpu};
use crate::kernel::{EMPTY, Kernel, Module};
use crate::result::{Group, Work};
use crate::sample::{SAMPLES, elapsed, graph, spread, time_on_host};
use crate::stats::Spread;

/// Launches in a sample; fewer than what the driver queues before it makes the host wait.
const LAUNCHES: usize = 500;

/// Nodes of the graphs.
const NODES: [usize; 3] = [1, 100, 1000];

pub(crate) fn run(bench: &Bench<'_>, out: &mut Outcome) -> Result<(), BenchError> {
    let gpu = bench.gpu;
    let empty = Module::compile(gpu, EMPTY)?.kernel("empty", 0)?;
    let launch = || empty.launch(gpu, 1, 32, &[]);
    let mut keep = |name: &str, shape: &str, time: Result<Spread, BenchError>| {
        let measured = time.map(|time| (time, Work::default(), 0));
        out.keep(bench, Group::Launch, name, shape, measured);
    };
    let many = format!("{LAUNCHES} launches");
    keep("empty kernel, host's cost", &many, time_on_host(gpu, "launch", LAUNCHES, launch));
    keep("empty kernel, back to back", &many, back_to_back(gpu, &empty));
    for nodes in NODES {
        let shape = format!("{nodes} empty nodes");
        let graph = graph(gpu, nodes, |_| launch())?;
        let replay = || graph.launch().during("cuGraphLaunch");
        keep("graph launch, host's cost", &shape, time_on_host(gpu, "graph", 10, replay));
        let device = samples(|| elapsed(gpu, replay));
        keep("graph on the device", &shape, device.and_then(|s| spread("graph", &s)));
        let whole = || replay().and_then(|()| gpu.wait());
        keep("graph launch and wait", &shape, time_on_host(gpu, "graph", 10, whole));
    }
    let idle = || gpu.wait();
    keep("wait for an idle stream", "", time_on_host(gpu, "wait", 100, idle));
    let whole = || launch().and_then(|()| gpu.wait());
    keep("empty kernel and wait", "", time_on_host(gpu, "wait", 100, whole));
    keep("4 bytes to the host, pinned", "with wait", small_copy(gpu, true));
    keep("4 bytes to the host, pageable", "with wait", small_copy(gpu, false));
    Ok(())
}

/// Samples after a few for warm-up.
fn samples(mut one: impl FnMut() -> Result<f64, BenchError>) -> Result<Vec<f64>, BenchError> {
    (0..3).try_for_each(|_| one().map(|_| ()))?;
    (0..SAMPLES).map(|_| one()).collect()
}

fn back_to_back(gpu: &Gpu, empty: &Kernel) -> Result<Spread, BenchError> {
    let all = || (0..LAUNCHES).try_for_each(|_| empty.launch(gpu, 1, 32, &[]));
    let times = samples(|| Ok(elapsed(gpu, all)? / LAUNCHES as f64))?;
    spread("back to back", &times)
}

#[allow(unsafe_code)]
fn small_copy(gpu: &Gpu, pinned: bool) -> Result<Spread, BenchError> {
    let from = gpu.upload(&[7_u32])?;
    let stream = gpu.stream.cu_stream();
    // SAFETY: the memory is written by the first copy before anything reads it.
    let fixed = unsafe { gpu.context.alloc_pinned_with_flags::<u32>(1, 0) };
    let mut fixed = fixed.during("cuMemHostAlloc")?;
    let mut plain = [0_u32; 1];
    let to = match pinned {
        true => fixed.as_mut_slice().during("cuEventSynchronize")?,
        false => &mut plain[..],
    };
    let copy = || {
        // SAFETY: both ends are 4 bytes and live until the wait below is over.
        unsafe { result::memcpy_dtoh_async(to, from.address, stream) }
            .during("cuMemcpyDtoHAsync")?;
        gpu.wait()
    };
    let spread = time_on_host(gpu, "4 bytes", 100, copy)?;
    let read = if pinned { fixed.as_slice().during("cuEventSynchronize")?[0] } else { plain[0] };
    super::agree("4 bytes to the host", 0, f64::from(read), 7.0, 0.0)?;
    Ok(spread)
}
