//! All-reduce in BF16 between the devices of one process, a thread for each, by size.
//!
//! ```text
//! barrier | all-reduce | event | graph: all-reduce x n | event      on every rank
//! ```
//!
//! The first all-reduce lines the devices up. A sample is the slowest rank's time by n; so many fit
//! into it that the start of the graph does not count.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Outcome, agree};
use crate::error::BenchError;
use crate::gpu::{During, Gpu};
use crate::nccl::{Communicator, Nccl, UniqueId};
use crate::numbers::{from_bf16, to_bf16};
use crate::result::{AllReduce, Group, Limits, Measurement, Work};
use crate::sample::{SAMPLES, elapsed, graph, operations, spread};

/// Message sizes in bytes, beside the model's own.
const SIZES: [u64; 10] = [
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
    256 << 20,
];

/// How long the ranks may take, all sizes together.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a rank tells: the index of the size, and the samples.
type Said = Result<(usize, Vec<f64>), BenchError>;

/// What the ranks share.
#[derive(Debug)]
struct Shared {
    nccl: Nccl,
    id: UniqueId,
    barrier: Barrier,
    sizes: Vec<u64>,
}

/// The sizes that are measured: fixed ones and the step's own message.
fn sizes(message_bytes: u64) -> Vec<u64> {
    let mut sizes = SIZES.to_vec();
    sizes.push(message_bytes.next_multiple_of(2).max(2));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// What a ring sends from each rank: twice (N - 1) / N of the message.
fn ring_bytes(message_bytes: u64, ranks: u64) -> u64 {
    2 * message_bytes * (ranks - 1) / ranks
}

/// Measures over all of `ordinals`; `message_bytes` is the step's own size.
pub(crate) fn run(
    ordinals: &[u32],
    count: u32,
    message_bytes: u64,
    limits: &Limits,
    out: &mut Outcome,
) -> Result<Vec<AllReduce>, BenchError> {
    if ordinals.len() < 2 {
        let one = BenchError::NotSupported("an all-reduce needs two devices".to_owned());
        out.skip(Group::AllReduce, "", &one);
        return Ok(Vec::new());
    }
    let nccl = Nccl::open()?;
    let version = nccl.version()?;
    let (id, ranks) = (nccl.unique_id()?, ordinals.len());
    // Opened here, so that one that fails leaves no other rank waiting.
    let gpus: Result<Vec<Gpu>, BenchError> =
        ordinals.iter().map(|&ordinal| Gpu::open(ordinal, count)).collect();
    let sizes = sizes(message_bytes);
    let shared = Arc::new(Shared { nccl, id, barrier: Barrier::new(ranks), sizes: sizes.clone() });
    let (tell, told) = channel();
    let mut threads = Vec::new();
    for (rank, gpu) in gpus?.into_iter().enumerate() {
        let (shared, tell) = (shared.clone(), tell.clone());
        threads.push(std::thread::spawn(move || {
            take_part(&shared, &gpu, rank, ranks, &tell);
            drop(tell);
        }));
    }
    drop(tell);
    let slowest = collect(&told, sizes.len(), ranks)?;
    end(&told, threads)?;
    let mut list = Vec::new();
    for (bytes, samples) in sizes.into_iter().zip(slowest) {
        let time = spread("all-reduce", &samples)?;
        let link_bytes = ring_bytes(bytes, ranks as u64);
        let work = Work { link_bytes, ..Work::default() };
        let shape = format!("{bytes} B over {ranks}");
        let name = format!("nccl {version} all-reduce bf16");
        let measurement =
            Measurement::new(Group::AllReduce, name, shape, time, work, limits, 3 * ranks as u64);
        out.measurements.push(measurement);
        list.push(AllReduce {
            ranks: ranks as u32,
            message_bytes: bytes,
            time_ns: time.median_ns,
            p10_ns: time.p10_ns,
            p90_ns: time.p90_ns,
        });
    }
    Ok(list)
}

/// For each size and sample the time of the slowest rank.
fn collect(told: &Receiver<Said>, sizes: usize, ranks: usize) -> Result<Vec<Vec<f64>>, BenchError> {
    let mut slowest = vec![Vec::new(); sizes];
    for _ in 0..sizes * ranks {
        let (size, samples) = told.recv_timeout(PATIENCE).map_err(|error| {
            let detail = format!("the ranks gave no result within {PATIENCE:?} ({error})");
            BenchError::Driver { call: "all-reduce", detail }
        })??;
        let so_far: &mut Vec<f64> = &mut slowest[size];
        so_far.resize(samples.len(), 0.0);
        for (longest, sample) in so_far.iter_mut().zip(samples) {
            *longest = longest.max(sample);
        }
    }
    Ok(slowest)
}

/// Waits until the ranks have left the communicator: a process that ends before that crashes.
fn end(told: &Receiver<Said>, threads: Vec<JoinHandle<()>>) -> Result<(), BenchError> {
    match told.recv_timeout(PATIENCE) {
        Err(RecvTimeoutError::Disconnected) => {}
        Ok(Err(error)) => return Err(error),
        Ok(Ok(_)) | Err(RecvTimeoutError::Timeout) => {
            let detail = format!("the ranks did not leave the communicator within {PATIENCE:?}");
            return Err(BenchError::Driver { call: "all-reduce", detail });
        }
    }
    for thread in threads {
        // Whatever it was, all results are there.
        let _ = thread.join();
    }
    Ok(())
}

/// One rank. An error ends the whole run, since the others wait for this rank.
fn take_part(shared: &Shared, gpu: &Gpu, rank: usize, ranks: usize, tell: &Sender<Said>) {
    let joined = shared.nccl.join(gpu, shared.id, rank, ranks);
    let result = joined.and_then(|communicator| {
        for (index, &bytes) in shared.sizes.iter().enumerate() {
            let samples = measure(shared, gpu, &communicator, rank, ranks, bytes)?;
            // The other end is gone when an error ended the run.
            let _ = tell.send(Ok((index, samples)));
        }
        gpu.wait()
    });
    if let Err(error) = result {
        let _ = tell.send(Err(error));
    }
}

/// The value that a rank adds.
fn addend(rank: usize) -> f32 {
    rank as f32 + 0.5
}

fn measure(
    shared: &Shared,
    gpu: &Gpu,
    communicator: &Communicator<'_>,
    rank: usize,
    ranks: usize,
    bytes: u64,
) -> Result<Vec<f64>, BenchError> {
    let count = bytes / 2;
    let from = gpu.upload(&vec![to_bf16(addend(rank)); count as usize])?;
    let to = gpu.buffer(bytes)?;
    // Memory that peers can reach is made and freed only while no rank's kernel waits for another
    // rank: both may wait for the peers' devices.
    shared.barrier.wait();
    let reduce = || communicator.all_reduce(gpu, from.address, to.address, count);
    for _ in 0..5 {
        reduce()?;
    }
    let expected: f64 = (0..ranks).map(|rank| f64::from(addend(rank))).sum();
    for at in [0, count / 2, count - 1] {
        let value: Vec<u16> = gpu.download(&to, at * 2, 1)?;
        let value = f64::from(from_bf16(value[0]));
        agree("all-reduce", at, value, expected, expected / 128.0)?;
    }
    // All ranks must put the same number into their graphs.
    let operations = operations(agreed_ns(bytes));
    let graph = graph(gpu, operations, |_| reduce())?;
    let mut samples = Vec::with_capacity(SAMPLES);
    for sample in 0..SAMPLES + 3 {
        gpu.wait()?;
        shared.barrier.wait();
        reduce()?;
        let ns = elapsed(gpu, || graph.launch().during("cuGraphLaunch"))?;
        if sample >= 3 {
            samples.push(ns / operations as f64);
        }
    }
    gpu.wait()?;
    shared.barrier.wait();
    Ok(samples)
}

/// About how long an all-reduce takes: 5 us and 100 GB/s. Only for how many make a sample.
fn agreed_ns(bytes: u64) -> f64 {
    5_000.0 + bytes as f64 / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_hold_the_models_own() {
        assert!(sizes(12_288).contains(&12_288));
        assert_eq!(sizes(1 << 10).len(), SIZES.len());
        assert_eq!(sizes(0)[0], 2);
    }

    #[test]
    fn a_ring_sends_almost_twice_the_message() {
        // 12288 x 2 x 7/8 = 21504; between two ranks the message once
        assert_eq!(ring_bytes(12_288, 8), 21_504);
        assert_eq!(ring_bytes(1000, 2), 1000);
    }

    #[test]
    fn the_slowest_rank_counts() {
        let (tell, told) = channel();
        tell.send(Ok((0, vec![5.0, 7.0]))).unwrap();
        tell.send(Ok((0, vec![6.0, 4.0]))).unwrap();
        assert_eq!(collect(&told, 1, 2).unwrap(), [[6.0, 7.0]]);
    }

    #[test]
    fn ranks_are_waited_for_until_they_end() {
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || drop(tell));
        end(&told, vec![thread]).unwrap();
        let (tell, told) = channel();
        tell.send(Err(BenchError::NotSupported("x".to_owned()))).unwrap();
        assert_eq!(end(&told, Vec::new()).unwrap_err().to_string(), "not supported: x");
    }

    #[test]
    fn a_rank_that_fails_or_vanishes_is_an_error() {
        let (tell, told) = channel();
        tell.send(Err(BenchError::NotSupported("x".to_owned()))).unwrap();
        assert_eq!(collect(&told, 1, 2).unwrap_err().to_string(), "not supported: x");
        drop(tell);
        let error = collect(&told, 1, 1).unwrap_err().to_string();
        assert!(error.starts_with("all-reduce: the ranks gave no result"), "{error}");
    }
}
