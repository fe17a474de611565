//! Real requests: streamed, timed token by token, as many at once as were asked for.
//!
//! ```text
//! sent       first token      2nd   3rd        last token
//!  |---- TTFT ----|--- ITL ---|-----|   ...        |
//!  |---------------------- e2e --------------------|      TPOT = (e2e - TTFT) / (N - 1)
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use steptally_trace_model::manifest::{Baseline, LoadShape, Spread};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::{Failure, HttpError, HttpErrorKind};
use crate::http::Client;
use crate::sse::EventStream;

/// A server may take so long for the first token, or between two tokens.
#[derive(Clone, Copy, Debug)]
pub struct TokenLimits {
    /// For the first token.
    pub first: Duration,
    /// Between two tokens; an export of a trace stalls them all.
    pub next: Duration,
}

/// Which endpoint generates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GenerateApi {
    /// SGLang's `/generate`.
    Generate,
    /// The OpenAI form `/v1/completions`, with the model's name.
    Completions {
        /// The `model` that requests name.
        model: String,
    },
    /// llama.cpp's own `/completion`, which counts tokens piece by piece.
    LlamaCpp,
}

/// Sends requests of one kind.
#[derive(Clone, Debug)]
pub struct LoadSource {
    /// The server.
    pub client: Client,
    /// The endpoint.
    pub api: GenerateApi,
    /// How long tokens may take.
    pub limits: TokenLimits,
    /// Where prompts begin: no two prompts of one source are alike, so that none is cached.
    pub seed: u64,
}

/// When the tokens of one request came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTiming {
    /// When it was sent.
    pub sent: Instant,
    /// When pieces came, with the number of tokens so far.
    pub tokens: Vec<(Instant, u64)>,
}

impl RequestTiming {
    /// Tokens in all.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.tokens.last().map_or(0, |&(_, count)| count)
    }

    /// Time to the first token.
    #[must_use]
    pub fn ttft(&self) -> Option<Duration> {
        self.tokens.first().map(|&(at, _)| at - self.sent)
    }

    /// (time to the last token - time to the first) / (N - 1); `None` for fewer than two tokens.
    #[must_use]
    pub fn tpot_ns(&self) -> Option<f64> {
        let (&(first, _), &(last, count)) = (self.tokens.first()?, self.tokens.last()?);
        (count > 1).then(|| (last - first).as_nanos() as f64 / (count - 1) as f64)
    }
}

impl LoadSource {
    /// Sends `rounds` times `shape.batch_size` requests at once, and times them.
    ///
    /// # Errors
    /// When none of them ends well: that of the first.
    pub async fn measure(&self, shape: LoadShape, rounds: u32) -> Result<Baseline, Failure> {
        let mut timings = Vec::new();
        let mut elapsed = Duration::ZERO;
        let mut failure = None;
        let mut failed_requests = 0;
        for round in 0..rounds {
            let begin = Instant::now();
            let mut last = begin;
            let mut tasks = self.spawn(shape, u64::from(round), &Arc::default());
            while let Some(done) = tasks.join_next().await {
                match done {
                    Ok(Ok(timing)) => {
                        last = timing.tokens.last().map_or(last, |&(at, _)| last.max(at));
                        timings.push(timing);
                    }
                    Ok(Err(error)) => {
                        failed_requests += 1;
                        failure.get_or_insert(error);
                    }
                    Err(_) => failed_requests += 1,
                }
            }
            elapsed += last - begin;
        }
        if timings.is_empty() {
            let none = || Failure::new("load_failed", "no request was sent");
            return Err(failure.map_or_else(none, Failure::from));
        }
        Ok(summary(shape, &timings, elapsed, failed_requests))
    }

    /// Sends `shape.batch_size` requests at once and lets them run.
    #[must_use]
    pub fn begin(&self, shape: LoadShape, round: u64) -> RunningLoad {
        let flowing = Arc::new(AtomicUsize::new(0));
        let tasks = self.spawn(shape, round, &flowing);
        RunningLoad { tasks, flowing, wanted: shape.batch_size as usize, failure: None, ended: 0 }
    }

    fn spawn(
        &self,
        shape: LoadShape,
        round: u64,
        flowing: &Arc<AtomicUsize>,
    ) -> JoinSet<Result<RequestTiming, HttpError>> {
        let mut tasks = JoinSet::new();
        for index in 0..u64::from(shape.batch_size) {
            let source = self.clone();
            let flowing = Arc::clone(flowing);
            let seed = self.seed ^ (round << 32) ^ (index << 16);
            tasks.spawn(async move { source.request(shape, seed, &flowing).await });
        }
        tasks
    }

    async fn request(
        &self,
        shape: LoadShape,
        seed: u64,
        flowing: &AtomicUsize,
    ) -> Result<RequestTiming, HttpError> {
        let ids = prompt(shape.input_len, seed);
        let (path, body) = match &self.api {
            GenerateApi::Generate => (
                "/generate",
                json!({
                    "input_ids": ids,
                    "sampling_params": {"max_new_tokens": shape.output_len, "temperature": 0, "ignore_eos": true},
                    "stream": true,
                }),
            ),
            GenerateApi::Completions { model } => (
                "/v1/completions",
                json!({
                    "model": model,
                    "prompt": ids,
                    "max_tokens": shape.output_len,
                    "temperature": 0,
                    "ignore_eos": true,
                    "stream": true,
                    "stream_options": {"include_usage": true, "continuous_usage_stats": true},
                }),
            ),
            GenerateApi::LlamaCpp => (
                "/completion",
                json!({
                    "prompt": ids,
                    "n_predict": shape.output_len,
                    "temperature": 0,
                    "ignore_eos": true,
                    "cache_prompt": false,
                    "stream": true,
                }),
            ),
        };
        let unexpected = |what: String| HttpError::new(path, HttpErrorKind::Unexpected(what));
        let mut body = self.client.stream(path, &body, self.limits.first).await?;
        let mut timing = RequestTiming { sent: body.sent(), tokens: Vec::new() };
        let mut events = EventStream::default();
        loop {
            let limit = if timing.tokens.is_empty() { self.limits.first } else { self.limits.next };
            let Some(piece) = body.next(limit).await? else {
                return Err(unexpected("the stream ended before its last token".to_owned()));
            };
            let now = Instant::now();
            let payloads = events
                .push(&piece)
                .map_err(|_| unexpected("the answer is no stream of events".to_owned()))?;
            for payload in payloads {
                if payload == "[DONE]" {
                    if timing.tokens.is_empty() {
                        return Err(unexpected("the stream has no tokens".to_owned()));
                    }
                    return Ok(timing);
                }
                let (count, is_last) = read_chunk(&payload, timing.count()).map_err(unexpected)?;
                if count > timing.count() {
                    if timing.tokens.is_empty() {
                        flowing.fetch_add(1, Ordering::Relaxed);
                    }
                    timing.tokens.push((now, count));
                }
                if is_last && !timing.tokens.is_empty() {
                    return Ok(timing);
                }
            }
        }
    }
}

/// Requests that are under way. They are broken off when this is dropped.
#[derive(Debug)]
pub struct RunningLoad {
    tasks: JoinSet<Result<RequestTiming, HttpError>>,
    flowing: Arc<AtomicUsize>,
    wanted: usize,
    failure: Option<Failure>,
    ended: usize,
}

impl RunningLoad {
    /// Waits until every request has its first token.
    ///
    /// # Errors
    /// When a request fails or ends before that.
    pub async fn flows(&mut self) -> Result<(), Failure> {
        while self.flowing.load(Ordering::Relaxed) < self.wanted {
            self.reap();
            if let Some(failure) = &self.failure {
                return Err(failure.clone());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Whether all requests still run.
    pub fn is_full(&mut self) -> bool {
        self.reap();
        self.ended == 0
    }

    /// What the first request that failed died of.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Waits until the requests have ended, for up to `limit`, then breaks them off.
    pub async fn end(mut self, limit: Duration) {
        let _ =
            tokio::time::timeout(limit, async { while self.tasks.join_next().await.is_some() {} })
                .await;
        self.tasks.shutdown().await;
    }

    fn reap(&mut self) {
        while let Some(done) = self.tasks.try_join_next() {
            self.ended += 1;
            if let Ok(Err(error)) = done {
                self.failure.get_or_insert(error.into());
            }
        }
    }
}

#[derive(Deserialize)]
struct Chunk {
    meta_info: Option<Counted>,
    usage: Option<Counted>,
    #[serde(default)]
    choices: Vec<Choice>,
    error: Option<Value>,
    /// llama.cpp: tokens so far.
    tokens_predicted: Option<u64>,
    /// llama.cpp: whether it is the last event.
    #[serde(default)]
    stop: bool,
}

#[derive(Deserialize)]
struct Counted {
    completion_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    text: String,
}

/// Tokens so far by one event: as it says, else one more than `before` for a piece of text. And whether
/// it says that it is the last.
fn read_chunk(payload: &str, before: u64) -> Result<(u64, bool), String> {
    let chunk: Chunk = serde_json::from_str(payload).map_err(|error| {
        format!(
            "an event of the stream is not understood ({error}): {}",
            crate::http::short(payload)
        )
    })?;
    if let Some(error) = chunk.error {
        return Err(format!("the server broke off: {}", crate::http::short(&error.to_string())));
    }
    let stated = chunk
        .meta_info
        .or(chunk.usage)
        .and_then(|counted| counted.completion_tokens)
        .or(chunk.tokens_predicted);
    let piece = chunk.choices.iter().any(|choice| !choice.text.is_empty());
    Ok((stated.unwrap_or(before + u64::from(piece)), chunk.stop))
}

/// Token ids without meaning, and not the same for any two seeds.
fn prompt(length: u32, seed: u64) -> Vec<u32> {
    let mut state = seed;
    (0..length)
        .map(|_| {
            // splitmix64, by Sebastiano Vigna (public domain).
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            // Above the ids of special tokens, below the size of any vocabulary in use.
            100 + u32::try_from((z ^ (z >> 31)) % 15_000).unwrap_or(0)
        })
        .collect()
}

fn summary(
    shape: LoadShape,
    timings: &[RequestTiming],
    elapsed: Duration,
    failed_requests: u64,
) -> Baseline {
    let ns = |duration: Duration| duration.as_nanos() as f64;
    let ttft: Vec<f64> = timings.iter().filter_map(RequestTiming::ttft).map(ns).collect();
    let tpot: Vec<f64> = timings.iter().filter_map(RequestTiming::tpot_ns).collect();
    let itl: Vec<f64> = timings
        .iter()
        .flat_map(|timing| timing.tokens.windows(2).map(|pair| ns(pair[1].0 - pair[0].0)))
        .collect();
    let tokens: u64 = timings.iter().map(RequestTiming::count).sum();
    let seconds = elapsed.as_secs_f64();
    Baseline {
        shape,
        ttft_ns: Spread::of(&ttft).unwrap_or_default(),
        itl_ns: Spread::of(&itl).unwrap_or_default(),
        tpot_ns: Spread::of(&tpot).unwrap_or_default(),
        tokens_per_s: if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 },
        requests: timings.len() as u64,
        failed_requests,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_either_form() {
        let sglang = include_str!("../data/sglang-generate-stream.txt");
        let counts: Vec<u64> = sglang
            .lines()
            .filter_map(|line| line.strip_prefix("data: {"))
            .map(|rest| read_chunk(&format!("{{{rest}"), 0).unwrap().0)
            .collect();
        assert_eq!(counts, [1, 2, 3, 4]);
        assert_eq!(
            read_chunk(r#"{"choices":[{"text":" a"}],"usage":{"completion_tokens":7}}"#, 3),
            Ok((7, false))
        );
        assert_eq!(read_chunk(r#"{"choices":[{"text":" a"}]}"#, 3), Ok((4, false)));
        assert_eq!(
            read_chunk(r#"{"choices":[],"usage":{"completion_tokens":4}}"#, 4),
            Ok((4, false))
        );
        let llama = |stop| format!(r#"{{"content":"","stop":{stop},"tokens_predicted":9}}"#);
        assert_eq!(read_chunk(&llama(false), 8), Ok((9, false)));
        assert_eq!(read_chunk(&llama(true), 9), Ok((9, true)));
        assert!(
            read_chunk(r#"{"error":{"message":"out of memory"}}"#, 0)
                .unwrap_err()
                .contains("out of memory")
        );
        assert!(read_chunk("<html>", 0).unwrap_err().contains("not understood"));
    }

    #[test]
    fn times_of_a_request() {
        // Sent at 0; tokens at 20, 21, 23 (2 at once), 26 ms: N = 5.
        // TTFT 20 ms; TPOT (26 - 20) / 4 = 1.5 ms; ITL 1, 2, 3 ms.
        let sent = Instant::now();
        let at = |ms| sent + Duration::from_millis(ms);
        let timing = RequestTiming {
            sent,
            tokens: vec![(at(20), 1), (at(21), 2), (at(23), 4), (at(26), 5)],
        };
        assert_eq!(timing.ttft(), Some(Duration::from_millis(20)));
        assert_eq!(timing.tpot_ns(), Some(1.5e6));
        let shape = LoadShape { batch_size: 1, input_len: 3, output_len: 5 };
        let baseline = summary(shape, &[timing], Duration::from_millis(25), 0);
        assert_eq!(baseline.itl_ns.n, 3);
        assert_eq!(
            (baseline.itl_ns.min, baseline.itl_ns.median, baseline.itl_ns.max),
            (1e6, 2e6, 3e6)
        );
        // 5 tokens in 25 ms.
        assert!((baseline.tokens_per_s - 200.0).abs() < 1e-9);
        let single = RequestTiming { sent, tokens: vec![(at(20), 1)] };
        assert_eq!(single.tpot_ns(), None);
    }

    #[test]
    fn prompts_differ() {
        let (a, b) = (prompt(64, 1), prompt(64, 2));
        assert_eq!(a.len(), 64);
        assert_ne!(a, b);
        assert!(a.iter().all(|id| (100..15_100).contains(id)));
    }
}
