//! What bounds a step: the GPU, the host, or the profiler on the host.

use super::DiffInput;
use crate::ledger::{IDLE_BETWEEN, IDLE_HOST_BLOCKED, IDLE_HOST_LATE, IDLE_LAUNCH};
use crate::results::{AccountGroup, Bound};

/// Above this share of the step the GPU is its bound.
const GPU_BOUND: f64 = 0.9;

/// A period that is longer than TPOT by more than this factor is stretched by the profiler.
const DILATED: f64 = 1.1;

/// What bounds the step, given its median `period`, GPU `busy` time and `tpot` in ns. With a TPOT
/// the GPU is measured against that: it is the step without the profiler.
pub(super) fn bound(
    input: &DiffInput,
    period: Option<f64>,
    busy: Option<f64>,
    tpot: Option<f64>,
) -> Option<Bound> {
    let period = period?;
    let busy = busy.unwrap_or(0.0);
    if busy > GPU_BOUND * tpot.map_or(period, |tpot| tpot.min(period)) {
        return Some(Bound::Gpu);
    }
    if let Some(tpot) = tpot {
        return Some(if period > DILATED * tpot { Bound::Profiler } else { Bound::Host });
    }
    let of_host = [IDLE_HOST_LATE, IDLE_HOST_BLOCKED, IDLE_BETWEEN, IDLE_LAUNCH];
    let (mut idle, mut host) = (0, 0);
    for account in &input.ledger.accounts {
        if account.group == AccountGroup::Idle {
            idle += account.total_ns;
            if of_host.contains(&account.account.as_str()) {
                host += account.total_ns;
            }
        }
    }
    Some(if idle > 0 && 2 * host >= idle { Bound::HostOrProfiler } else { Bound::Other })
}
