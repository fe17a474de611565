//! What was measured: a file that `steptally roofline --measured` reads.

use schemars::JsonSchema;
use serde::Serialize;

use crate::gpu::DeviceFacts;
use crate::stats::Spread;

/// Version of the file. It grows by one whenever a key goes away or changes its meaning.
pub const BENCH_SCHEMA_VERSION: u32 = 1;

/// All that one run measured. The first keys are those by which a roofline replaces figures of data
/// sheets; what was not measured is `null`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BenchResult {
    /// [`BENCH_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The first device's own name.
    pub device: Option<String>,
    /// Read plus written bytes a second of the fastest large copy.
    pub copy_bytes_per_s: Option<f64>,
    /// FLOP/s of the fastest BF16 product.
    pub bf16_flops: Option<f64>,
    /// FLOP/s of the fastest FP8 product.
    pub fp8_flops: Option<f64>,
    /// FLOP/s of the fastest FP4 product.
    pub fp4_flops: Option<f64>,
    /// All-reduces by size and number of ranks.
    pub all_reduce: Vec<AllReduce>,
    /// Version of CUDA that the driver supports, 1000 x major + 10 x minor.
    pub driver_cuda_version: i32,
    /// The devices.
    pub devices: Vec<DeviceFacts>,
    /// In whose shapes was measured.
    pub model: String,
    /// Tokens of a step.
    pub batch: u64,
    /// Ranks that the shapes are split over.
    pub tp: u64,
    /// Every measurement.
    pub measurements: Vec<Measurement>,
    /// What could not be measured, and why.
    pub skipped: Vec<Skipped>,
}

/// An all-reduce in BF16 over all devices.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AllReduce {
    /// Devices that took part.
    pub ranks: u32,
    /// Size of the vector on each.
    pub message_bytes: u64,
    /// Median time of one.
    pub time_ns: f64,
    /// A tenth of the samples is below.
    pub p10_ns: f64,
    /// A tenth of the samples is above.
    pub p90_ns: f64,
}

/// A group of measurements that can be asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Copies within the device.
    Copy,
    /// Dense matrix products.
    Gemm,
    /// The routed experts' matrix products.
    MoeGemm,
    /// RMSNorm.
    Norm,
    /// Rotary positions.
    Rope,
    /// Top-k, sorting by expert and gathering of rows.
    Routing,
    /// Conversions between types.
    Cast,
    /// Rows of a KV cache by index.
    Gather,
    /// Launches, graphs, synchronisation, small copies to the host.
    Launch,
    /// All-reduce between the devices.
    AllReduce,
}

impl Group {
    /// All of them, in the order in which they run.
    pub const ALL: [Self; 10] = [
        Self::Copy,
        Self::Gemm,
        Self::MoeGemm,
        Self::Norm,
        Self::Rope,
        Self::Routing,
        Self::Cast,
        Self::Gather,
        Self::Launch,
        Self::AllReduce,
    ];

    /// Its name on the command line and in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Gemm => "gemm",
            Self::MoeGemm => "moe-gemm",
            Self::Norm => "norm",
            Self::Rope => "rope",
            Self::Routing => "routing",
            Self::Cast => "cast",
            Self::Gather => "gather",
            Self::Launch => "launch",
            Self::AllReduce => "all-reduce",
        }
    }

    /// The group of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }
}

/// One thing that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Measurement {
    /// Which group it belongs to.
    pub group: Group,
    /// What it is.
    pub name: String,
    /// In which shape.
    pub shape: String,
    /// Time of one operation.
    #[serde(flatten)]
    pub time: Spread,
    /// What one operation must move and compute.
    pub work: Work,
    /// `memory_bytes / median`; `null` when no memory traffic is counted.
    pub bytes_per_s: Option<f64>,
    /// `flops / median`; `null` without any.
    pub flops_per_s: Option<f64>,
    /// The least time that the data sheet allows, by the median; `null` when no limit is known.
    pub limit_ratio: Option<f64>,
    /// Elements that were compared with the reference; all of them agreed.
    pub checked: u64,
}

/// What an operation must do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Work {
    /// Bytes to and from device memory.
    pub memory_bytes: u64,
    /// Floating-point operations.
    pub total_flops: u64,
    /// In which type the matrix units compute, if they do.
    pub compute: Option<Compute>,
    /// Bytes that a device sends to its peers.
    pub link_bytes: u64,
}

/// The type of a matrix product's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compute {
    /// 16 bits.
    Bf16,
    /// 8 bits, E4M3.
    Fp8,
    /// 4 bits, E2M1 with a scale for each 16.
    Fp4,
}

/// What a device can do at most, by its data sheet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Bytes a second of device memory.
    pub memory_bytes_per_s: Option<f64>,
    /// FLOP/s in BF16.
    pub bf16_flops: Option<f64>,
    /// FLOP/s in FP8.
    pub fp8_flops: Option<f64>,
    /// FLOP/s in FP4.
    pub fp4_flops: Option<f64>,
    /// Bytes a second that a device sends to its peers.
    pub link_bytes_per_s: Option<f64>,
}

/// What could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Skipped {
    /// Which group.
    pub group: Group,
    /// What of it; empty for all.
    pub name: String,
    /// Why.
    pub reason: String,
}

impl Limits {
    /// The least time for `work`: the longest of bytes over bandwidth, FLOP over peak and bytes over
    /// the link. `None` when none of them is known, or there is no work.
    #[must_use]
    pub fn least_ns(&self, work: &Work) -> Option<f64> {
        let peak = match work.compute {
            Some(Compute::Bf16) => self.bf16_flops,
            Some(Compute::Fp8) => self.fp8_flops,
            Some(Compute::Fp4) => self.fp4_flops,
            None => None,
        };
        let over = |amount: u64, rate: Option<f64>| {
            let rate = rate.filter(|rate| amount > 0 && *rate > 0.0)?;
            Some(amount as f64 / rate * 1e9)
        };
        let times = [
            over(work.memory_bytes, self.memory_bytes_per_s),
            over(work.total_flops, peak),
            over(work.link_bytes, self.link_bytes_per_s),
        ];
        times.into_iter().flatten().max_by(f64::total_cmp)
    }
}

impl Measurement {
    /// Puts a time in relation to its work and to the limits.
    #[must_use]
    pub fn new(
        group: Group,
        name: impl Into<String>,
        shape: impl Into<String>,
        time: Spread,
        work: Work,
        limits: &Limits,
        checked: u64,
    ) -> Self {
        let rate = |amount: u64| (amount > 0).then(|| amount as f64 / time.median_ns * 1e9);
        Self {
            group,
            name: name.into(),
            shape: shape.into(),
            bytes_per_s: rate(work.memory_bytes),
            flops_per_s: rate(work.total_flops),
            limit_ratio: limits.least_ns(&work).map(|least| least / time.median_ns),
            time,
            work,
            checked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Spread = Spread { n: 25, median_ns: 2000.0, p10_ns: 1900.0, p90_ns: 2200.0 };
    const LIMITS: Limits = Limits {
        memory_bytes_per_s: Some(4e12),
        bf16_flops: Some(1e15),
        fp8_flops: Some(2e15),
        fp4_flops: None,
        link_bytes_per_s: Some(4e11),
    };

    fn ratio(work: Work) -> Option<f64> {
        Measurement::new(Group::Gemm, "x", "", TIME, work, &LIMITS, 0).limit_ratio
    }

    #[test]
    fn the_limit_is_the_longest_of_its_parts() {
        // 4 MB / 4 TB/s = 1 us of 2 us; 1.5e9 FLOP / 1 PFLOP/s = 1.5 us, in FP8 0.75 us
        let work = Work { memory_bytes: 4_000_000, total_flops: 1_500_000_000, ..Work::default() };
        assert_eq!(ratio(work), Some(0.5));
        assert_eq!(ratio(Work { compute: Some(Compute::Bf16), ..work }), Some(0.75));
        assert_eq!(ratio(Work { compute: Some(Compute::Fp8), ..work }), Some(0.5));
        assert_eq!(ratio(Work { compute: Some(Compute::Fp4), ..work }), Some(0.5));
        // 400 kB / 400 GB/s = 1 us
        assert_eq!(ratio(Work { link_bytes: 400_000, ..Work::default() }), Some(0.5));
        assert_eq!(ratio(Work::default()), None);
    }

    #[test]
    fn rates_are_by_the_median() {
        let work = Work { memory_bytes: 4_000, ..Work::default() };
        let measured = Measurement::new(Group::Copy, "x", "", TIME, work, &LIMITS, 1);
        assert_eq!((measured.bytes_per_s, measured.flops_per_s), (Some(2e9), None));
    }

    #[test]
    fn groups_are_found_by_the_name_in_the_file() {
        for group in Group::ALL {
            assert_eq!(Group::by_name(group.name()), Some(group));
            assert_eq!(serde_json::to_value(group).unwrap(), group.name());
        }
        assert_eq!(Group::by_name("wheels"), None);
    }
}
