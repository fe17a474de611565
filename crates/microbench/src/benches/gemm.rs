//! Matrix products in the model's shapes, and a large square for the peak rate.

use super::{Bench, Fill, Outcome, agree};
use crate::blas::{Blas, Matmul, Operands, bits, supports};
use crate::error::BenchError;
use crate::gpu::Buffer;
use crate::model::Product;
use crate::numbers::{bf16_data, fp4_data, fp8_data, from_bf16, hash};
use crate::result::{Compute, Group, Work};
use crate::sample::{rotation, time};
use crate::stats::Spread;

/// Rows of the square product; smaller where it does not fit.
const SQUARE: u64 = 8192;

/// Most bytes of weights that rotate.
const MOST_WEIGHTS: u64 = 8 << 30;

/// Results that are compared with the reference.
const CHECKED: u64 = 32;

const TYPES: [(Compute, &str, &str); 3] = [
    (Compute::Bf16, "bf16", "fill_bf16"),
    (Compute::Fp8, "fp8", "fill_fp8"),
    (Compute::Fp4, "nvfp4", "fill_bytes"),
];

pub(crate) fn run_dense(bench: &Bench<'_>, out: &mut Outcome) -> Result<(), BenchError> {
    let mut products = vec![Product::square(SQUARE)];
    products.extend(bench.model.products(bench.tokens, bench.tp));
    run(bench, Group::Gemm, &products, out)
}

pub(crate) fn run_experts(bench: &Bench<'_>, out: &mut Outcome) -> Result<(), BenchError> {
    let products = bench.model.expert_products(bench.tokens, bench.tp);
    if products.is_empty() {
        let none = BenchError::NotSupported("the model has no experts".to_owned());
        out.skip(Group::MoeGemm, "", &none);
        return Ok(());
    }
    run(bench, Group::MoeGemm, &products, out)
}

fn run(
    bench: &Bench<'_>,
    group: Group,
    products: &[Product],
    out: &mut Outcome,
) -> Result<(), BenchError> {
    let blas = Blas::open(bench.gpu)?;
    let fill = Fill::new(bench.gpu)?;
    for (compute, type_name, kernel) in TYPES {
        if !supports(bench.gpu.facts.architecture, compute) {
            let text = format!("{type_name} on sm_{}", bench.gpu.facts.architecture);
            out.skip(group, type_name, &BenchError::NotSupported(text));
            continue;
        }
        for product in products.iter().filter(|product| narrows(product, compute)) {
            let name = format!("{} {type_name}", product.name);
            let measured = measure(bench, &blas, &fill, kernel, product, compute);
            out.keep(bench, group, &name, &product.shape(), measured);
        }
    }
    Ok(())
}

/// Whether engines run this product in that type: the router and the output head stay in 16 bits,
/// and narrow types need sizes that are multiples of 32.
fn narrows(product: &Product, compute: Compute) -> bool {
    let aligned = product.n.is_multiple_of(32) && product.k.is_multiple_of(32);
    let kept = ["router", "lm_head"].contains(&product.name.as_str());
    compute == Compute::Bf16 || (aligned && !kept)
}

fn measure(
    bench: &Bench<'_>,
    blas: &Blas,
    fill: &Fill,
    kernel: &str,
    product: &Product,
    compute: Compute,
) -> Result<(Spread, Work, u64), BenchError> {
    let Product { m, n, k, count, .. } = *product;
    let gpu = bench.gpu;
    let bits = bits(compute);
    let weights = count * n * k;
    let weight_bytes = weights * bits / 8;
    let room = MOST_WEIGHTS.min(gpu.facts.memory_bytes / 4);
    let copies = rotation(gpu, weight_bytes).min((room / weight_bytes.max(1)).max(1));
    // a hash makes one byte of FP4: two elements
    let filled = |elements: u64| if compute == Compute::Fp4 { elements / 2 } else { elements };
    let fill_bits = if compute == Compute::Fp4 { 8 } else { bits };
    let w = fill.make(gpu, kernel, filled(copies * weights), fill_bits, 1)?;
    let x = fill.make(gpu, kernel, filled(count * m * k), fill_bits, 2)?;
    let y = gpu.buffer(count * m * n * 2)?;
    let operands = |i: usize| Operands {
        w: w.address + (i as u64 % copies) * weight_bytes,
        x: x.address,
        y: y.address,
    };
    let matmul = Matmul::new(gpu, blas, product, compute, operands(0))?;
    matmul.launch(gpu, operands(0))?;
    let checked = check(bench, product, compute, &y)?;
    let spread = time(gpu, &product.name, |i| matmul.launch(gpu, operands(i)))?;
    let work = Work {
        memory_bytes: weight_bytes + count * (m * k * bits / 8 + m * n * 2),
        total_flops: product.flops(),
        compute: Some(compute),
        link_bytes: 0,
    };
    Ok((spread, work, checked))
}

/// Compares some results with sums of products in 64-bit floats. A result may differ by its rounding
/// to BF16 and by what sums of 8-bit products lose in the matrix units.
fn check(
    bench: &Bench<'_>,
    product: &Product,
    compute: Compute,
    y: &Buffer,
) -> Result<u64, BenchError> {
    let Product { m, n, k, count, .. } = *product;
    let data = match compute {
        Compute::Bf16 => bf16_data,
        Compute::Fp8 => fp8_data,
        Compute::Fp4 => fp4_data,
    };
    for sample in 0..CHECKED {
        let at = u64::from(hash(sample, 3)) % (count * m * n);
        let (which, row, column) = (at / (m * n), at / n % m, at % n);
        let (mut expected, mut size) = (0.0_f64, 0.0);
        for i in 0..k {
            let w = data((which * n + column) * k + i, 1);
            let x = data((which * m + row) * k + i, 2);
            expected += f64::from(w) * f64::from(x);
            size += f64::from((w * x).abs());
        }
        let bits: Vec<u16> = bench.gpu.download(y, 2 * at, 1)?;
        let value = f64::from(from_bf16(bits[0]));
        let tolerance = expected.abs() / 256.0 + size / 2048.0;
        agree(&product.name, at, value, expected, tolerance)?;
    }
    Ok(CHECKED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_in_sixteen_bits() {
        let product = |name: &str, n| Product { name: name.to_owned(), m: 1, n, k: 64, count: 1 };
        assert!(narrows(&product("o_proj", 64), Compute::Fp8));
        assert!(!narrows(&product("o_proj", 72), Compute::Fp8));
        assert!(narrows(&product("o_proj", 72), Compute::Bf16));
        assert!(!narrows(&product("lm_head", 64), Compute::Fp8));
        assert!(narrows(&product("lm_head", 64), Compute::Bf16));
    }
}
