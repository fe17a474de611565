//! What was measured without a profiler, and what it says about steps that were profiled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steptally_trace_model::manifest::{self, CaptureManifest};

use super::{Account, AccountGroup, Ledger, StepTable};

/// Time per output token without a profiler: the true cost of a step, which a trace cannot tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Baseline {
    /// Time per output token of a request: (e2e - TTFT) / (N - 1), over requests.
    pub tpot_ns: TpotSpread,
    /// Where it is from: `manifest`, or `given` by the user.
    pub source: String,
    /// The model, as the server names it.
    #[serde(default)]
    pub model: Option<String>,
    /// Algorithm of speculative decoding, under which a step yields several tokens; `null`: none,
    /// or not known.
    #[serde(default)]
    pub speculative: Option<String>,
    /// Requests at the same time.
    #[serde(default)]
    pub batch_size: Option<u32>,
    /// Prompt tokens of each.
    #[serde(default)]
    pub input_len: Option<u32>,
    /// Tokens that each generates.
    #[serde(default)]
    pub output_len: Option<u32>,
}

/// TPOT over requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TpotSpread {
    /// Number of requests.
    pub n: u64,
    /// Median.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// 90th percentile; `null` when not known.
    #[serde(default)]
    pub p90: Option<f64>,
    /// Largest.
    pub max: f64,
}

impl Baseline {
    /// A TPOT that somebody measured and gives as one number of nanoseconds.
    #[must_use]
    pub fn given(tpot_ns: f64) -> Self {
        let spread = TpotSpread { n: 1, median: tpot_ns, min: tpot_ns, p90: None, max: tpot_ns };
        Self {
            tpot_ns: spread,
            source: "given".to_owned(),
            model: None,
            speculative: None,
            batch_size: None,
            input_len: None,
            output_len: None,
        }
    }

    /// The TPOT that a capture measured before it recorded (else after); `None` when no request
    /// ended. What was measured after widens smallest, largest and 90th percentile, not the median.
    #[must_use]
    pub fn from_manifest(manifest: &CaptureManifest) -> Option<Self> {
        let known = |baseline: &Option<manifest::Baseline>| {
            baseline.clone().filter(|baseline| baseline.tpot_ns.n > 0)
        };
        let (before, after) = (known(&manifest.baseline_before), known(&manifest.baseline_after));
        let widest = match (&before, &after) {
            (Some(before), Some(after)) if before.shape == after.shape => Some(after.tpot_ns),
            _ => None,
        };
        let first = before.or(after)?;
        let spread = first.tpot_ns;
        let also = widest.unwrap_or(spread);
        Some(Self {
            tpot_ns: TpotSpread {
                n: spread.n + widest.map_or(0, |spread| spread.n),
                median: spread.median,
                min: spread.min.min(also.min),
                p90: Some(spread.p90.max(also.p90)),
                max: spread.max.max(also.max),
            },
            source: "manifest".to_owned(),
            model: manifest.server.as_ref().and_then(|server| server.model.clone()),
            speculative: manifest.server.as_ref().and_then(|server| server.speculative.clone()),
            batch_size: Some(first.shape.batch_size),
            input_len: Some(first.shape.input_len),
            output_len: Some(first.shape.output_len),
        })
    }
}

/// How much longer a step is under the profiler, and what the step is without it.
///
/// ```text
/// profiled   |== GPU ==|........... idle ...........|   period, of which gpu_busy
/// without    |== GPU ==|... idle ...|                   TPOT = period / ratio
/// ```
///
/// A profiler slows the host; what runs on the GPU takes as long as without. So the GPU's busy time
/// holds for the step without the profiler too, and what is left of TPOT is its idle time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Dilation {
    /// Median period of the steps, under the profiler.
    pub period_ns: f64,
    /// Median TPOT without a profiler.
    pub tpot_ns: f64,
    /// `period_ns / tpot_ns`.
    pub ratio: f64,
    /// What the profiler adds to a step: `period_ns - tpot_ns`; negative when steps under the profiler
    /// were shorter.
    pub added_ns: f64,
    /// Median time of a step in which its GPU is busy; `null` when not known.
    pub gpu_busy_ns: Option<f64>,
    /// Idle time of the GPU in a step without the profiler: `tpot_ns - gpu_busy_ns`, at least 0.
    pub idle_ns: Option<f64>,
    /// Tokens per second without the profiler, by TPOT and batch size; `null` when that is not known.
    pub tokens_per_s: Option<f64>,
}

/// A step cannot be shorter than its GPU works, but for what another run may differ by.
const WORK_TOLERANCE: f64 = 1.1;
/// A profiler makes no step faster: servers without one were measured to take up to 1.2 times as long
/// by chance.
const MOST_SLOWER: f64 = 3.0;

impl Dilation {
    /// What `baseline` says about the selected steps.
    ///
    /// # Errors
    /// Why it says nothing about them: they are no decode steps, of another batch size, yield more
    /// than one token per request, or cannot take as long: their GPU works for longer, or they are
    /// far shorter although a profiler slowed them.
    pub fn of(steps: &StepTable, ledger: &Ledger, baseline: &Baseline) -> Result<Self, String> {
        let (Some(selected), Some(period)) = (&steps.selected, steps.period_ns) else {
            return Err("there are no steps to compare TPOT with".to_owned());
        };
        if let Some(name) = &baseline.speculative {
            return Err(format!("with speculation ({name}) a step yields more than one token"));
        }
        if ["extend", "mixed", "idle", "verify", "draft"].contains(&selected.kind.as_str()) {
            return Err(format!("TPOT is about decode steps, not {} steps", selected.kind));
        }
        let of_baseline = baseline.batch_size.map(u64::from);
        if let Some((steps, requests)) = selected.batch_size.zip(of_baseline)
            && steps != requests
        {
            return Err(format!(
                "the steps have batch size {steps}, TPOT was measured at {requests}"
            ));
        }
        let tpot_ns = baseline.tpot_ns.median;
        if tpot_ns <= 0.0 || period.median <= 0.0 {
            return Err("period or TPOT is zero".to_owned());
        }
        let gpu_busy_ns = steps.gpu_busy_ns.map(|busy| busy.median);
        // Kernels of collectives wait for other ranks, longer under a profiler.
        let works = |account: &&Account| {
            matches!(account.group, AccountGroup::Compute | AccountGroup::Memory)
        };
        let work_ns: f64 = ledger.accounts.iter().filter(works).map(|a| a.ns_per_step).sum();
        if work_ns > WORK_TOLERANCE * tpot_ns {
            return Err(format!(
                "it is not about these steps: the GPU computes and copies in one for {:.2} times \
                 as long",
                work_ns / tpot_ns
            ));
        }
        if tpot_ns > MOST_SLOWER * period.median {
            return Err(format!(
                "it is not about these steps: under the profiler, which slows them, they take {:.3} \
                 of it",
                period.median / tpot_ns
            ));
        }
        Ok(Self {
            period_ns: period.median,
            tpot_ns,
            ratio: period.median / tpot_ns,
            added_ns: period.median - tpot_ns,
            gpu_busy_ns,
            idle_ns: gpu_busy_ns.map(|busy| (tpot_ns - busy).max(0.0)),
            tokens_per_s: of_baseline
                .or(selected.batch_size)
                .map(|requests| requests as f64 * 1e9 / tpot_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steptally_trace_model::manifest::{LoadShape, Spread};

    fn measured(values: &[f64], input_len: u32) -> Option<manifest::Baseline> {
        let shape = LoadShape { batch_size: 1, input_len, output_len: 64 };
        let tpot_ns = Spread::of(values).unwrap_or_default();
        Some(manifest::Baseline { shape, tpot_ns, ..manifest::Baseline::default() })
    }

    #[test]
    fn what_was_measured_after_widens_the_spread() {
        let manifest = CaptureManifest {
            baseline_before: measured(&[10.0, 11.0, 12.0], 512),
            baseline_after: measured(&[9.0, 20.0], 512),
            ..CaptureManifest::default()
        };
        let baseline = Baseline::from_manifest(&manifest).unwrap();
        let expected = TpotSpread { n: 5, median: 11.0, min: 9.0, p90: Some(20.0), max: 20.0 };
        assert_eq!(baseline.tpot_ns, expected);
        assert_eq!((baseline.source.as_str(), baseline.input_len), ("manifest", Some(512)));
    }

    #[test]
    fn another_load_afterwards_and_no_requests_do_not_count() {
        let manifest = CaptureManifest {
            baseline_before: measured(&[], 512),
            baseline_after: measured(&[9.0], 512),
            ..CaptureManifest::default()
        };
        assert_eq!(Baseline::from_manifest(&manifest).unwrap().tpot_ns.median, 9.0);
        let manifest = CaptureManifest {
            baseline_before: measured(&[10.0], 512),
            baseline_after: measured(&[90.0], 8),
            ..CaptureManifest::default()
        };
        assert_eq!(Baseline::from_manifest(&manifest).unwrap().tpot_ns.max, 10.0);
        assert_eq!(Baseline::from_manifest(&CaptureManifest::default()), None);
    }
}
