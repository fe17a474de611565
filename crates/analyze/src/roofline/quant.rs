//! In which precision each module's weights are stored.
//!
//! Read from `quantization_config` in `config.json` (fp8, mxfp4, compressed-tensors, ModelOpt, AWQ,
//! GPTQ, bitsandbytes) or from ModelOpt's separate `hf_quant_config.json`. A module that a checkpoint
//! excludes stays in the model's own type, so one model may hold several precisions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::config::ConfigError;
use super::pattern::Pattern;

/// The type that a matrix product may run in, slowest first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ComputeType {
    /// 16-bit floats (and whatever is widened to them).
    Bf16,
    /// 8-bit floats or integers, which run at one rate.
    Fp8,
    /// 4-bit floats.
    Fp4,
}

/// How one value is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Format {
    /// Its name, such as `nvfp4`.
    pub name: String,
    /// Bits of one value with its share of the scales.
    pub bits: f64,
    /// The fastest type that a product with it can run in.
    pub compute: ComputeType,
}

impl Format {
    fn new(name: &str, bits: f64, compute: ComputeType) -> Self {
        Self { name: name.to_owned(), bits, compute }
    }

    /// 16-bit floats.
    #[must_use]
    pub fn bf16() -> Self {
        Self::new("bf16", 16.0, ComputeType::Bf16)
    }

    /// 32-bit floats; products are counted at the 16-bit rate.
    #[must_use]
    pub fn fp32() -> Self {
        Self::new("fp32", 32.0, ComputeType::Bf16)
    }

    /// FP8 with scales per tensor or channel, which are too few to count.
    #[must_use]
    pub fn fp8() -> Self {
        Self::new("fp8", 8.0, ComputeType::Fp8)
    }

    /// FP8 with one 32-bit scale per block of `rows x columns` weights: 8 + 32 / (rows x columns).
    #[must_use]
    pub fn fp8_block(rows: u64, columns: u64) -> Self {
        let block = (rows.max(1) as f64) * (columns.max(1) as f64);
        Self::new(&format!("fp8 {rows}x{columns}"), 8.0 + 32.0 / block, ComputeType::Fp8)
    }

    /// NVFP4: 4-bit floats with one FP8 scale per `group` (16): 4 + 8 / group = 4.5 bits.
    #[must_use]
    pub fn nvfp4(group: u64) -> Self {
        Self::new("nvfp4", 4.0 + 8.0 / group.max(1) as f64, ComputeType::Fp4)
    }

    /// OCP microscaling 4-bit floats with one 8-bit scale per 32: 4 + 8 / 32 = 4.25 bits.
    #[must_use]
    pub fn mxfp4() -> Self {
        Self::new("mxfp4", 4.25, ComputeType::Fp4)
    }

    /// OCP microscaling 8-bit floats with one 8-bit scale per 32: 8 + 8 / 32 = 8.25 bits.
    #[must_use]
    pub fn mxfp8() -> Self {
        Self::new("mxfp8", 8.25, ComputeType::Fp8)
    }

    /// Integer weights with one 16-bit scale per `group`, widened to 16 bits for the product:
    /// bits + 16 / group.
    #[must_use]
    pub fn weight_only(bits: u64, group: Option<u64>) -> Self {
        let scale = group.filter(|g| *g > 0).map_or(0.0, |g| 16.0 / g as f64);
        Self::new(&format!("int{bits}"), bits as f64 + scale, ComputeType::Bf16)
    }

    /// 8-bit integers for weights and activations.
    #[must_use]
    pub fn int8() -> Self {
        Self::new("int8", 8.0, ComputeType::Fp8)
    }

    /// The format of a name as `--precision` or a config's `dtype` writes it.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name.to_lowercase().as_str() {
            "bf16" | "bfloat16" => Self::bf16(),
            "fp16" | "float16" | "half" => Self::new("fp16", 16.0, ComputeType::Bf16),
            "fp32" | "float32" | "float" => Self::fp32(),
            "fp8" | "fp8_e4m3" | "fp8_e5m2" | "float8_e4m3fn" => Self::fp8(),
            "nvfp4" | "fp4" => Self::nvfp4(16),
            "mxfp4" => Self::mxfp4(),
            "mxfp8" => Self::mxfp8(),
            "int8" => Self::int8(),
            "int4" => Self::weight_only(4, Some(128)),
            _ => return None,
        })
    }

    /// Bytes of one value.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.bits / 8.0
    }
}

/// One format and the modules that it applies to.
#[derive(Clone, Debug)]
struct Rule {
    /// `None`: every linear module.
    targets: Option<Vec<Pattern>>,
    format: Format,
}

/// The precision of a checkpoint's modules.
#[derive(Clone, Debug, Default)]
pub struct Quantization {
    method: Option<String>,
    rules: Vec<Rule>,
    excluded: Vec<Pattern>,
    /// Whether the output head is one of the modules that are quantised.
    converts_head: bool,
    cache: Option<Format>,
}

impl Quantization {
    /// The method's name, such as `nvfp4`; `None` for a checkpoint that is not quantised.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// The KV cache's format, if the checkpoint asks for one.
    #[must_use]
    pub fn cache(&self) -> Option<&Format> {
        self.cache.as_ref()
    }

    /// The format of a module (`model.layers.3.mlp.experts.0.gate_proj`), `None` when it is kept in
    /// the model's own type.
    #[must_use]
    pub fn format_of(&self, module: &str) -> Option<&Format> {
        if module == "lm_head" && !self.converts_head {
            return None;
        }
        if self.excluded.iter().any(|pattern| pattern.covers(module)) {
            return None;
        }
        let fits = |rule: &&Rule| match &rule.targets {
            None => true,
            Some(targets) => targets.iter().any(|pattern| pattern.covers(module)),
        };
        self.rules.iter().find(fits).map(|rule| &rule.format)
    }

    /// Reads `quantization_config` and, when given, `hf_quant_config.json`, which wins.
    pub(crate) fn read(
        config: Option<&Value>,
        separate: Option<&Map<String, Value>>,
    ) -> Result<Self, ConfigError> {
        if let Some(separate) = separate {
            let inner = separate.get("quantization").and_then(Value::as_object);
            return Self::modelopt(inner.unwrap_or(separate));
        }
        let Some(config) = config.and_then(Value::as_object) else {
            return Ok(Self::default());
        };
        let method = text(config, "quant_method").unwrap_or("").to_lowercase();
        let skipped = ["modules_to_not_convert", "ignored_layers", "ignore", "exclude"];
        let mut read = Self {
            method: Some(method.clone()),
            excluded: patterns(config, &skipped)?,
            cache: cache_scheme(config),
            ..Self::default()
        };
        let group = number(config, "group_size");
        let format = match method.as_str() {
            "fp8" | "fbgemm_fp8" => fp8_of(config),
            "mxfp4" => {
                let experts = Pattern::new("re:.*\\.experts(\\..*)?$")?;
                read.rules = vec![Rule { targets: Some(vec![experts]), format: Format::mxfp4() }];
                return Ok(read);
            }
            "modelopt" | "modelopt_fp4" | "modelopt_fp8" => return Self::modelopt(config),
            "compressed-tensors" | "compressed_tensors" => {
                read.converts_head = true;
                read.rules = group_rules(config)?;
                return Ok(read);
            }
            "awq" | "awq_marlin" | "gptq" | "gptq_marlin" | "auto-round" => {
                Format::weight_only(number(config, "bits").unwrap_or(4), group)
            }
            "bitsandbytes" if config.get("load_in_4bit") == Some(&Value::Bool(true)) => {
                // NF4, one 32-bit scale per 64 values
                Format::new("nf4", 4.5, ComputeType::Bf16)
            }
            "bitsandbytes" => Format::weight_only(8, None),
            _ => return Err(ConfigError::UnknownQuantization { method }),
        };
        read.rules = vec![Rule { targets: None, format }];
        Ok(read)
    }

    fn modelopt(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let algorithm = text(config, "quant_algo").unwrap_or("").to_uppercase();
        let group = number(config, "group_size");
        let mut rules = Vec::new();
        if algorithm == "MIXED_PRECISION" {
            let layers = config.get("quantized_layers").and_then(Value::as_object);
            for (module, how) in layers.into_iter().flatten() {
                let Some(how) = how.as_object() else { continue };
                let name = text(how, "quant_algo").unwrap_or("").to_uppercase();
                let format = modelopt_format(&name, number(how, "group_size").or(group))?;
                rules.push(Rule { targets: Some(vec![Pattern::new(module)?]), format });
            }
        } else if !algorithm.is_empty() {
            let group = group.or_else(|| nested_group_size(config));
            rules.push(Rule { targets: None, format: modelopt_format(&algorithm, group)? });
        }
        let cache = match text(config, "kv_cache_quant_algo").map(str::to_uppercase).as_deref() {
            Some("FP8") => Some(Format::fp8()),
            Some("NVFP4") => Some(Format::nvfp4(16)),
            Some("INT8") => Some(Format::int8()),
            _ => cache_scheme(config),
        };
        Ok(Self {
            method: (!algorithm.is_empty()).then(|| algorithm.to_lowercase()),
            rules,
            excluded: patterns(config, &["exclude_modules", "ignore"])?,
            converts_head: true,
            cache,
        })
    }
}

fn modelopt_format(algorithm: &str, group: Option<u64>) -> Result<Format, ConfigError> {
    Ok(match algorithm {
        "NVFP4" | "NVFP4_AWQ" | "W4A4_NVFP4" => Format::nvfp4(group.unwrap_or(16)),
        "W4A16_NVFP4" => {
            Format { compute: ComputeType::Bf16, ..Format::nvfp4(group.unwrap_or(16)) }
        }
        "MXFP4" | "W4A8_MXFP4_FP8" => Format::mxfp4(),
        "MXFP8" => Format::mxfp8(),
        "FP8" | "FP8_PER_CHANNEL_PER_TOKEN" => Format::fp8(),
        "FP8_PB_WO" | "FP8_PB_REAL" | "FP8_BLOCK_SCALES" => Format::fp8_block(128, 128),
        "W4A16_AWQ" | "W4A16" => Format::weight_only(4, group.or(Some(128))),
        "W4A8_AWQ" => {
            Format { compute: ComputeType::Fp8, ..Format::weight_only(4, group.or(Some(128))) }
        }
        "W8A16" => Format::weight_only(8, None),
        "INT8" | "W8A8" | "INT8_SQ" | "W8A8_SQ_PER_CHANNEL" => Format::int8(),
        other => {
            return Err(ConfigError::UnknownQuantization { method: other.to_lowercase() });
        }
    })
}

fn fp8_of(config: &Map<String, Value>) -> Format {
    let block = config.get("weight_block_size").and_then(Value::as_array);
    let sides: Vec<u64> = block.into_iter().flatten().filter_map(Value::as_u64).collect();
    match sides[..] {
        [rows, columns] => Format::fp8_block(rows, columns),
        _ => Format::fp8(),
    }
}

/// The groups of compressed-tensors: targets, and bits, type and group size of the weights.
fn group_rules(config: &Map<String, Value>) -> Result<Vec<Rule>, ConfigError> {
    let mut rules = Vec::new();
    let groups = config.get("config_groups").and_then(Value::as_object);
    for group in groups.into_iter().flatten().filter_map(|(_, g)| g.as_object()) {
        let Some(weights) = group.get("weights").and_then(Value::as_object) else {
            continue;
        };
        let acts = group.get("input_activations").and_then(Value::as_object);
        let act_bits = acts.and_then(|a| number(a, "num_bits"));
        let bits = number(weights, "num_bits").unwrap_or(8);
        let size = number(weights, "group_size");
        let float = text(weights, "type") == Some("float");
        let mut format = match (bits, float) {
            (4, true) if size == Some(32) => Format::mxfp4(),
            (4, true) => Format::nvfp4(size.unwrap_or(16)),
            (8, true) => match weights.get("block_structure").and_then(Value::as_array) {
                Some(_) => Format::fp8_block(128, 128),
                None => Format::fp8(),
            },
            (8, false) if act_bits == Some(8) => Format::int8(),
            (bits, _) => Format::weight_only(bits, size),
        };
        match act_bits {
            None => format.compute = ComputeType::Bf16,
            Some(8) => format.compute = ComputeType::Fp8,
            _ => {}
        }
        let targets = strings(group, "targets");
        let every = targets.is_empty() || targets.contains(&"Linear");
        let targets = match every {
            true => None,
            false => Some(targets.iter().map(|t| Pattern::new(t)).collect::<Result<_, _>>()?),
        };
        rules.push(Rule { targets, format });
    }
    // a rule for named modules goes before the one for all of them
    rules.sort_by_key(|rule| rule.targets.is_none());
    Ok(rules)
}

fn cache_scheme(config: &Map<String, Value>) -> Option<Format> {
    let scheme = config.get("kv_cache_scheme").and_then(Value::as_object)?;
    match number(scheme, "num_bits")? {
        8 if text(scheme, "type") == Some("int") => Some(Format::int8()),
        8 => Some(Format::fp8()),
        4 => Some(Format::nvfp4(16)),
        _ => None,
    }
}

fn nested_group_size(config: &Map<String, Value>) -> Option<u64> {
    let groups = config.get("config_groups")?.as_object()?;
    groups.values().find_map(|group| group.get("weights")?.get("group_size")?.as_u64())
}

fn patterns(config: &Map<String, Value>, fields: &[&str]) -> Result<Vec<Pattern>, ConfigError> {
    fields.iter().flat_map(|field| strings(config, field)).map(Pattern::new).collect()
}

fn strings<'a>(map: &'a Map<String, Value>, field: &str) -> Vec<&'a str> {
    let list = map.get(field).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn text<'a>(map: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    map.get(field).and_then(Value::as_str)
}

fn number(map: &Map<String, Value>, field: &str) -> Option<u64> {
    map.get(field).and_then(Value::as_u64)
}
