//! Kernels of A and B in pairs: by name, then by what they do in the step.

use std::collections::HashMap;

use super::DiffInput;
use crate::results::{Fate, KernelDiff, KernelSide, KernelSummary, PairedBy};

/// Times that differ by less than this share of the larger are alike.
const ALIKE: f64 = 0.02;

/// Numbers of calls of kernels with one role are within this factor.
const CALLS: f64 = 1.25;

/// Pairs that differ more than this are none. See [`distance`].
const FARTHEST: f64 = 1.5;

/// All kernels of both sides, largest change of time first.
pub(super) fn pair(a: &DiffInput, b: &DiffInput) -> Vec<KernelDiff> {
    let of_b: HashMap<&str, usize> =
        b.kernels.iter().enumerate().map(|(index, kernel)| (kernel.name.as_str(), index)).collect();
    let mut partner_of_a: Vec<Option<(usize, PairedBy)>> = a
        .kernels
        .iter()
        .map(|kernel| Some((*of_b.get(kernel.name.as_str())?, PairedBy::Name)))
        .collect();
    let mut taken = vec![false; b.kernels.len()];
    partner_of_a.iter().flatten().for_each(|&(index, _)| taken[index] = true);
    pair_by_role(&a.kernels, &b.kernels, &mut partner_of_a, &mut taken);

    let mut rows: Vec<KernelDiff> = (a.kernels.iter().zip(&partner_of_a))
        .map(|(kernel, partner)| {
            let partner = partner.map(|(index, by)| (&b.kernels[index], by));
            row(Some(kernel), partner.map(|(kernel, _)| kernel), partner.map(|(_, by)| by))
        })
        .collect();
    let appeared = b.kernels.iter().zip(&taken).filter(|(_, taken)| !**taken);
    rows.extend(appeared.map(|(kernel, _)| row(None, Some(kernel), None)));
    rows.sort_by(|a, b| {
        let name = |row: &KernelDiff| row.a.as_ref().or(row.b.as_ref()).map(|of| of.name.clone());
        let size = |row: &KernelDiff| row.change_ns_per_step.abs();
        size(b).total_cmp(&size(a)).then_with(|| name(a).cmp(&name(b)))
    });
    rows
}

/// Pairs what has no partner of its name, nearest first.
fn pair_by_role(
    a: &[KernelSummary],
    b: &[KernelSummary],
    partner_of_a: &mut [Option<(usize, PairedBy)>],
    taken: &mut [bool],
) {
    let work = |kernels: &[KernelSummary]| {
        kernels.iter().map(|kernel| kernel.calls_per_step).sum::<f64>().max(1.0)
    };
    let (work_a, work_b) = (work(a), work(b));
    let mut candidates: Vec<(f64, usize, usize)> = Vec::new();
    for (index_a, kernel_a) in a.iter().enumerate().filter(|(at, _)| partner_of_a[*at].is_none()) {
        for (index_b, kernel_b) in b.iter().enumerate().filter(|(at, _)| !taken[*at]) {
            let place = |kernel: &KernelSummary, work| Some(kernel.first_position? as f64 / work);
            let apart = place(kernel_a, work_a).zip(place(kernel_b, work_b));
            let apart = apart.map_or(0.0, |(a, b)| (a - b).abs());
            if let Some(distance) = distance(kernel_a, kernel_b, apart) {
                candidates.push((distance, index_a, index_b));
            }
        }
    }
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| (a.1, a.2).cmp(&(b.1, b.2))));
    for (_, index_a, index_b) in candidates {
        if partner_of_a[index_a].is_none() && !taken[index_b] {
            partner_of_a[index_a] = Some((index_b, PairedBy::Role));
            taken[index_b] = true;
        }
    }
}

/// How unlike the roles of two kernels are, `None` when they cannot be the same.
///
/// The same category is needed, or the same operator with the same shapes and number of calls.
/// Then: logarithm of the ratio of calls x 4, of the durations x 1/2, distance of the first calls
/// within the step (`apart`, 0..1) x 2, another operator 1/2, another grid 1/5.
fn distance(a: &KernelSummary, b: &KernelSummary, apart: f64) -> Option<f64> {
    let ratio = |a: f64, b: f64| (a.max(1e-9) / b.max(1e-9)).ln().abs();
    let calls = ratio(a.calls_per_step, b.calls_per_step);
    let same_op = a.op.is_some() && a.op == b.op;
    let same_task = same_op && a.op_dims.is_some() && a.op_dims == b.op_dims && calls < 1e-6;
    if (a.category != b.category && !same_task) || calls > CALLS.ln() {
        return None;
    }
    let other_op = a.op.is_some() && b.op.is_some() && !same_op;
    let distance = 4.0 * calls
        + 0.5 * ratio(a.median_ns, b.median_ns)
        + 2.0 * apart
        + if other_op { 0.5 } else { 0.0 }
        + if a.grid == b.grid { 0.0 } else { 0.2 };
    (distance <= FARTHEST).then_some(distance)
}

fn row(
    a: Option<&KernelSummary>,
    b: Option<&KernelSummary>,
    paired_by: Option<PairedBy>,
) -> KernelDiff {
    let time = |of: Option<&KernelSummary>| of.map_or(0.0, |kernel| kernel.ns_per_step);
    let calls = |of: Option<&KernelSummary>| of.map_or(0.0, |kernel| kernel.calls_per_step);
    let measure = |of: Option<&KernelSummary>| of.map(|of| (of.ns_per_step, of.calls_per_step));
    let launch_changed = match (a, b) {
        (Some(a), Some(b)) => (a.grid, a.block) != (b.grid, b.block),
        _ => false,
    };
    KernelDiff {
        fate: fate(measure(a), measure(b)),
        paired_by,
        launch_changed,
        change_ns_per_step: time(b) - time(a),
        change_calls_per_step: calls(b) - calls(a),
        a: a.map(kernel_side),
        b: b.map(kernel_side),
    }
}

fn kernel_side(of: &KernelSummary) -> KernelSide {
    KernelSide {
        name: of.name.clone(),
        category: of.category.clone(),
        calls_per_step: of.calls_per_step,
        ns_per_step: of.ns_per_step,
        median_ns: of.median_ns,
        grid: of.grid,
        block: of.block,
    }
}

/// What became of something with these times and numbers of calls per step.
pub(super) fn fate(a: Option<(f64, f64)>, b: Option<(f64, f64)>) -> Fate {
    match (a, b) {
        (None, Some(_)) => Fate::Appeared,
        (Some(_), None) => Fate::Vanished,
        (Some((a_ns, a_calls)), Some((b_ns, b_calls)))
            if (b_ns - a_ns).abs() > ALIKE * a_ns.max(b_ns) || (a_calls - b_calls).abs() > 1e-6 =>
        {
            Fate::Changed
        }
        _ => Fate::Same,
    }
}
