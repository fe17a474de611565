//! Routing of tokens to experts: choosing, sorting the choices by expert, gathering the rows.

use super::{Bench, Fill, Outcome, THREADS, agree, moving, row_counts};
use crate::error::BenchError;
use crate::gpu::Buffer;
use crate::kernel::{Module, ROUTING};
use crate::model::MoeShape;
use crate::numbers::{bf16_data, from_bf16, hash};
use crate::result::Group;
use crate::sample::{rotation, time};

/// Experts that the kernels can handle.
const MOST_EXPERTS: u64 = 1024;

pub(crate) fn run(bench: &Bench<'_>, out: &mut Outcome) -> Result<(), BenchError> {
    let Some(moe) = bench.model.moe.as_ref().filter(|moe| moe.experts <= MOST_EXPERTS) else {
        let none = BenchError::NotSupported(format!("1 to {MOST_EXPERTS} experts are needed"));
        out.skip(Group::Routing, "", &none);
        return Ok(());
    };
    let module = Module::compile(bench.gpu, ROUTING)?;
    let fill = Fill::new(bench.gpu)?;
    for tokens in row_counts(bench.tokens) {
        let tokens = tokens.min(4096);
        one_size(bench, &module, &fill, moe, tokens, out)?;
    }
    Ok(())
}

fn one_size(
    bench: &Bench<'_>,
    module: &Module,
    fill: &Fill,
    moe: &MoeShape,
    tokens: u64,
    out: &mut Outcome,
) -> Result<(), BenchError> {
    let gpu = bench.gpu;
    let MoeShape { experts, topk, .. } = *moe;
    let choices = tokens * topk;
    let logits = fill.make(gpu, "fill_float", tokens * experts, 32, 1)?;
    let (ids, weights) = (gpu.buffer(choices * 4)?, gpu.buffer(choices * 4)?);
    let top_k = module.kernel("top_k", 6)?;
    let choose = |_: usize| {
        let [to, by] = [&ids, &weights].map(|buffer| buffer.address);
        let blocks = (tokens * 32).div_ceil(u64::from(THREADS));
        top_k.launch(gpu, blocks, THREADS, &[to, by, logits.address, tokens, experts, topk])
    };
    let chosen = choose(0).and_then(|()| check_choice(bench, moe, tokens, &ids, &weights));
    let measured = chosen.and_then(|checked| {
        let bytes = tokens * experts * 4 + choices * 8;
        Ok((time(gpu, "top-k", choose)?, moving(bytes), checked))
    });
    let shape = format!("{tokens} of {topk}/{experts}");
    out.keep(bench, Group::Routing, "softmax and top-k", &shape, measured);

    let (offsets, order) = (gpu.buffer((experts + 1) * 4)?, gpu.buffer(choices * 4)?);
    let align = module.kernel("align", 5)?;
    let sort = |_: usize| {
        let arguments = [offsets.address, order.address, ids.address, choices, experts];
        align.launch(gpu, 1, 1024, &arguments)
    };
    let sorted = sort(0).and_then(|()| check_order(bench, moe, choices, &ids, &offsets, &order));
    let measured = sorted.and_then(|checked| {
        Ok((time(gpu, "sort by expert", sort)?, moving(choices * 8 + experts * 4), checked))
    });
    out.keep(bench, Group::Routing, "sort by expert", &shape, measured);

    let width = bench.model.hidden;
    if !width.is_multiple_of(8) {
        let odd = BenchError::NotSupported(format!("a width of {width}, not a multiple of 8"));
        out.skip(Group::Routing, "gather rows", &odd);
        return Ok(());
    }
    let copies = rotation(gpu, (tokens + choices) * width * 2);
    let from = fill.make(gpu, "fill_bf16", copies * tokens * width, 16, 1)?;
    let to = gpu.buffer(copies * choices * width * 2)?;
    let permute = module.kernel("permute", 5)?;
    let gather = |i: usize| {
        let turn = i as u64 % copies;
        let to = to.address + turn * choices * width * 2;
        let from = from.address + turn * tokens * width * 2;
        permute.launch(gpu, choices, THREADS, &[to, from, order.address, width / 8, topk])
    };
    let gathered = gather(0).and_then(|()| check_rows(bench, choices, topk, &order, &to));
    let measured = gathered.and_then(|checked| {
        let bytes = (tokens + choices) * width * 2 + choices * 4;
        Ok((time(gpu, "gather rows", gather)?, moving(bytes), checked))
    });
    let shape = format!("{choices} x {width}");
    out.keep(bench, Group::Routing, "gather rows by expert", &shape, measured);
    Ok(())
}

/// Logits as `fill_float` makes them.
fn logit(at: u64) -> f64 {
    f64::from((hash(at, 1) >> 8) as i32 - (1 << 23)) / f64::from(1 << 21)
}

/// The choices of one token: experts and their weights, largest first, the lower one of equals.
fn choice(moe: &MoeShape, token: u64) -> Vec<(u64, f64)> {
    let row: Vec<f64> = (0..moe.experts).map(|e| logit(token * moe.experts + e)).collect();
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|x| (x - largest).exp()).sum();
    let mut order: Vec<u64> = (0..moe.experts).collect();
    order.sort_by(|&a, &b| row[b as usize].total_cmp(&row[a as usize]).then(a.cmp(&b)));
    let chosen = order.into_iter().take(moe.topk as usize);
    chosen.map(|e| (e, (row[e as usize] - largest).exp() / sum)).collect()
}

fn check_choice(
    bench: &Bench<'_>,
    moe: &MoeShape,
    tokens: u64,
    ids: &Buffer,
    weights: &Buffer,
) -> Result<u64, BenchError> {
    let k = moe.topk as usize;
    for token in [0, tokens / 2, tokens - 1] {
        let at = token * moe.topk;
        let made: Vec<i32> = bench.gpu.download(ids, at * 4, k)?;
        let by: Vec<f32> = bench.gpu.download(weights, at * 4, k)?;
        for (rank, (expert, weight)) in choice(moe, token).into_iter().enumerate() {
            let index = at + rank as u64;
            agree("top-k expert", index, f64::from(made[rank]), expert as f64, 0.0)?;
            agree("top-k weight", index, f64::from(by[rank]), weight, weight / 1000.0)?;
        }
    }
    Ok(3 * moe.topk)
}

/// Every choice lies in its expert's part, and occurs once.
fn check_order(
    bench: &Bench<'_>,
    moe: &MoeShape,
    choices: u64,
    ids: &Buffer,
    offsets: &Buffer,
    order: &Buffer,
) -> Result<u64, BenchError> {
    let ids: Vec<i32> = bench.gpu.download(ids, 0, choices as usize)?;
    let offsets: Vec<i32> = bench.gpu.download(offsets, 0, moe.experts as usize + 1)?;
    let order: Vec<i32> = bench.gpu.download(order, 0, choices as usize)?;
    let what = "sort by expert";
    for expert in 0..=moe.experts {
        let before = ids.iter().filter(|id| i64::from(**id) < expert as i64).count();
        agree(what, expert, f64::from(offsets[expert as usize]), before as f64, 0.0)?;
    }
    let mut seen = vec![false; choices as usize];
    for (at, &which) in order.iter().enumerate() {
        let known = usize::try_from(which).ok().filter(|&w| w < seen.len() && !seen[w]);
        let Some(which) = known else {
            agree(what, at as u64, f64::from(which), f64::NAN, 0.0)?;
            continue;
        };
        seen[which] = true;
        let expert = ids[which] as usize;
        let inside = (offsets[expert]..offsets[expert + 1]).contains(&(at as i32));
        agree(what, at as u64, f64::from(u8::from(inside)), 1.0, 0.0)?;
    }
    Ok(choices)
}

fn check_rows(
    bench: &Bench<'_>,
    choices: u64,
    topk: u64,
    order: &Buffer,
    to: &Buffer,
) -> Result<u64, BenchError> {
    let width = bench.model.hidden;
    for place in [0, choices - 1] {
        let which: Vec<u32> = bench.gpu.download(order, place * 4, 1)?;
        let token = u64::from(which[0]) / topk;
        let made: Vec<u16> = bench.gpu.download(to, place * width * 2, width as usize)?;
        for (i, &bits) in (0..width).zip(&made) {
            let expected = f64::from(bf16_data(token * width + i, 1));
            agree("gather rows", place * width + i, f64::from(from_bf16(bits)), expected, 0.0)?;
        }
    }
    Ok(2 * width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_chooses_the_largest() {
        let moe = MoeShape { experts: 16, topk: 3, width: 8, shared_width: 0 };
        let chosen = choice(&moe, 5);
        assert_eq!(chosen.len(), 3);
        let value = |e: u64| logit(5 * 16 + e);
        let others = (0..16).filter(|e| chosen.iter().all(|c| c.0 != *e)).map(value);
        let least = value(chosen[2].0);
        assert!(others.fold(f64::NEG_INFINITY, f64::max) <= least);
        // softmax weights of two choices differ by the exponential of their logits
        let ratio = (value(chosen[0].0) - value(chosen[1].0)).exp();
        assert!((chosen[0].1 / chosen[1].1 - ratio).abs() < 1e-9);
    }
}
