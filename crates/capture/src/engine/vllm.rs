//! vLLM: `/version`, `/v1/models`, `/metrics`. How it is spread over GPUs it does not say.

use serde_json::Value;

use super::{ANSWER_LIMIT, Engine, ServerInfo, as_text, metric_sum, missing, parse};
use crate::error::Failure;
use crate::http::Client;

pub(super) async fn info(client: &Client, models: &Value) -> Result<ServerInfo, Failure> {
    let mut info = ServerInfo::new(Engine::Vllm);
    let model = &models["data"][0];
    info.served_name = as_text(&model["id"]);
    info.model = as_text(&model["root"]).or_else(|| info.served_name.clone());
    info.context_length = model["max_model_len"].as_u64();
    info.replay = !models["steptally_replay"].is_null();
    info.profile_endpoint = client.has_endpoint("/start_profile", ANSWER_LIMIT).await?;
    match client.get("/version", ANSWER_LIMIT).await {
        Ok(reply) => info.version_text = as_text(&parse(&reply, "/version")?["version"]),
        Err(error) => missing(error)?,
    }
    match client.get("/metrics", ANSWER_LIMIT).await {
        Ok(reply) => read_metrics(&reply.text(), &mut info),
        Err(error) => missing(error)?,
    }
    Ok(info)
}

fn read_metrics(text: &str, info: &mut ServerInfo) {
    info.requests = requests(text);
    let Some(config) = text.lines().find(|line| line.starts_with("vllm:cache_config_info{")) else {
        return;
    };
    let number = |name: &str| label(config, name)?.parse::<u64>().ok();
    info.kv_token_capacity = number("num_gpu_blocks")
        .zip(number("block_size"))
        .and_then(|(blocks, size)| blocks.checked_mul(size));
}

fn requests(text: &str) -> Option<u64> {
    let running = metric_sum(text, "vllm:num_requests_running")?;
    let waiting = metric_sum(text, "vllm:num_requests_waiting").unwrap_or(0.0);
    Some((running + waiting).max(0.0) as u64)
}

/// The value of a label of a sample in Prometheus' text form.
fn label<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let start = line.find(&format!("{name}=\""))? + name.len() + 2;
    let end = line[start..].find('"')?;
    Some(&line[start..start + end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics() {
        let text = "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\"} 1.0\n\
                    vllm:num_requests_running{model_name=\"m\"} 2.0\n\
                    vllm:num_requests_waiting{model_name=\"m\"} 1.0\n";
        let mut info = ServerInfo::new(Engine::Vllm);
        read_metrics(text, &mut info);
        assert_eq!(info.kv_token_capacity, Some(16_000));
        assert_eq!(info.requests, Some(3));
        read_metrics("", &mut info);
        assert_eq!(info.requests, None);
    }
}
