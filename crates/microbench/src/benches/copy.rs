//! Copies within the device: the memory bandwidth that a kernel can reach.

use super::{Bench, Fill, Outcome, THREADS, agree, moving};
use crate::error::BenchError;
use crate::gpu::Buffer;
use crate::kernel::{COPY, Module};
use crate::numbers::hash;
use crate::result::Group;
use crate::sample::time;

/// Sizes that are copied, unless they do not fit.
const SIZES: [u64; 2] = [256 << 20, 1 << 30];

pub(crate) fn run(bench: &Bench<'_>, out: &mut Outcome) -> Result<(), BenchError> {
    let gpu = bench.gpu;
    let kernel = Module::compile(gpu, COPY)?.kernel("copy", 3)?;
    let fill = Fill::new(gpu)?;
    for bytes in SIZES.into_iter().filter(|bytes| 4 * bytes <= gpu.facts.memory_bytes) {
        let from = fill.make(gpu, "fill_bytes", bytes, 8, 1)?;
        let to = gpu.buffer(bytes)?;
        let shape = format!("{} MiB", bytes >> 20);
        let vectors = bytes / 16;
        let blocks = vectors.div_ceil(4 * u64::from(THREADS));
        let mut measure = |name: &str, copy: &dyn Fn(usize) -> Result<(), BenchError>| {
            let timed = copy(0)
                .and_then(|()| check(bench, name, &to, bytes))
                .and_then(|checked| Ok((time(gpu, name, copy)?, moving(2 * bytes), checked)));
            out.keep(bench, Group::Copy, name, &shape, timed);
        };
        measure("cudaMemcpy device to device", &|_| gpu.copy(to.address, from.address, bytes));
        // what the first one wrote must not pass for the second one's work
        gpu.copy(to.address, from.span(16, bytes - 16)?, bytes - 16)?;
        measure("copy kernel", &|_| {
            kernel.launch(gpu, blocks, THREADS, &[to.address, from.address, vectors])
        });
    }
    Ok(())
}

/// Compares the beginning and the end.
fn check(bench: &Bench<'_>, name: &str, to: &Buffer, bytes: u64) -> Result<u64, BenchError> {
    const PIECE: u64 = 4096;
    for offset in [0, bytes / 2, bytes - PIECE] {
        let copied: Vec<u8> = bench.gpu.download(to, offset, PIECE as usize)?;
        for (at, &value) in (offset..).zip(&copied) {
            agree(name, at, f64::from(value), f64::from(hash(at, 1) >> 24), 0.0)?;
        }
    }
    Ok(3 * PIECE)
}
