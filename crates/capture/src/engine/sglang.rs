//! SGLang: `/server_info` (`/get_server_info` before), `/model_info`, `/v1/loads` (`/get_load` before).

use serde_json::Value;

use super::{ANSWER_LIMIT, Engine, Parallel, ServerInfo, as_text, as_u32, missing, parse};
use crate::error::Failure;
use crate::http::Client;

/// Asks for the server's description under its names. `None`: it is not SGLang.
pub(super) async fn probe(client: &Client) -> Result<Option<ServerInfo>, Failure> {
    for path in ["/server_info", "/get_server_info"] {
        match client.get(path, ANSWER_LIMIT).await {
            Ok(reply) => {
                let value = parse(&reply, path)?;
                let Some(mut info) = read_server_info(&value) else {
                    return Ok(None);
                };
                complete(client, &mut info).await?;
                return Ok(Some(info));
            }
            Err(error) => missing(error)?,
        }
    }
    Ok(None)
}

async fn complete(client: &Client, info: &mut ServerInfo) -> Result<(), Failure> {
    for path in ["/model_info", "/get_model_info"] {
        match client.get(path, ANSWER_LIMIT).await {
            Ok(reply) => {
                let value = parse(&reply, path)?;
                for key in ["model_type", "architectures", "weight_version", "load_format"] {
                    if !value[key].is_null() {
                        info.model_config.insert(key.to_owned(), value[key].clone());
                    }
                }
                break;
            }
            Err(error) => missing(error)?,
        }
    }
    info.requests = running(client).await?;
    Ok(())
}

/// Requests that run or wait; `None` when no endpoint says.
async fn running(client: &Client) -> Result<Option<u64>, Failure> {
    for path in ["/v1/loads", "/get_load"] {
        match client.get(path, ANSWER_LIMIT).await {
            Ok(reply) => return Ok(read_load(&parse(&reply, path)?)),
            Err(error) => missing(error)?,
        }
    }
    Ok(None)
}

/// Reads either form of load, summed over the ranks of data parallelism.
fn read_load(value: &Value) -> Option<u64> {
    let ranks = value["loads"].as_array().or_else(|| value.as_array())?;
    let mut sum = None;
    for rank in ranks {
        for key in ["num_running_reqs", "num_reqs", "num_waiting_reqs"] {
            if let Some(count) = rank[key].as_u64() {
                sum = Some(sum.unwrap_or(0) + count);
            }
        }
    }
    sum
}

/// Reads `/server_info`. `None` when it is not SGLang's.
fn read_server_info(value: &Value) -> Option<ServerInfo> {
    let args = value.as_object()?;
    if !(args.contains_key("tp_size") && args.contains_key("internal_states")) {
        return None;
    }
    let first = &value["internal_states"][0];
    let mut info = ServerInfo::new(Engine::Sglang);
    info.version_text = as_text(&value["version"]);
    info.model = as_text(&value["model_path"]);
    info.served_name = as_text(&value["served_model_name"]);
    info.parallel = Parallel {
        tp: as_u32(&value["tp_size"]),
        dp: as_u32(&value["dp_size"]),
        pp: as_u32(&value["pp_size"]),
        ep: as_u32(&value["ep_size"]),
        dp_attention: value["enable_dp_attention"] == true,
        nodes: as_u32(&value["nnodes"]),
    };
    info.kv_token_capacity = first["memory_usage"]["token_capacity"]
        .as_u64()
        .or_else(|| value["max_total_num_tokens"].as_u64());
    info.context_length =
        value["context_length"].as_u64().or_else(|| value["max_req_input_len"].as_u64());
    info.max_running_requests = first["effective_max_running_requests_per_dp"]
        .as_u64()
        .or_else(|| value["max_running_requests"].as_u64());
    info.cuda_graphs = cuda_graphs(value);
    info.speculative = as_text(&value["speculative_algorithm"]);
    info.needs_admin_key =
        args.contains_key("admin_api_key").then(|| !value["admin_api_key"].is_null());
    info.profile_endpoint = Some(true);
    info.replay = !value["steptally_replay"].is_null();
    info.profile_v2 = match &first["env_vars"]["SGLANG_PROFILE_V2"] {
        Value::String(text) => ["1", "true", "yes"].contains(&text.to_ascii_lowercase().as_str()),
        other => *other == true,
    };
    info.args = args
        .iter()
        .filter(|(name, _)| !["internal_states", "steptally_replay"].contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    Some(info)
}

/// By the resolved configuration where there is one, else by the switch.
fn cuda_graphs(value: &Value) -> Option<bool> {
    if let Some(backend) = value["cuda_graph_config"]["decode"]["backend"].as_str() {
        return Some(backend != "disabled");
    }
    value["disable_cuda_graph"].as_bool().map(|disabled| !disabled)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER_INFO: &str = include_str!("../../data/sglang-server_info.json");

    #[test]
    fn a_recorded_server() {
        let info = read_server_info(&serde_json::from_str(SERVER_INFO).unwrap()).unwrap();
        assert_eq!(info.version_text.as_deref(), Some("0.5.16"));
        assert_eq!(info.model.as_deref(), Some("/srv/model/A"));
        assert_eq!(
            (info.parallel.tp, info.parallel.dp, info.parallel.pp),
            (Some(1), Some(1), Some(1))
        );
        assert_eq!(info.kv_token_capacity, Some(131_072));
        assert_eq!(info.context_length, Some(16_384));
        assert_eq!(info.max_running_requests, Some(8));
        assert_eq!(info.cuda_graphs, Some(true));
        assert_eq!(info.speculative, None);
        assert_eq!(info.needs_admin_key, Some(false));
        assert!(!info.replay);
    }

    #[test]
    fn recorded_loads_in_both_forms() {
        let idle = |text: &str| read_load(&serde_json::from_str(text).unwrap());
        assert_eq!(idle(include_str!("../../data/sglang-loads.json")), Some(0));
        assert_eq!(idle(include_str!("../../data/sglang-get_load.json")), Some(0));
        assert_eq!(
            idle(
                r#"{"loads":[{"num_running_reqs":2,"num_waiting_reqs":1},{"num_running_reqs":4}]}"#
            ),
            Some(7)
        );
        assert_eq!(idle("{}"), None);
    }

    #[test]
    fn graphs_off_in_both_forms() {
        let new = serde_json::json!({"cuda_graph_config": {"decode": {"backend": "disabled"}}, "disable_cuda_graph": false});
        assert_eq!(cuda_graphs(&new), Some(false));
        assert_eq!(cuda_graphs(&serde_json::json!({"disable_cuda_graph": true})), Some(false));
        assert_eq!(cuda_graphs(&serde_json::json!({})), None);
    }

    #[test]
    fn another_server_is_not_sglang() {
        assert!(read_server_info(&serde_json::json!({"version": "1"})).is_none());
    }
}
