//! RMSNorm over the residual stream.

use super::{Bench, Fill, Outcome, THREADS, agree, moving, row_counts};
use crate::error::BenchError;
use crate::gpu::Buffer;
use crate::kernel::{Kernel, Module, NORM};
use crate::numbers::{bf16_data, from_bf16};
use crate::result::{Group, Work};
use crate::sample::{rotation, time};
use crate::stats::Spread;

pub(crate) fn run(bench: &Bench<'_>, out: &mut Outcome) -> Result<(), BenchError> {
    let width = bench.model.hidden;
    if !width.is_multiple_of(8) {
        let odd = BenchError::NotSupported(format!("a width of {width}, not a multiple of 8"));
        out.skip(Group::Norm, "rms norm", &odd);
        return Ok(());
    }
    let kernel = Module::compile(bench.gpu, NORM)?.kernel("rms_norm", 4)?;
    let fill = Fill::new(bench.gpu)?;
    let weight = fill.make(bench.gpu, "fill_bf16", width, 16, 2)?;
    for rows in row_counts(bench.tokens) {
        let measured = measure(bench, &fill, &kernel, &weight, rows);
        out.keep(bench, Group::Norm, "rms norm bf16", &format!("{rows} x {width}"), measured);
    }
    Ok(())
}

fn measure(
    bench: &Bench<'_>,
    fill: &Fill,
    kernel: &Kernel,
    weight: &Buffer,
    rows: u64,
) -> Result<(Spread, Work, u64), BenchError> {
    let (gpu, width) = (bench.gpu, bench.model.hidden);
    let bytes = rows * width * 2;
    let copies = rotation(gpu, bytes);
    let x = fill.make(gpu, "fill_bf16", copies * rows * width, 16, 1)?;
    let y = gpu.buffer(copies * bytes)?;
    let launch = |i: usize| {
        let offset = (i as u64 % copies) * bytes;
        let arguments = [y.address + offset, x.address + offset, weight.address, width];
        kernel.launch(gpu, rows, THREADS, &arguments)
    };
    launch(0)?;
    let mut checked = 0;
    for row in [0, rows - 1] {
        let made: Vec<u16> = gpu.download(&y, row * width * 2, width as usize)?;
        let input = |i: u64| f64::from(bf16_data(row * width + i, 1));
        let mean = (0..width).map(|i| input(i) * input(i)).sum::<f64>() / width as f64;
        for (i, &bits) in (0..width).zip(&made) {
            let expected = input(i) / (mean + 1e-6).sqrt() * f64::from(bf16_data(i, 2));
            let tolerance = expected.abs() / 200.0 + 1e-6;
            agree("rms norm", row * width + i, f64::from(from_bf16(bits)), expected, tolerance)?;
        }
        checked += width;
    }
    Ok((time(gpu, "rms norm", launch)?, moving(2 * bytes + width * 2), checked))
}
