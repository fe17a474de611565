//! What was measured without a profiler.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steptally_trace_model::manifest::{self, CaptureManifest};

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
            batch_size: Some(first.shape.batch_size),
            input_len: Some(first.shape.input_len),
            output_len: Some(first.shape.output_len),
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
