//! What GPUs can do at most: `data/hardware.toml`, every figure with its source.

use serde::Deserialize;

use super::measured::Measured;
use super::quant::ComputeType;

/// The text of the data file that is built in.
const BUILT_IN: &str = include_str!("../../data/hardware.toml");

/// A figure and where it is from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The figure, in the unit that its field's name states.
    pub value: f64,
    /// Who states it.
    pub source: String,
    /// What others state for the same thing.
    #[serde(default)]
    pub also: Vec<OtherFigure>,
}

/// What another source states.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherFigure {
    /// The figure.
    pub value: f64,
    /// Who states it.
    pub source: String,
}

/// One kind of GPU. Rates are decimal (1 GB = 1e9 bytes) and dense (no sparsity).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// The name to show.
    pub name: String,
    /// Names that it is found by.
    pub aliases: Vec<String>,
    /// Words that mark another variant, whose figures are not known here.
    #[serde(default)]
    pub not: Vec<String>,
    /// Device memory bandwidth in GB/s.
    pub memory_gb_s: Figure,
    /// BF16 tensor throughput in TFLOPS.
    pub bf16_tflops: Figure,
    /// FP8 tensor throughput in TFLOPS, absent where the GPU has none.
    pub fp8_tflops: Option<Figure>,
    /// FP4 tensor throughput in TFLOPS, absent where the GPU has none.
    pub fp4_tflops: Option<Figure>,
    /// What it sends to its peers of one node, one way, in GB/s.
    pub link_gb_s: Figure,
    /// Time of one small all-reduce in microseconds.
    pub all_reduce_us: Figure,
    /// Device memory in MiB.
    pub memory_mib: Figure,
    /// Board power in watts.
    pub power_w: Figure,
}

/// Figures that kernels typically reach; they are not limits.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Realism {
    /// Share of the memory bandwidth that kernels reach.
    pub memory_bandwidth_ratio: Figure,
    /// Constant time of a memory-bound kernel in microseconds.
    pub memory_latency_us: Figure,
}

/// All GPUs that are known.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Figures that kernels typically reach.
    pub realism: Realism,
    /// The GPUs.
    #[serde(rename = "gpu")]
    pub gpus: Vec<Gpu>,
}

/// Why a GPU's figures cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum HardwareError {
    /// No GPU, or more than one, fits the name.
    #[error(
        "unknown GPU `{name}`; known are {}\nhint: use one of these names, or give the bandwidth and \
         peaks that were measured on it",
        known.join(", ")
    )]
    Unknown {
        /// The name asked for.
        name: String,
        /// All names that are known.
        known: Vec<String>,
    },
    /// The data file cannot be read.
    #[error("hardware file: {0}")]
    Syntax(#[from] toml::de::Error),
}

impl Hardware {
    /// The GPUs that are built in.
    ///
    /// # Errors
    /// [`HardwareError::Syntax`] when the built-in file is broken, which its tests exclude.
    pub fn built_in() -> Result<Self, HardwareError> {
        Self::parse(BUILT_IN)
    }

    /// Reads a file of the same form as the built-in one.
    ///
    /// # Errors
    /// [`HardwareError::Syntax`] with the line and the field.
    pub fn parse(text: &str) -> Result<Self, HardwareError> {
        Ok(toml::from_str(text)?)
    }

    /// Finds a GPU by a loose name such as `H200`, `NVIDIA H200` or
    /// `NVIDIA RTX PRO 6000 Blackwell Server Edition`: all words of one of its aliases occur in the
    /// name, none of the words of another variant does. The alias with most words wins.
    ///
    /// # Errors
    /// [`HardwareError::Unknown`] with the names that are known.
    pub fn find(&self, name: &str) -> Result<&Gpu, HardwareError> {
        let asked = words(name);
        let fitting = self.gpus.iter().filter_map(|gpu| Some((gpu.fit(&asked)?, gpu)));
        let best = fitting.max_by_key(|f| f.0);
        best.map(|(_, gpu)| gpu).ok_or_else(|| HardwareError::Unknown {
            name: name.to_owned(),
            known: self.gpus.iter().map(|gpu| gpu.name.clone()).collect(),
        })
    }
}

impl Gpu {
    /// Whether `name` is one that this GPU is found by.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.fit(&words(name)).is_some()
    }

    /// How many words of an alias occur in a name; `None` when no alias does as a whole, or the name is
    /// another variant's.
    fn fit(&self, asked: &[String]) -> Option<usize> {
        if self.not.iter().any(|word| asked.contains(word)) {
            return None;
        }
        let aliases = self.aliases.iter().map(|alias| words(alias));
        aliases.filter(|alias| alias.iter().all(|w| asked.contains(w))).map(|a| a.len()).max()
    }

    /// Highest rate at which `compute` may run, in FLOP/s, and the type that it runs as: a GPU
    /// without the type runs the next wider one. Measured peaks come first.
    #[must_use]
    pub fn peak(&self, compute: ComputeType, measured: &Measured) -> (f64, ComputeType) {
        let tera = |figure: &Option<Figure>| figure.as_ref().map(|f| f.value * 1e12);
        let fp4 = measured.fp4_flops.or_else(|| tera(&self.fp4_tflops));
        let fp8 = measured.fp8_flops.or_else(|| tera(&self.fp8_tflops));
        let bf16 = measured.bf16_flops.unwrap_or(self.bf16_tflops.value * 1e12);
        let chain: &[(Option<f64>, ComputeType)] =
            &[(fp4, ComputeType::Fp4), (fp8, ComputeType::Fp8), (Some(bf16), ComputeType::Bf16)];
        let wanted = chain.iter().filter(|(_, candidate)| *candidate <= compute);
        let found = wanted.filter_map(|(rate, candidate)| Some(((*rate)?, *candidate))).next();
        found.unwrap_or((bf16, ComputeType::Bf16))
    }
}

/// Lower-case words of letters and digits.
fn words(name: &str) -> Vec<String> {
    let lower = name.to_lowercase();
    let split = lower.split(|c: char| !c.is_alphanumeric());
    split.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loose_names_find_their_gpu() {
        let hardware = Hardware::built_in().unwrap();
        for (asked, name) in [
            ("RTX PRO 6000", "RTX PRO 6000 Blackwell"),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell"),
            ("h200", "H200 SXM"),
            ("NVIDIA H200", "H200 SXM"),
            ("NVIDIA A100-SXM4-80GB", "A100 SXM 80 GB"),
            ("NVIDIA H100 80GB HBM3", "H100 SXM"),
            ("NVIDIA GB200", "GB200"),
            ("NVIDIA GeForce RTX 5090", "RTX 5090"),
            ("AMD Instinct MI300X", "MI300X"),
        ] {
            assert_eq!(hardware.find(asked).unwrap().name, name, "{asked}");
        }
    }

    #[test]
    fn another_variant_is_not_taken_for_the_known_one() {
        let hardware = Hardware::built_in().unwrap();
        for asked in ["NVIDIA H100 PCIe", "A100-PCIE-40GB", "RTX 6000 Ada", "RTX 4090 Laptop GPU"] {
            assert!(hardware.find(asked).is_err(), "{asked}");
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = Hardware::built_in().unwrap().find("TPU v7").unwrap_err().to_string();
        assert!(error.starts_with("unknown GPU `TPU v7`; known are RTX PRO 6000 Blackwell, A100"));
        assert!(error.contains("H200 SXM") && error.contains("hint: "), "{error}");
    }

    #[test]
    fn a_figure_without_a_source_is_refused() {
        let broken = BUILT_IN.replacen("source = ", "origin = ", 1);
        let error = Hardware::parse(&broken).unwrap_err().to_string();
        assert!(error.starts_with("hardware file: ") && error.contains("origin"), "{error}");
    }

    #[test]
    fn every_figure_is_positive_and_cited() {
        for gpu in Hardware::built_in().unwrap().gpus {
            let optional = gpu.fp8_tflops.iter().chain(&gpu.fp4_tflops);
            let figures = [&gpu.memory_gb_s, &gpu.bf16_tflops, &gpu.link_gb_s, &gpu.all_reduce_us];
            for figure in figures.into_iter().chain([&gpu.memory_mib, &gpu.power_w]).chain(optional)
            {
                assert!(figure.value > 0.0 && figure.source.len() > 5, "{}", gpu.name);
            }
        }
    }

    #[test]
    fn a_missing_type_runs_as_the_next_wider_one() {
        let hardware = Hardware::built_in().unwrap();
        let none = Measured::default();
        let peak = |name: &str, compute| hardware.find(name).unwrap().peak(compute, &none);
        assert_eq!(peak("B200", ComputeType::Fp4), (9e15, ComputeType::Fp4));
        assert_eq!(peak("H200", ComputeType::Fp4), (1.978e15, ComputeType::Fp8));
        assert_eq!(peak("A100", ComputeType::Fp4), (3.12e14, ComputeType::Bf16));
        assert_eq!(peak("H200", ComputeType::Bf16), (9.89e14, ComputeType::Bf16));
        let measured = Measured { bf16_flops: Some(7e14), ..Measured::default() };
        let h200 = hardware.find("H200").unwrap();
        assert_eq!(h200.peak(ComputeType::Bf16, &measured), (7e14, ComputeType::Bf16));
    }
}
