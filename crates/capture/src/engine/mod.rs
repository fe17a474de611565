//! Which engine serves there, and what it says about itself.

mod other;
mod sglang;
mod vllm;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::Value;
use steptally_trace_model::manifest::CapturedServer;

use crate::error::{Failure, HttpError, HttpErrorKind};
use crate::http::{Client, Reply};
use crate::secret::Redactor;
use crate::version::Version;

/// A question about the server's state is answered within this.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(15);

/// A serving engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// SGLang.
    Sglang,
    /// vLLM.
    Vllm,
    /// TensorRT-LLM.
    TensorRtLlm,
    /// llama.cpp.
    LlamaCpp,
}

impl Engine {
    /// Its name in manifests.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
            Self::TensorRtLlm => "tensorrt_llm",
            Self::LlamaCpp => "llama_cpp",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sglang => "SGLang",
            Self::Vllm => "vLLM",
            Self::TensorRtLlm => "TensorRT-LLM",
            Self::LlamaCpp => "llama.cpp",
        })
    }
}

/// How a model is spread over GPUs. `None`: the server does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parallel {
    /// Tensor parallelism.
    pub tp: Option<u32>,
    /// Data parallelism.
    pub dp: Option<u32>,
    /// Pipeline parallelism.
    pub pp: Option<u32>,
    /// Expert parallelism, within the ranks of tensor parallelism.
    pub ep: Option<u32>,
    /// Whether data parallelism is of attention only, within the ranks of tensor parallelism.
    pub dp_attention: bool,
    /// Machines.
    pub nodes: Option<u32>,
}

/// What a server says about itself.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// The engine.
    pub engine: Engine,
    /// Its version as it writes it.
    pub version_text: Option<String>,
    /// The model's path or name.
    pub model: Option<String>,
    /// The name that requests must give, where they must.
    pub served_name: Option<String>,
    /// The model's type, architectures and the like.
    pub model_config: BTreeMap<String, Value>,
    /// Ranks.
    pub parallel: Parallel,
    /// Tokens that the KV cache holds.
    pub kv_token_capacity: Option<u64>,
    /// Longest sequence.
    pub context_length: Option<u64>,
    /// Requests that run at once, at most.
    pub max_running_requests: Option<u64>,
    /// Whether decode steps are CUDA graphs.
    pub cuda_graphs: Option<bool>,
    /// Algorithm of speculative decoding.
    pub speculative: Option<String>,
    /// Requests that are running or waiting.
    pub requests: Option<u64>,
    /// Whether only an admin key may profile.
    pub needs_admin_key: Option<bool>,
    /// Whether it can be profiled over HTTP; `None`: only trying would tell.
    pub profile_endpoint: Option<bool>,
    /// The server's arguments as it gives them: they may hold secrets.
    pub(crate) args: BTreeMap<String, Value>,
    /// Whether it is a replay of a recording.
    pub replay: bool,
    /// Whether it runs SGLang's second profiler (`SGLANG_PROFILE_V2`), as far as it says so.
    pub profile_v2: bool,
}

impl ServerInfo {
    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            engine,
            version_text: None,
            model: None,
            served_name: None,
            model_config: BTreeMap::new(),
            parallel: Parallel::default(),
            kv_token_capacity: None,
            context_length: None,
            max_running_requests: None,
            cuda_graphs: None,
            speculative: None,
            requests: None,
            needs_admin_key: None,
            profile_endpoint: None,
            args: BTreeMap::new(),
            replay: false,
            profile_v2: false,
        }
    }

    /// The version, when it can be read as numbers.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.version_text.as_deref().and_then(Version::parse)
    }

    /// The same for a manifest: without secrets.
    #[must_use]
    pub fn to_manifest(&self, client: &Client) -> CapturedServer {
        let mut args = Value::Object(self.args.clone().into_iter().collect());
        Redactor::new(client.secrets()).value(&mut args);
        let Parallel { tp, dp, pp, ep, .. } = self.parallel;
        let sizes = [("tp", tp), ("dp", dp), ("pp", pp), ("ep", ep)];
        CapturedServer {
            url: client.url(),
            engine: self.engine.code().to_owned(),
            version: self.version_text.clone(),
            model: self.model.clone(),
            model_config: self.model_config.clone(),
            parallel: sizes
                .into_iter()
                .filter_map(|(name, size)| Some((name.to_owned(), size?)))
                .collect(),
            kv_token_capacity: self.kv_token_capacity,
            cuda_graphs: self.cuda_graphs,
            speculative: self.speculative.clone(),
            args: match args {
                Value::Object(map) => map.into_iter().collect(),
                _ => BTreeMap::new(),
            },
        }
    }
}

/// Finds out which engine serves at `client`, and asks it about itself.
///
/// # Errors
/// When nothing answers, a key is wanted, or it is no engine that is known.
pub async fn probe(client: &Client) -> Result<ServerInfo, Failure> {
    if let Some(info) = sglang::probe(client).await? {
        return Ok(info);
    }
    let models = match client.get("/v1/models", ANSWER_LIMIT).await {
        Ok(reply) => Some(reply),
        Err(error) => {
            missing(error)?;
            None
        }
    };
    if let Some(models) = models {
        let models = parse(&models, "/v1/models")?;
        let owner = models["data"][0]["owned_by"].as_str().unwrap_or_default().to_owned();
        match owner.as_str() {
            "vllm" => return vllm::info(client, &models).await,
            "llamacpp" => return other::llama_cpp(client, &models).await,
            "tensorrt_llm" | "tensorrt-llm" => return other::tensorrt_llm(client, &models).await,
            _ => {}
        }
        if owner.is_empty() {
            return Err(unknown("its /v1/models does not say who it is"));
        }
        return Err(unknown(&format!("its models are owned by {:?}", crate::http::short(&owner))));
    }
    Err(unknown("it has none of /server_info, /get_server_info, /v1/models"))
}

fn unknown(why: &str) -> Failure {
    Failure::new("unknown_engine", format!("no engine that is known here serves there: {why}"))
        .hint("known are SGLang, vLLM, TensorRT-LLM and llama.cpp; a router or gateway in front of them cannot be profiled")
}

/// Lets "there is no such endpoint" pass.
pub(crate) fn missing(error: HttpError) -> Result<(), Failure> {
    match error.kind {
        HttpErrorKind::NotFound => Ok(()),
        _ => Err(error.into()),
    }
}

pub(crate) fn parse(reply: &Reply, path: &str) -> Result<Value, Failure> {
    serde_json::from_slice(&reply.body).map_err(|error| {
        let text =
            format!("the answer is no JSON ({error}): {}", crate::http::short(&reply.text()));
        HttpError::new(path, HttpErrorKind::Unexpected(text)).into()
    })
}

/// The value of the first sample of a metric in Prometheus' text form, summed over its label sets.
pub(crate) fn metric_sum(text: &str, name: &str) -> Option<f64> {
    let mut sum = None;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(name) else { continue };
        if !rest.starts_with(['{', ' ']) {
            continue;
        }
        if let Some(value) = rest.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()) {
            sum = Some(sum.unwrap_or(0.0) + value);
        }
    }
    sum
}

pub(crate) fn as_u32(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| number.try_into().ok())
}

pub(crate) fn as_text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics() {
        let text = "# TYPE a gauge\na{x=\"1\"} 2.0\na{x=\"2\"} 3\nab 9\n";
        assert_eq!(metric_sum(text, "a"), Some(5.0));
        assert_eq!(metric_sum(text, "ab"), Some(9.0));
        assert_eq!(metric_sum(text, "b"), None);
    }
}
