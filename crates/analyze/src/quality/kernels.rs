//! Checks of the kernels themselves: the defects that importing repaired and that take time or names
//! away from every later number.

use steptally_trace_model::{Nanos, Timestamp};

use super::Inputs;
use super::checks::counted;
use crate::gpu::{GpuKind, Lane};
use crate::results::{Check, CheckStatus};

/// Kernels that take no time: their end was before their start, not recorded, or recorded as 0.
///
/// No kernel takes less than some hundred nanoseconds; one below 1 us is recorded as 0 where times
/// are whole microseconds, so that there only a majority is a defect.
pub(super) fn without_duration(inputs: &Inputs<'_>) -> Check {
    let (mut kernels, mut lost) = (0, 0);
    for lane in inputs.lanes {
        let of_lane = || lane.ops.iter().filter(|op| op.kind == GpuKind::Kernel);
        let empty = of_lane().filter(|op| op.end - op.start <= Nanos::ZERO).count();
        let total = of_lane().count();
        let coarse = is_coarse(lane);
        kernels += total as u64;
        lost += if coarse && empty * 2 <= total { 0 } else { empty as u64 };
    }
    counted(
        "kernels_without_duration",
        CheckStatus::Warn,
        lost,
        kernels,
        "kernels whose recorded duration is 0, missing or negative count as no time: GPU time is a \
         lower bound, and what they took shows as idle"
            .to_owned(),
    )
}

/// Whether all times are whole microseconds.
pub(super) fn is_coarse(lane: &Lane<'_>) -> bool {
    let whole = |at: Timestamp| at.as_ns() % 1000 == 0;
    lane.ops.iter().all(|op| whole(op.start) && whole(op.end))
}

/// Kernels of which only a number is known.
pub(super) fn without_name(inputs: &Inputs<'_>) -> Check {
    let (mut kernels, mut nameless) = (0, 0);
    for lane in inputs.lanes {
        let trace = lane.trace;
        let mut known: Vec<Option<bool>> = vec![None; trace.strings.len()];
        for op in lane.ops.iter().filter(|op| op.kind == GpuKind::Kernel) {
            let name = trace.kernels.name[op.row as usize];
            let missing = *known[name.index()].get_or_insert_with(|| is_missing(trace.text(name)));
            kernels += 1;
            nameless += u64::from(missing);
        }
    }
    counted(
        "kernels_without_name",
        CheckStatus::Warn,
        nameless,
        kernels,
        "kernels without a recorded name have no category, and no finding can be about them"
            .to_owned(),
    )
}

/// No text, `null`, a number, or `string 7`, which stands for a missing row of nsys' `StringIds`.
fn is_missing(name: &str) -> bool {
    let number = name.strip_prefix("string ").unwrap_or(name);
    name == "null" || number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::is_missing;

    #[test]
    fn names_that_are_none() {
        for name in ["", "382", "null", "string 382"] {
            assert!(is_missing(name), "{name}");
        }
        for name in ["k1", "string concat", "nullify", "1d_kernel"] {
            assert!(!is_missing(name), "{name}");
        }
    }
}
