//! Conversions between types: what a step should not do to a whole cache.

use super::{Bench, Fill, Outcome, THREADS, agree, moving};
use crate::error::BenchError;
use crate::gpu::Buffer;
use crate::kernel::{CAST, Module};
use crate::numbers::{bf16_data, fp8_data, from_bf16, from_e4m3, hash, to_bf16};
use crate::result::{Group, Work};
use crate::sample::{rotation, time};
use crate::stats::Spread;

/// Elements of the large case.
const MANY: u64 = 128 << 20;

/// Elements that are compared.
const CHECKED: u64 = 4096;

/// One conversion.
#[derive(Clone, Copy, Debug)]
struct Cast {
    name: &'static str,
    kernel: &'static str,
    fill: &'static str,
    from_bits: u64,
    to_bits: u64,
    narrow: bool,
}

const CASTS: [Cast; 3] = [
    Cast {
        name: "fp8 to bf16",
        kernel: "fp8_to_bf16",
        fill: "fill_fp8",
        from_bits: 8,
        to_bits: 16,
        narrow: true,
    },
    Cast {
        name: "bf16 to fp8",
        kernel: "bf16_to_fp8",
        fill: "fill_bf16",
        from_bits: 16,
        to_bits: 8,
        narrow: true,
    },
    Cast {
        name: "fp32 to bf16",
        kernel: "fp32_to_bf16",
        fill: "fill_float",
        from_bits: 32,
        to_bits: 16,
        narrow: false,
    },
];

pub(crate) fn run(bench: &Bench<'_>, out: &mut Outcome) -> Result<(), BenchError> {
    let module = Module::compile(bench.gpu, CAST)?;
    let fill = Fill::new(bench.gpu)?;
    for cast in CASTS {
        if cast.narrow && bench.gpu.facts.architecture < 89 {
            let text = format!("fp8 on sm_{}", bench.gpu.facts.architecture);
            out.skip(Group::Cast, cast.name, &BenchError::NotSupported(text));
            continue;
        }
        let small = (bench.tokens * bench.model.hidden).next_multiple_of(16).max(CHECKED);
        for count in [small, MANY] {
            let measured = measure(bench, &module, &fill, cast, count);
            out.keep(bench, Group::Cast, cast.name, &format!("{count} elements"), measured);
        }
    }
    Ok(())
}

fn measure(
    bench: &Bench<'_>,
    module: &Module,
    fill: &Fill,
    cast: Cast,
    count: u64,
) -> Result<(Spread, Work, u64), BenchError> {
    let gpu = bench.gpu;
    let kernel = module.kernel(cast.kernel, 3)?;
    let (read, written) = (count * cast.from_bits / 8, count * cast.to_bits / 8);
    let copies = rotation(gpu, read + written);
    let from = fill.make(gpu, cast.fill, copies * count, cast.from_bits, 1)?;
    let to = gpu.buffer(copies * written)?;
    let vectors = count / 16;
    let launch = |i: usize| {
        let turn = i as u64 % copies;
        let arguments = [to.address + turn * written, from.address + turn * read, vectors];
        kernel.launch(gpu, vectors.div_ceil(u64::from(THREADS)), THREADS, &arguments)
    };
    launch(0)?;
    check(bench, cast, &to)?;
    Ok((time(gpu, cast.name, launch)?, moving(read + written), CHECKED))
}

fn check(bench: &Bench<'_>, cast: Cast, to: &Buffer) -> Result<(), BenchError> {
    let count = CHECKED as usize;
    let values: Vec<f32> = match cast.to_bits {
        8 => bench.gpu.download::<u8>(to, 0, count)?.into_iter().map(from_e4m3).collect(),
        _ => bench.gpu.download::<u16>(to, 0, count)?.into_iter().map(from_bf16).collect(),
    };
    for (at, value) in (0..).zip(values) {
        let (expected, tolerance) = match cast.kernel {
            "fp8_to_bf16" => (fp8_data(at, 1), 0.0),
            "bf16_to_fp8" => rounded_to_fp8(bf16_data(at, 1)),
            _ => (from_bf16(to_bf16(float_data(at))), 0.0),
        };
        agree(cast.name, at, f64::from(value), f64::from(expected), f64::from(tolerance))?;
    }
    Ok(())
}

/// Test data in 32 bits: -2^23..2^23 by 2^21, as `fill_float` makes it.
fn float_data(at: u64) -> f32 {
    ((hash(at, 1) >> 8) as i32 - (1 << 23)) as f32 / (1 << 21) as f32
}

/// A value, and how far from it its nearest E4M3 is.
fn rounded_to_fp8(value: f32) -> (f32, f32) {
    let distances = (0..=255).map(|bits| (from_e4m3(bits) - value).abs());
    (value, distances.filter(|distance| !distance.is_nan()).fold(f32::INFINITY, f32::min))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_fp8() {
        // neighbours of 0.78125 are 0.75 and 0.8125, both 1/32 away; 0.5 is exact
        assert_eq!(rounded_to_fp8(0.781_25), (0.781_25, 0.031_25));
        assert_eq!(rounded_to_fp8(0.5), (0.5, 0.0));
    }

    #[test]
    fn single_precision_data_is_between_four_and_minus_four() {
        let values: Vec<f32> = (0..1000).map(float_data).collect();
        assert!(values.iter().all(|v| (-4.0..4.0).contains(v)));
        assert!(values.iter().any(|v| *v > 3.5) && values.iter().any(|v| *v < -3.5));
    }
}
