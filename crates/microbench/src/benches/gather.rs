//! Rows of a KV cache by index: what sparse attention, or a copy of pages, reads.

use super::{Bench, Fill, Outcome, THREADS, agree, moving};
use crate::error::BenchError;
use crate::kernel::{GATHER, Module};
use crate::numbers::hash;
use crate::result::{Group, Work};
use crate::sample::{beyond_cache, rotation, time};
use crate::stats::Spread;

/// Tokens of each request.
const CONTEXT: u64 = 1024;

pub(crate) fn run(bench: &Bench<'_>, out: &mut Outcome) -> Result<(), BenchError> {
    for (type_name, value_bytes) in [("bf16", 2), ("fp8", 1)] {
        let row = bench.model.kv_row_bytes(value_bytes, bench.tp);
        let name = format!("kv rows {type_name}");
        if !row.is_multiple_of(16) {
            let odd = BenchError::NotSupported(format!("rows of {row} bytes, not n x 16"));
            out.skip(Group::Gather, &name, &odd);
            continue;
        }
        let rows = bench.tokens * CONTEXT;
        let measured = measure(bench, rows, row);
        out.keep(bench, Group::Gather, &name, &format!("{rows} x {row} B"), measured);
    }
    Ok(())
}

fn measure(bench: &Bench<'_>, count: u64, row: u64) -> Result<(Spread, Work, u64), BenchError> {
    let gpu = bench.gpu;
    let kernel = Module::compile(gpu, GATHER)?.kernel("gather", 5)?;
    let most = gpu.facts.memory_bytes / 8 / row;
    let pool_rows = (2 * beyond_cache(gpu) / row).max(4 * count).min(most).max(1);
    let pool = Fill::new(gpu)?.make(gpu, "fill_bytes", pool_rows * row, 8, 1)?;
    let copies = rotation(gpu, count * row).min((most / count.max(1)).max(1));
    let picked = |at: u64| u64::from(hash(at, 2)) % pool_rows;
    let rows: Vec<i32> = (0..copies * count).map(|at| picked(at) as i32).collect();
    let rows = gpu.upload(&rows)?;
    let to = gpu.buffer(copies * count * row)?;
    let blocks = count.div_ceil(u64::from(THREADS / 32));
    let launch = |i: usize| {
        let turn = i as u64 % copies;
        let (to, rows) = (to.address + turn * count * row, rows.address + turn * count * 4);
        kernel.launch(gpu, blocks, THREADS, &[to, pool.address, rows, count, row / 16])
    };
    launch(0)?;
    let mut checked = 0;
    for at in [0, count / 2, count - 1] {
        let made: Vec<u8> = gpu.download(&to, at * row, row as usize)?;
        for (i, &value) in (0..row).zip(&made) {
            let expected = f64::from(hash(picked(at) * row + i, 1) >> 24);
            agree("kv rows", at * row + i, f64::from(value), expected, 0.0)?;
        }
        checked += row;
    }
    Ok((time(gpu, "kv rows", launch)?, moving(2 * count * row + 4 * count), checked))
}
