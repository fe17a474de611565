//! The benchmarks, one file for each group.
//!
//! Each makes its data on the device, runs once and compares a sample of the results with a
//! reference that the host computes by other means, and only then takes the time.

pub(crate) mod all_reduce;
pub(crate) mod cast;
pub(crate) mod copy;
pub(crate) mod gather;
pub(crate) mod gemm;
pub(crate) mod launch;
pub(crate) mod norm;
pub(crate) mod rope;
pub(crate) mod routing;

use crate::error::BenchError;
use crate::gpu::{Buffer, Gpu};
use crate::kernel::{FILL, Kernel, Module};
use crate::model::ModelShape;
use crate::result::{Group, Limits, Measurement, Skipped, Work};
use crate::stats::Spread;

/// Threads of a block where nothing speaks for another number.
pub(crate) const THREADS: u32 = 256;

/// Rows of what is measured beside the step's own size, to see bandwidth instead of latency.
pub(crate) const MANY_ROWS: u64 = 16_384;

/// What the benchmarks of one device share.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) limits: Limits,
    pub(crate) model: &'a ModelShape,
    pub(crate) tokens: u64,
    pub(crate) tp: u64,
}

/// What came out.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) measurements: Vec<Measurement>,
    pub(crate) skipped: Vec<Skipped>,
}

/// Work that only moves bytes.
pub(crate) fn moving(memory_bytes: u64) -> Work {
    Work { memory_bytes, ..Work::default() }
}

impl Outcome {
    /// Keeps a measurement, or the reason why there is none.
    pub(crate) fn keep(
        &mut self,
        bench: &Bench<'_>,
        group: Group,
        name: &str,
        shape: &str,
        measured: Result<(Spread, Work, u64), BenchError>,
    ) {
        match measured {
            Ok((time, work, checked)) => self.measurements.push(Measurement::new(
                group,
                name,
                shape,
                time,
                work,
                &bench.limits,
                checked,
            )),
            Err(error) => self.skip(group, name, &error),
        }
    }

    pub(crate) fn skip(&mut self, group: Group, name: &str, error: &BenchError) {
        let (name, reason) = (name.to_owned(), error.to_string());
        self.skipped.push(Skipped { group, name, reason });
    }
}

/// Fills buffers with test data.
#[derive(Debug)]
pub(crate) struct Fill {
    module: Module,
}

impl Fill {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self, BenchError> {
        Ok(Self { module: Module::compile(gpu, FILL)? })
    }

    /// A new buffer of `count` elements of `bits` each, made by the kernel of that name.
    pub(crate) fn make(
        &self,
        gpu: &Gpu,
        kernel: &str,
        count: u64,
        bits: u64,
        seed: u64,
    ) -> Result<Buffer, BenchError> {
        let buffer = gpu.buffer((count * bits).div_ceil(8))?;
        let fill: Kernel = self.module.kernel(kernel, 3)?;
        let blocks = count.div_ceil(u64::from(THREADS)).min(1 << 20);
        fill.launch(gpu, blocks, THREADS, &[buffer.address, count, seed])?;
        gpu.wait()?;
        Ok(buffer)
    }
}

/// Fails unless `value` is within `tolerance` of `expected`.
pub(crate) fn agree(
    what: &str,
    index: u64,
    value: f64,
    expected: f64,
    tolerance: f64,
) -> Result<(), BenchError> {
    if (value - expected).abs() <= tolerance {
        return Ok(());
    }
    Err(BenchError::Wrong { what: what.to_owned(), index, value, expected })
}

/// The step's own number of rows and a large one, each once, smallest first.
pub(crate) fn row_counts(tokens: u64) -> Vec<u64> {
    let mut counts = vec![tokens.max(1), MANY_ROWS];
    counts.sort_unstable();
    counts.dedup();
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_must_agree() {
        assert!(agree("x", 1, 1.01, 1.0, 0.02).is_ok());
        let error = agree("norm", 7, 1.5, 1.0, 0.25).unwrap_err();
        assert_eq!(error.to_string(), "norm: element 7 is 1.5, the reference says 1");
        assert!(agree("x", 0, f64::NAN, 1.0, 1.0).is_err());
    }

    #[test]
    fn rows_of_a_step_and_many() {
        assert_eq!(row_counts(1), [1, MANY_ROWS]);
        assert_eq!(row_counts(MANY_ROWS), [MANY_ROWS]);
        assert_eq!(row_counts(0), [1, MANY_ROWS]);
    }
}
