//! How far the numbers can be trusted: the gate before, the checks and the grade after.

mod checks;
mod gate;
mod kernels;
mod refusal;

use steptally_trace_model::Trace;

use crate::Config;
use crate::gpu::Lane;
use crate::links::{ApiIndex, OpTree};
use crate::results::{Check, CheckStatus, Dilation, Grade, Ledger, Quality, StepTable};

pub(crate) use gate::apply as gate;

/// Everything that the checks look at.
pub(crate) struct Inputs<'a> {
    pub(crate) traces: &'a [&'a Trace],
    pub(crate) indexes: &'a [(ApiIndex, OpTree)],
    pub(crate) lanes: &'a [Lane<'a>],
    pub(crate) steps: &'a StepTable,
    pub(crate) ledger: &'a Ledger,
    /// What was measured without a profiler against the steps, or why that says nothing about them.
    pub(crate) dilation: Option<&'a Result<Dilation, String>>,
    pub(crate) config: &'a Config,
}

/// Makes every check and grades the outcome.
pub(crate) fn judge(inputs: &Inputs<'_>) -> Quality {
    let checks = checks::all(inputs);
    let refused = refusal::refuse(inputs);
    let grade = if refused.is_some() { Grade::F } else { grade(&checks) };
    Quality { grade, refused, checks }
}

/// By the check that affects the largest share of events. A check without a total, such as a
/// partial input, counts as 5 %.
fn grade(checks: &[Check]) -> Grade {
    let affected = checks
        .iter()
        .filter(|check| check.status == CheckStatus::Warn)
        .map(|check| match check.of {
            Some(of) if of > 0 => check.count as f64 / of as f64,
            _ => 0.05,
        })
        .fold(0.0, f64::max);
    match affected {
        a if a <= 0.0 => Grade::A,
        a if a <= 0.01 => Grade::B,
        a if a <= 0.05 => Grade::C,
        a if a <= 0.20 => Grade::D,
        _ => Grade::E,
    }
}
