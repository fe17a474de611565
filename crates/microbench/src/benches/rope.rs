//! Rotary positions on the query and key heads.

use super::{Bench, Fill, Outcome, THREADS, agree, moving, row_counts};
use crate::error::BenchError;
use crate::gpu::Buffer;
use crate::kernel::{Kernel, Module, ROPE};
use crate::numbers::{bf16_data, from_bf16};
use crate::result::{Group, Work};
use crate::sample::{rotation, time};
use crate::stats::Spread;

/// Positions that occur.
const POSITIONS: u64 = 4096;

pub(crate) fn run(bench: &Bench<'_>, out: &mut Outcome) -> Result<(), BenchError> {
    let (heads, width) = bench.model.rotated(bench.tp);
    let half = width / 2;
    let kernel = Module::compile(bench.gpu, ROPE)?.kernel("rope", 7)?;
    let fill = Fill::new(bench.gpu)?;
    let angles: Vec<f32> = (0..POSITIONS * half)
        .flat_map(|i| {
            let (sine, cosine) = angle(i / half, i % half, half).sin_cos();
            [cosine as f32, sine as f32]
        })
        .collect();
    let table = bench.gpu.upload(&angles)?;
    for tokens in row_counts(bench.tokens) {
        let tokens = tokens.min(POSITIONS);
        let measured = measure(bench, &fill, &kernel, &table, tokens);
        let shape = format!("{tokens} x {heads} x {width}");
        out.keep(bench, Group::Rope, "rope bf16", &shape, measured);
    }
    Ok(())
}

/// `position / 10000^(pair / half)`.
fn angle(position: u64, pair: u64, half: u64) -> f64 {
    position as f64 / 10_000_f64.powf(pair as f64 / half as f64)
}

/// Where token `t` of a batch stands.
fn position(token: u64) -> u64 {
    token * 7 % POSITIONS
}

fn measure(
    bench: &Bench<'_>,
    fill: &Fill,
    kernel: &Kernel,
    table: &Buffer,
    tokens: u64,
) -> Result<(Spread, Work, u64), BenchError> {
    let gpu = bench.gpu;
    let (heads, width) = bench.model.rotated(bench.tp);
    let half = width / 2;
    let positions: Vec<u64> = (0..tokens).map(position).collect();
    let positions = gpu.upload(&positions)?;
    let elements = tokens * heads * width;
    let copies = rotation(gpu, elements * 2);
    let x = fill.make(gpu, "fill_bf16", copies * elements, 16, 1)?;
    let y = gpu.buffer(copies * elements * 2)?;
    let pairs = tokens * heads * half;
    let launch = |i: usize| {
        let offset = (i as u64 % copies) * elements * 2;
        let (to, from) = (y.address + offset, x.address + offset);
        let arguments = [to, from, table.address, positions.address, heads, half, pairs];
        kernel.launch(gpu, pairs.div_ceil(u64::from(THREADS)), THREADS, &arguments)
    };
    launch(0)?;
    let mut checked = 0;
    for head in [0, tokens * heads - 1] {
        let made: Vec<u16> = gpu.download(&y, head * width * 2, width as usize)?;
        for pair in 0..half {
            let (sine, cosine) = angle(position(head / heads), pair, half).sin_cos();
            let input = |at: u64| f64::from(bf16_data(head * width + at, 1));
            let (a, b) = (input(pair), input(pair + half));
            for (at, expected) in
                [(pair, a * cosine - b * sine), (pair + half, a * sine + b * cosine)]
            {
                let value = f64::from(from_bf16(made[at as usize]));
                agree("rope", head * width + at, value, expected, expected.abs() / 200.0 + 1e-3)?;
            }
        }
        checked += width;
    }
    let bytes = 4 * elements + 8 * tokens * half;
    Ok((time(gpu, "rope", launch)?, moving(bytes), checked))
}
