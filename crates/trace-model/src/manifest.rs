//! The manifest of a capture: what is needed to trust a capture, and to repeat it.
//!
//! Written as `manifest.json` beside the traces, from the first moment of a capture on. Lengths are
//! in nanoseconds, sizes in bytes, points in time in nanoseconds since the Unix epoch. What is
//! unknown is `null`. Keys, tokens and environments are never in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the JSON form. It grows by one whenever a key goes away or changes its meaning.
pub const MANIFEST_VERSION: u32 = 1;

/// How a capture ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureOutcome {
    /// It has not ended, or its process was killed.
    #[default]
    InProgress,
    /// Every expected trace is there, and verification found nothing wrong.
    Complete,
    /// Something went wrong: see [`CaptureManifest::problems`].
    Failed,
    /// The user stopped it.
    Interrupted,
}

/// Everything about one capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureManifest {
    /// [`MANIFEST_VERSION`].
    pub manifest_version: u32,
    /// Name and version of the program that captured.
    pub tool: String,
    /// How it ended.
    pub outcome: CaptureOutcome,
    /// The phase that was reached last.
    pub phase: String,
    /// Whether the server was a replay of a recording, not an engine on a GPU.
    pub replay: bool,
    /// The command line, redacted.
    pub command: Vec<String>,
    /// The server, once it is known.
    pub server: Option<CapturedServer>,
    /// GPUs and driver of this machine, when the server runs here.
    pub gpus: Vec<CapturedGpu>,
    /// What was asked of the profiler.
    pub profiler: Option<ProfilerRequest>,
    /// The load that ran during the window.
    pub load: Option<LoadShape>,
    /// Requests before the capture, without a profiler.
    pub baseline_before: Option<Baseline>,
    /// Requests after the capture, without a profiler.
    pub baseline_after: Option<Baseline>,
    /// Whether the server is as fast after the capture as before.
    pub speed_after: Option<SpeedAfter>,
    /// What happened, in order.
    pub events: Vec<CaptureEvent>,
    /// Traces that are expected, one label per rank (`TP-0`).
    pub expected_ranks: Vec<String>,
    /// Those of them that did not come, or not whole.
    pub missing_ranks: Vec<String>,
    /// The files.
    pub files: Vec<CapturedFile>,
    /// What the check of the traces found.
    pub verification: Option<Verification>,
    /// What went wrong.
    pub problems: Vec<CaptureProblem>,
}

/// The server that was captured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapturedServer {
    /// Where it was reached, without credentials.
    pub url: String,
    /// `sglang`, `vllm`, `tensorrt_llm` or `llama_cpp`.
    pub engine: String,
    /// Its version.
    pub version: Option<String>,
    /// The model's path or name.
    pub model: Option<String>,
    /// The model's type and architectures, as far as the server says.
    pub model_config: BTreeMap<String, serde_json::Value>,
    /// Size of tensor, data, pipeline and expert parallelism, by `tp`, `dp`, `pp`, `ep`.
    pub parallel: BTreeMap<String, u32>,
    /// Tokens that the KV cache holds.
    pub kv_token_capacity: Option<u64>,
    /// Whether decode steps are CUDA graphs.
    pub cuda_graphs: Option<bool>,
    /// The algorithm of speculative decoding; `null` when there is none or it is not known.
    pub speculative: Option<String>,
    /// The server's own arguments, redacted.
    pub args: BTreeMap<String, serde_json::Value>,
}

/// One GPU of this machine, as the driver describes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapturedGpu {
    /// Ordinal.
    pub index: String,
    /// Product name.
    pub name: String,
    /// Version of the driver.
    pub driver: String,
    /// Clock of the multiprocessors when asked, with its unit.
    pub sm_clock: String,
    /// Clock of the memory when asked, with its unit.
    pub memory_clock: String,
    /// Power limit, with its unit.
    pub power_limit: String,
}

/// What was asked of the profiler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfilerRequest {
    /// `sglang_endpoint`, `vllm_endpoint` or `torch_hook`.
    pub backend: String,
    /// Steps that were wanted.
    pub steps: u32,
    /// What was sent.
    pub body: serde_json::Value,
}

/// Shape of a load: so many requests at once, of so many tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadShape {
    /// Requests at the same time.
    pub batch_size: u32,
    /// Prompt tokens of each.
    pub input_len: u32,
    /// Tokens that each generates.
    pub output_len: u32,
}

/// Latencies of requests without a profiler, as their sender sees them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Shape of the load.
    pub shape: LoadShape,
    /// Time to the first token, per request.
    pub ttft_ns: Spread,
    /// Times between two tokens of one request, over all requests.
    pub itl_ns: Spread,
    /// Time per output token of a request: (time to the last token - time to the first) / (N - 1).
    pub tpot_ns: Spread,
    /// Tokens of all requests over the time from the first request to the last token.
    pub tokens_per_s: f64,
    /// Requests that ended well.
    pub requests: u64,
    /// Requests that did not.
    pub failed_requests: u64,
}

/// Whether a server is as fast after a capture as before.
///
/// Two medians are apart when they differ by more than the spread of either side,
/// `(p90 - min) / 2`, and by more than 2 % of the first, by which runs of one server differ anyhow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpeedAfter {
    /// The outcome.
    pub verdict: SpeedVerdict,
    /// Change of the median TPOT over its value before; above 0 it is slower.
    pub change_ratio: f64,
    /// Changes up to this share of the median before are noise.
    pub noise_ratio: f64,
}

/// How TPOT after a capture compares with TPOT before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpeedVerdict {
    /// They do not differ by more than noise.
    WithinNoise,
    /// Tokens take longer than before.
    Slower,
    /// Tokens take less time than before.
    Faster,
}

impl SpeedAfter {
    /// Least share of the median before that is more than noise.
    const LEAST_NOISE: f64 = 0.02;

    /// Compares two baselines; `None` when they are of different loads or one has no requests.
    #[must_use]
    pub fn of(before: &Baseline, after: &Baseline) -> Option<Self> {
        let (a, b) = (before.tpot_ns, after.tpot_ns);
        if before.shape != after.shape || a.n == 0 || b.n == 0 || a.median <= 0.0 {
            return None;
        }
        let spread = |of: Spread| (of.p90 - of.min) / 2.0;
        let noise_ratio = (spread(a).max(spread(b)) / a.median).max(Self::LEAST_NOISE);
        let change_ratio = (b.median - a.median) / a.median;
        let verdict = match change_ratio {
            more if more > noise_ratio => SpeedVerdict::Slower,
            less if less < -noise_ratio => SpeedVerdict::Faster,
            _ => SpeedVerdict::WithinNoise,
        };
        Some(Self { verdict, change_ratio, noise_ratio })
    }
}

/// A distribution, by nearest rank except the median, which is the mean of the middle two for an
/// even `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of values.
    pub n: u64,
    /// Median.
    pub median: f64,
    /// Mean.
    pub mean: f64,
    /// Smallest.
    pub min: f64,
    /// 90th percentile.
    pub p90: f64,
    /// Largest.
    pub max: f64,
}

impl Spread {
    /// The distribution of `values`; `None` when there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let n = sorted.len();
        let median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
        Some(Self {
            n: n as u64,
            median,
            mean: sorted.iter().sum::<f64>() / n as f64,
            min,
            p90: sorted[(n * 9).div_ceil(10) - 1],
            max,
        })
    }
}

/// Something that happened during a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaptureEvent {
    /// When, since the Unix epoch.
    pub at_ns: i64,
    /// The phase it happened in.
    pub phase: String,
    /// What.
    pub what: String,
}

/// A file of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedFile {
    /// Path within the capture's folder.
    pub path: String,
    /// Size.
    pub bytes: u64,
    /// SHA-256 of its content, in hexadecimal digits.
    pub sha256: String,
    /// Label of the rank that wrote it (`TP-0`).
    pub rank: Option<String>,
    /// Whether it is whole: the compressed stream ends, and its checksum is right.
    pub complete: bool,
}

/// What the check of the traces found, right after the capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verification {
    /// Whether nothing was found that makes the capture useless.
    pub passed: bool,
    /// Steps by kind, over all ranks.
    pub steps: BTreeMap<String, u64>,
    /// Kernels, over all ranks.
    pub kernels: u64,
    /// Median period of the steps, under the profiler.
    pub period_ns: Option<f64>,
    /// That period over the TPOT without a profiler, when both are known.
    pub dilation_ratio: Option<f64>,
}

/// Something that went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureProblem {
    /// Stable code, such as `missing_rank`.
    pub code: String,
    /// What.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(tpot_ns: &[f64]) -> Baseline {
        Baseline { tpot_ns: Spread::of(tpot_ns).unwrap_or_default(), ..Baseline::default() }
    }

    #[test]
    fn as_fast_as_before_or_not() {
        let of = |before: &[f64], after: &[f64]| {
            SpeedAfter::of(&baseline(before), &baseline(after)).unwrap()
        };
        // Spreads (110 - 90) / 2 = 10 and (115 - 105) / 2 = 5 of a median of 100: 10 %. 110 is 10 % more.
        let before = [90.0, 100.0, 110.0];
        let same = of(&before, &[105.0, 110.0, 115.0]);
        assert_eq!((same.verdict, same.noise_ratio), (SpeedVerdict::WithinNoise, 0.1));
        assert_eq!(same.change_ratio, 0.1);
        let slower = of(&before, &[106.0, 111.0, 116.0]);
        assert_eq!((slower.verdict, slower.change_ratio), (SpeedVerdict::Slower, 0.11));
        let faster = of(&before, &[84.0, 89.0, 94.0]);
        assert_eq!((faster.verdict, faster.change_ratio), (SpeedVerdict::Faster, -0.11));
        // The wider spread counts: (140 - 100) / 2 of 100 is 20 %, and 120 is within that.
        let wide = of(&[100.0, 100.0, 100.0], &[100.0, 120.0, 140.0]);
        assert_eq!((wide.verdict, wide.noise_ratio), (SpeedVerdict::WithinNoise, 0.2));
        // Without a spread 2 % are noise.
        let still = |after: f64| of(&[100.0, 100.0], &[after, after]).verdict;
        assert_eq!(still(102.0), SpeedVerdict::WithinNoise);
        assert_eq!(still(102.5), SpeedVerdict::Slower);
    }

    #[test]
    fn what_cannot_be_compared() {
        assert_eq!(SpeedAfter::of(&baseline(&[1.0]), &baseline(&[])), None);
        assert_eq!(SpeedAfter::of(&baseline(&[0.0]), &baseline(&[1.0])), None);
        let mut other = baseline(&[1.0]);
        other.shape.batch_size = 8;
        assert_eq!(SpeedAfter::of(&baseline(&[1.0]), &other), None);
    }

    #[test]
    fn spread_of_four() {
        // Sorted 1 2 4 9: median (2 + 4) / 2, mean 16 / 4, 90 % of 4 is 3.6: the 4th value.
        let spread = Spread::of(&[4.0, 1.0, 9.0, 2.0]).unwrap();
        assert_eq!((spread.n, spread.median, spread.mean), (4, 3.0, 4.0));
        assert_eq!((spread.min, spread.p90, spread.max), (1.0, 9.0, 9.0));
        assert_eq!(Spread::of(&[]), None);
    }
}
