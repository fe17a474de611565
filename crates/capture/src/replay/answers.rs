//! The endpoints of a replay.

use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited, combinators::BoxBody};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, SERVER};
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::engine::{Job, Order};
use super::{Fault, REPLAY_SERVER, Shared};
use crate::engine::Engine;
use crate::http::Role;

type Answer = Response<BoxBody<Bytes, Infallible>>;

const SERVER_INFO: &str = include_str!("../../data/sglang-server_info.json");
const MODEL_INFO: &str = include_str!("../../data/sglang-model_info.json");
const MODELS: &str = include_str!("../../data/sglang-models.json");
const LOADS: &str = include_str!("../../data/sglang-loads.json");
const GET_LOAD: &str = include_str!("../../data/sglang-get_load.json");
const BAD_JSON: &str = include_str!("../../data/sglang-bad-json.json");

/// What llama.cpp says of itself, as far as it is asked here. Written by its documentation, not recorded.
const PROPS: &str = r#"{"default_generation_settings":{"n_ctx":4096},"total_slots":4,"model_path":"/srv/model/a.gguf","build_info":"b6871-1f5accb8"}"#;

/// Bodies of requests are not larger.
const MAX_REQUEST: usize = 16 << 20;

/// Answers one request.
pub(crate) async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Answer {
    let method = request.method().as_str().to_owned();
    let path = request.uri().path().to_owned();
    shared.note(format!("{method} {path}"));
    let mut answer = route(&shared, &method, &path, request).await;
    answer.headers_mut().insert(SERVER, hyper::header::HeaderValue::from_static(REPLAY_SERVER));
    answer
}

async fn route(
    shared: &Arc<Shared>,
    method: &str,
    path: &str,
    request: Request<Incoming>,
) -> Answer {
    let options = &shared.options;
    if options.has(Fault::Redirect) {
        let mut answer = text(StatusCode::TEMPORARY_REDIRECT, "");
        let elsewhere = hyper::header::HeaderValue::from_static("http://203.0.113.1/elsewhere");
        answer.headers_mut().insert(LOCATION, elsewhere);
        return answer;
    }
    let is_unavailable =
        options.faults.iter().any(|fault| matches!(fault, Fault::UnavailableFor(_)));
    if is_unavailable && *shared.is_exporting.borrow() {
        return text(StatusCode::SERVICE_UNAVAILABLE, "");
    }
    if let Some(refusal) = refuse(shared, path, &request) {
        return refusal;
    }
    match (options.recorded.engine, path) {
        (Engine::Sglang, "/server_info" | "/get_server_info") => server_info(shared),
        (Engine::Sglang, "/model_info" | "/get_model_info") => recorded(MODEL_INFO),
        (Engine::Sglang, "/v1/loads") => recorded(&loads(shared)),
        (Engine::Sglang, "/get_load") => recorded(GET_LOAD),
        (Engine::Sglang, "/health" | "/health_generate") => {
            // A probe of health generates a token, in a second.
            let _ = generate(shared, 1).recv().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            text(StatusCode::OK, "")
        }
        (Engine::Vllm, "/health") => text(StatusCode::OK, ""),
        (Engine::Vllm, "/version") => recorded(r#"{"version":"0.33.0"}"#),
        (Engine::Vllm, "/metrics") => text(StatusCode::OK, &metrics(shared)),
        (Engine::TensorRtLlm, "/version") => recorded(r#"{"version":"1.2.0"}"#),
        (Engine::LlamaCpp, "/props") => recorded(PROPS),
        // It was started without `--metrics`.
        (Engine::LlamaCpp, "/metrics") => json_text(
            StatusCode::NOT_IMPLEMENTED,
            r#"{"error":{"code":501,"message":"This server does not support metrics endpoint. Start it with `--metrics`","type":"not_supported_error"}}"#,
        ),
        (_, "/v1/models") => models(shared),
        (Engine::Sglang, "/generate")
        | (Engine::LlamaCpp, "/completion")
        | (Engine::Vllm | Engine::TensorRtLlm, "/v1/completions")
            if method == "POST" =>
        {
            tokens(shared, request).await
        }
        (Engine::Sglang | Engine::Vllm, "/start_profile") => start(shared, method, request).await,
        (Engine::Sglang | Engine::Vllm, "/stop_profile") => stop(shared, method).await,
        _ => json_text(StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#),
    }
}

/// Endpoints that profile want the admin key when there is one; health and metrics none.
fn refuse(shared: &Shared, path: &str, request: &Request<Incoming>) -> Option<Answer> {
    if path.starts_with("/health") || path.starts_with("/metrics") {
        return None;
    }
    let keys = &shared.options.keys;
    let role = if path.ends_with("_profile") { Role::Admin } else { Role::User };
    let wanted = match role {
        Role::Admin => keys.admin.as_ref().or(keys.api.as_ref()),
        Role::User => keys.api.as_ref(),
    }?;
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    match given.and_then(|value| value.strip_prefix("Bearer ")) {
        Some(given) if given == wanted.reveal() => None,
        // A key, but not one that may do this.
        Some(given)
            if role == Role::Admin
                && keys.api.as_ref().is_some_and(|api| api.reveal() == given) =>
        {
            Some(json_text(StatusCode::FORBIDDEN, r#"{"error":"Forbidden"}"#))
        }
        _ => Some(json_text(StatusCode::UNAUTHORIZED, r#"{"error":"Unauthorized"}"#)),
    }
}

fn server_info(shared: &Shared) -> Answer {
    if shared.options.has(Fault::Trickle) {
        return endless(Bytes::from_static(b"{"), Duration::from_secs(1));
    }
    if shared.options.has(Fault::HugeReply) {
        return endless(Bytes::from(vec![b' '; 1 << 20]), Duration::ZERO);
    }
    let Ok(mut info) = serde_json::from_str::<Value>(SERVER_INFO) else {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "");
    };
    info["tp_size"] = shared.options.recorded.traces.len().into();
    info["steptally_replay"] = shared.options.recorded.name.as_str().into();
    // Some releases show that there is an admin key, others do not.
    if shared.options.keys.admin.is_some() && shared.options.keys.api.is_none() {
        info["admin_api_key"] = "planted-admin-key-of-the-server".into();
    }
    recorded(&info.to_string())
}

fn models(shared: &Shared) -> Answer {
    let mut models: Value = serde_json::from_str(MODELS).unwrap_or_default();
    models["data"][0]["owned_by"] = match shared.options.recorded.engine {
        Engine::Sglang => "sglang",
        Engine::Vllm => "vllm",
        Engine::TensorRtLlm => "tensorrt_llm",
        Engine::LlamaCpp => "llamacpp",
    }
    .into();
    models["steptally_replay"] = shared.options.recorded.name.as_str().into();
    recorded(&models.to_string())
}

fn loads(shared: &Shared) -> String {
    let mut loads: Value = serde_json::from_str(LOADS).unwrap_or_default();
    if shared.options.has(Fault::Traffic) {
        loads["loads"][0]["num_running_reqs"] = 3.into();
    }
    loads.to_string()
}

fn metrics(shared: &Shared) -> String {
    let running = if shared.options.has(Fault::Traffic) { 3.0 } else { 0.0 };
    format!(
        "vllm:num_requests_running{{model_name=\"A\"}} {running}\n\
         vllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"8192\"}} 1.0\n"
    )
}

fn generate(shared: &Shared, count: u64) -> mpsc::UnboundedReceiver<u64> {
    let (sender, tokens) = mpsc::unbounded_channel();
    let _ = shared.jobs.send(Job::Generate { count, tokens: sender });
    tokens
}

async fn body_of(request: Request<Incoming>) -> Option<Bytes> {
    let body = Limited::new(request.into_body(), MAX_REQUEST).collect().await.ok()?;
    Some(body.to_bytes())
}

async fn tokens(shared: &Arc<Shared>, request: Request<Incoming>) -> Answer {
    let body: Value =
        match body_of(request).await.and_then(|body| serde_json::from_slice(&body).ok()) {
            Some(body) => body,
            None => return json_text(StatusCode::BAD_REQUEST, BAD_JSON),
        };
    let engine = shared.options.recorded.engine;
    let stated = match engine {
        Engine::Sglang => &body["sampling_params"]["max_new_tokens"],
        Engine::LlamaCpp => &body["n_predict"],
        Engine::Vllm | Engine::TensorRtLlm => &body["max_tokens"],
    };
    let count = stated.as_u64().unwrap_or(16).max(1);
    let mut tokens = generate(shared, count);
    if body["stream"] != true {
        while let Some(token) = tokens.recv().await {
            if token == count {
                break;
            }
        }
        return recorded(&chunk(engine, count, true).to_string());
    }
    let (pieces, body) = mpsc::channel(64);
    tokio::spawn(async move {
        while let Some(token) = tokens.recv().await {
            let event = format!("data: {}\n\n", chunk(engine, token, token == count));
            if pieces.send(Bytes::from(event)).await.is_err() {
                return;
            }
            if token == count {
                if engine != Engine::LlamaCpp {
                    let _ = pieces.send(Bytes::from_static(b"data: [DONE]\n\n")).await;
                }
                return;
            }
        }
    });
    let mut answer = Response::new(Pieces { body }.boxed());
    let kind = hyper::header::HeaderValue::from_static("text/event-stream; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// An event of a stream, with the fields that the real ones have. The text is of no model.
fn chunk(engine: Engine, token: u64, is_last: bool) -> Value {
    match engine {
        Engine::Sglang => {
            let reason =
                if is_last { json!({"type": "length", "length": token}) } else { Value::Null };
            json!({"text": " t7", "output_ids": [7], "meta_info": {
                "finish_reason": reason, "weight_version": "default", "completion_tokens": token, "cached_tokens": 0,
            }})
        }
        Engine::LlamaCpp => {
            json!({"index": 0, "content": " t7", "tokens": [7], "stop": is_last, "id_slot": 0,
                   "tokens_predicted": token, "tokens_evaluated": 8})
        }
        Engine::Vllm | Engine::TensorRtLlm => {
            let reason = if is_last { json!("length") } else { Value::Null };
            json!({"object": "text_completion", "choices": [{"index": 0, "text": " t7", "finish_reason": reason}],
                   "usage": {"completion_tokens": token}})
        }
    }
}

async fn start(shared: &Arc<Shared>, method: &str, request: Request<Incoming>) -> Answer {
    let options = &shared.options;
    let is_vllm = options.recorded.engine == Engine::Vllm;
    if options.has(Fault::NoProfiler) {
        return json_text(StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#);
    }
    if method == "OPTIONS" || (is_vllm && method != "POST") {
        return json_text(StatusCode::METHOD_NOT_ALLOWED, r#"{"detail":"Method Not Allowed"}"#);
    }
    if options.has(Fault::AlreadyProfiling) {
        if is_vllm {
            return json_text(
                StatusCode::CONFLICT,
                r#"{"error":"A profiling session is already active. Call /stop_profile before starting another session."}"#,
            );
        }
        return text(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error");
    }
    let body = body_of(request).await.unwrap_or_default();
    let body: Value = if body.is_empty() {
        json!({})
    } else {
        match serde_json::from_slice(&body) {
            Ok(body) => body,
            Err(_) => return json_text(StatusCode::BAD_REQUEST, BAD_JSON),
        }
    };
    let stated = if is_vllm { &body["max_iterations"] } else { &body["num_steps"] };
    let steps = match stated {
        Value::Null => None,
        Value::String(digits) => match digits.parse() {
            Ok(steps) => Some(steps),
            Err(_) => return json_text(StatusCode::BAD_REQUEST, BAD_JSON),
        },
        other => other.as_u64(),
    };
    let folder = match (&body["output_dir"], &options.folder) {
        (_, Some(folder)) if is_vllm => folder.clone(),
        (Value::String(folder), _) => PathBuf::from(folder),
        _ => std::env::temp_dir(),
    };
    // Unknown activities are accepted, and nothing is recorded.
    let records = body["activities"].as_array().is_none_or(|activities| {
        activities
            .iter()
            .any(|activity| ["CPU", "GPU"].contains(&activity.as_str().unwrap_or_default()))
    });
    let _ = shared.jobs.send(Job::Start(Order { steps, folder, records }));
    if options.has(Fault::HangOnStart) {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(options.recorded.pace.start).await;
    text(StatusCode::OK, if is_vllm { "" } else { "Start profiling.\n" })
}

async fn stop(shared: &Arc<Shared>, method: &str) -> Answer {
    let is_vllm = shared.options.recorded.engine == Engine::Vllm;
    if is_vllm && method != "POST" {
        return json_text(StatusCode::METHOD_NOT_ALLOWED, r#"{"detail":"Method Not Allowed"}"#);
    }
    if shared.options.has(Fault::HangOnStop) {
        std::future::pending::<()>().await;
    }
    let (reply, ran) = oneshot::channel();
    let _ = shared.jobs.send(Job::Stop(reply));
    match ran.await {
        Ok(_) if is_vllm => text(StatusCode::OK, ""),
        Ok(true) => text(StatusCode::OK, "Stop profiling. This will take some time.\n"),
        _ => text(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error"),
    }
}

fn recorded(body: &str) -> Answer {
    json_text(StatusCode::OK, body.trim_end())
}

fn json_text(status: StatusCode, body: &str) -> Answer {
    let mut answer = text(status, body);
    let kind = hyper::header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

fn text(status: StatusCode, body: &str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body.to_owned())).boxed());
    *answer.status_mut() = status;
    answer
}

/// The same piece again and again.
fn endless(piece: Bytes, pause: Duration) -> Answer {
    let (pieces, body) = mpsc::channel(1);
    tokio::spawn(async move {
        while pieces.send(piece.clone()).await.is_ok() {
            tokio::time::sleep(pause).await;
        }
    });
    Response::new(Pieces { body }.boxed())
}

/// A body that comes through a channel.
struct Pieces {
    body: mpsc::Receiver<Bytes>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.body.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
