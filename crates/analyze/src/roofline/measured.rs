//! What was measured on the real GPU, to be used instead of the figures of the data file.

use serde::{Deserialize, Serialize};

use super::hardware::Gpu;

/// Measured limits; what is absent falls back to the data file. Unknown fields are ignored, so the
/// result file of a benchmark may hold more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Measured {
    /// The device's own name.
    pub device: Option<String>,
    /// Device memory bandwidth in bytes a second: read plus written bytes of a large copy, by its
    /// time.
    pub copy_bytes_per_s: Option<f64>,
    /// Best BF16 matrix product rate in FLOP/s.
    pub bf16_flops: Option<f64>,
    /// Best FP8 matrix product rate in FLOP/s.
    pub fp8_flops: Option<f64>,
    /// Best FP4 matrix product rate in FLOP/s.
    pub fp4_flops: Option<f64>,
    /// All-reduce times by message size and number of ranks.
    pub all_reduce: Vec<MeasuredAllReduce>,
    /// The type of the model in whose shapes operations were measured.
    pub model: Option<String>,
    /// Tokens of the step that they were measured for.
    pub batch: Option<u64>,
    /// Ranks that its shapes are split over.
    pub tp: Option<u64>,
    /// Operations measured alone. They say what a step's kernels take, and are no limit.
    pub measurements: Vec<MeasuredOperation>,
}

/// One operation measured alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MeasuredOperation {
    /// Group of operations: `gemm`, `moe-gemm`, `norm`, `rope`, `routing`.
    pub group: String,
    /// What it is, and in which type: `o_proj bf16`.
    pub name: String,
    /// In which shape: `m=1 n=2048 k=2048`.
    #[serde(default)]
    pub shape: String,
    /// Median time.
    pub median_ns: f64,
}

/// One measured all-reduce.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MeasuredAllReduce {
    /// GPUs that took part.
    pub ranks: u32,
    /// Size of the reduced vector on one rank.
    pub message_bytes: u64,
    /// Median time.
    pub time_ns: f64,
}

/// Why a file of measurements cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MeasuredError {
    /// It is not JSON, or a field has another type.
    #[error("measurements: {0}")]
    Json(#[from] serde_json::Error),
    /// None of the figures that a benchmark writes is there.
    #[error("not a `steptally bench` file: none of its figures is in it")]
    Nothing,
    /// A figure is not a positive number.
    #[error("measurements: `{field}` is {value}, not a positive number")]
    NotPositive {
        /// The field's name.
        field: &'static str,
        /// Its value.
        value: f64,
    },
}

impl Measured {
    /// Reads measurements from JSON.
    ///
    /// # Errors
    /// [`MeasuredError`] names the line or the field.
    pub fn parse(json: &str) -> Result<Self, MeasuredError> {
        let measured: Self = serde_json::from_str(json)?;
        let single = [
            ("copy_bytes_per_s", measured.copy_bytes_per_s),
            ("bf16_flops", measured.bf16_flops),
            ("fp8_flops", measured.fp8_flops),
            ("fp4_flops", measured.fp4_flops),
        ];
        let times = measured.all_reduce.iter().map(|a| ("all_reduce.time_ns", Some(a.time_ns)));
        let medians = measured.measurements.iter();
        let medians = medians.map(|m| ("measurements.median_ns", Some(m.median_ns)));
        for (field, value) in single.iter().copied().chain(times).chain(medians) {
            if let Some(value) = value.filter(|v| !(v.is_finite() && *v > 0.0)) {
                return Err(MeasuredError::NotPositive { field, value });
            }
        }
        let has_figure = single.iter().any(|(_, value)| value.is_some());
        if !has_figure && measured.all_reduce.is_empty() && measured.measurements.is_empty() {
            return Err(MeasuredError::Nothing);
        }
        Ok(measured)
    }

    /// Says so when the figures are of another kind of GPU than `gpu`.
    #[must_use]
    pub fn of_other_gpu(&self, gpu: &Gpu) -> Option<String> {
        let device = self.device.as_deref().filter(|device| !gpu.is_called(device))?;
        Some(format!("the measurements are of {device}, which is no {}", gpu.name))
    }

    /// Time of an all-reduce of `message_bytes` over `ranks`, in nanoseconds: linear between the
    /// measured sizes, the smallest one's time below them, the largest one's bandwidth above.
    /// `None` when nothing was measured over that number of ranks.
    #[must_use]
    pub fn all_reduce_ns(&self, ranks: u32, message_bytes: f64) -> Option<f64> {
        let mut points: Vec<(f64, f64)> = self
            .all_reduce
            .iter()
            .filter(|a| a.ranks == ranks)
            .map(|a| (a.message_bytes as f64, a.time_ns))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (&(first_bytes, first_ns), &(last_bytes, last_ns)) = (points.first()?, points.last()?);
        if message_bytes <= first_bytes {
            return Some(first_ns);
        }
        if message_bytes >= last_bytes {
            return Some(last_ns * message_bytes / last_bytes);
        }
        let above = points.partition_point(|p| p.0 <= message_bytes);
        let ((low, low_ns), (high, high_ns)) = (points[above - 1], points[above]);
        Some(low_ns + (high_ns - low_ns) * (message_bytes - low) / (high - low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_sizes_are_linear() {
        let measured = Measured::parse(
            r#"{"device": "X", "spread": 1, "all_reduce": [
                {"ranks": 2, "message_bytes": 3000, "time_ns": 5000},
                {"ranks": 2, "message_bytes": 1000, "time_ns": 4000},
                {"ranks": 8, "message_bytes": 1000, "time_ns": 9000}]}"#,
        )
        .unwrap();
        assert_eq!(measured.all_reduce_ns(2, 10.0), Some(4000.0));
        assert_eq!(measured.all_reduce_ns(2, 1500.0), Some(4250.0));
        assert_eq!(measured.all_reduce_ns(2, 6000.0), Some(10_000.0));
        assert_eq!(measured.all_reduce_ns(4, 1500.0), None);
    }

    #[test]
    fn bad_measurements_name_the_field() {
        let error = Measured::parse(r#"{"bf16_flops": -1.0}"#).unwrap_err();
        assert_eq!(error.to_string(), "measurements: `bf16_flops` is -1, not a positive number");
        let error = Measured::parse("{").unwrap_err().to_string();
        assert!(error.starts_with("measurements: EOF"), "{error}");
    }

    #[test]
    fn other_json_is_no_file_of_measurements() {
        let empty = r#"{"schema_version": 1, "device": "X", "bf16_flops": null, "all_reduce": []}"#;
        for other in ["{}", "[]", r#"{"model_type": "qwen3_moe", "hidden_size": 64}"#, empty] {
            let error = Measured::parse(other).unwrap_err().to_string();
            assert!(error.starts_with("not a `steptally bench` file"), "{other}: {error}");
        }
    }

    #[test]
    fn another_gpu_is_told_by_its_name() {
        let hardware = crate::roofline::Hardware::built_in().unwrap();
        let of = |device: &str| Measured { device: Some(device.to_owned()), ..Measured::default() };
        let gpu = |name| hardware.find(name).unwrap();
        assert_eq!(of("NVIDIA H200").of_other_gpu(gpu("H200")), None);
        assert_eq!(Measured::default().of_other_gpu(gpu("H200")), None);
        let other = of("NVIDIA H200").of_other_gpu(gpu("B200")).unwrap();
        assert_eq!(other, "the measurements are of NVIDIA H200, which is no B200 SXM");
        assert!(of("NVIDIA H100 PCIe").of_other_gpu(gpu("H100")).is_some());
    }
}
