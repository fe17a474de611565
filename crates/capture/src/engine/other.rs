//! Engines that can be asked, but not profiled over HTTP: TensorRT-LLM and llama.cpp.

use serde_json::Value;

use super::{ANSWER_LIMIT, Engine, ServerInfo, as_text, as_u32, metric_sum, missing, parse};
use crate::error::Failure;
use crate::http::Client;

/// llama.cpp's server: `/props`, `/metrics` when it was started with `--metrics`.
pub(super) async fn llama_cpp(client: &Client, models: &Value) -> Result<ServerInfo, Failure> {
    let mut info = ServerInfo::new(Engine::LlamaCpp);
    info.served_name = as_text(&models["data"][0]["id"]);
    info.model.clone_from(&info.served_name);
    info.profile_endpoint = Some(false);
    info.parallel.nodes = Some(1);
    info.replay = !models["steptally_replay"].is_null();
    match client.get("/props", ANSWER_LIMIT).await {
        Ok(reply) => {
            let props = parse(&reply, "/props")?;
            info.version_text = as_text(&props["build_info"]);
            info.model = as_text(&props["model_path"]).or(info.model);
            info.context_length = props["default_generation_settings"]["n_ctx"].as_u64();
            info.max_running_requests = as_u32(&props["total_slots"]).map(u64::from);
        }
        Err(error) => missing(error)?,
    }
    match client.get("/metrics", ANSWER_LIMIT).await {
        Ok(reply) => {
            info.requests = metric_sum(&reply.text(), "llamacpp:requests_processing")
                .map(|count| count.max(0.0) as u64);
        }
        // Without `--metrics` it answers 501.
        Err(error)
            if matches!(error.kind, crate::error::HttpErrorKind::Status { status: 501, .. }) => {}
        Err(error) => missing(error)?,
    }
    Ok(info)
}

/// TensorRT-LLM's server: `/version`. Whether it has profile endpoints depends on the release.
pub(super) async fn tensorrt_llm(client: &Client, models: &Value) -> Result<ServerInfo, Failure> {
    let mut info = ServerInfo::new(Engine::TensorRtLlm);
    info.served_name = as_text(&models["data"][0]["id"]);
    info.model.clone_from(&info.served_name);
    info.replay = !models["steptally_replay"].is_null();
    info.profile_endpoint = client.has_endpoint("/start_profile", ANSWER_LIMIT).await?;
    match client.get("/version", ANSWER_LIMIT).await {
        Ok(reply) => info.version_text = as_text(&parse(&reply, "/version")?["version"]),
        Err(error) => missing(error)?,
    }
    Ok(info)
}
