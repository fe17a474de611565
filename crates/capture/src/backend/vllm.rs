//! vLLM's `/start_profile` and `/stop_profile`, which are there when the server was started with a
//! profiler configuration. Where and what it records is fixed at its start.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Backend, Pending, Recording, StartError, Stopped};
use crate::error::{Failure, HttpError, HttpErrorKind};
use crate::http::{Client, Role};
use crate::session::Conduct;

/// Longer than any limit of a session: that one decides.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// vLLM's profile endpoints.
#[derive(Debug)]
pub struct VllmEndpoint {
    client: Client,
    recording: Recording,
    ranks: Option<u32>,
}

impl VllmEndpoint {
    /// The endpoints at `client`. The profiler runs for as long as the steps may take, or until the
    /// server has recorded them, whichever comes first. `ranks`: how many GPUs serve, which vLLM does
    /// not say.
    #[must_use]
    pub fn new(client: Client, recording: Recording, ranks: Option<u32>) -> Self {
        Self { client, recording, ranks }
    }
}

impl Backend for VllmEndpoint {
    fn code(&self) -> &'static str {
        "vllm_endpoint"
    }

    fn conduct(&self) -> Conduct {
        // Even after the last iteration it wants a stop before it can be started again.
        if self.recording.is_for_nsys() {
            return Conduct { wants_stop: true, ..self.recording.range() };
        }
        Conduct { record_for: Some(self.recording.at_most()), ..Conduct::default() }
    }

    fn expected_ranks(&self) -> Option<Vec<String>> {
        // A report of nsys has all of them.
        let ranks = self.ranks.filter(|_| !self.recording.is_for_nsys());
        ranks.map(|ranks| (0..ranks).map(|rank| format!("rank-{rank}")).collect())
    }

    /// `[prefix_]dp0_pp0_tp0_dcp0_ep0_rank0.NANOSECONDS.pt.trace.json[.gz]`; the front end's own
    /// trace (`.async_llm`) has no steps. Names of other releases count as they are.
    fn rank_of(&self, file: &str) -> Option<String> {
        if self.recording.is_for_nsys() {
            return self.recording.is_report(file).then(|| "nsys".to_owned());
        }
        let stem = file.strip_suffix(".gz").unwrap_or(file);
        let stem = stem.strip_suffix(".pt.trace.json")?;
        if stem.contains(".async_llm") {
            return None;
        }
        let number = stem
            .rsplit_once("rank")
            .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
        Some(match number {
            Some(number) if !number.is_empty() => format!("rank-{number}"),
            _ => stem.to_owned(),
        })
    }

    fn request(&self) -> Value {
        json!({"max_iterations": self.recording.steps})
    }

    fn start(&self) -> Pending<'_, Result<(), StartError>> {
        Box::pin(async {
            let body = self.request();
            match self.client.post("/start_profile", Some(&body), Role::Admin, FOREVER).await {
                Ok(_) => Ok(()),
                Err(error) => Err(StartError::of(error, start_failure)),
            }
        })
    }

    fn stop(&self) -> Pending<'_, Result<Stopped, Failure>> {
        Box::pin(async {
            self.client
                .post("/stop_profile", None, Role::Admin, FOREVER)
                .await
                .map(|_| Stopped::Now)
                .map_err(Failure::from)
        })
    }
}

pub(crate) const VLLM_PROFILER_HINT: &str = "start vLLM with --profiler-config.profiler=torch \
    --profiler-config.torch_profiler_dir=/ABSOLUTE/DIR --profiler-config.torch_profiler_with_stack=false \
    (before 0.16: environment VLLM_TORCH_PROFILER_DIR), and pass that folder as --server-dir";

fn start_failure(error: HttpError) -> Failure {
    match &error.kind {
        HttpErrorKind::NotFound => Failure::new("no_profiler", error.to_string()).hint(VLLM_PROFILER_HINT),
        HttpErrorKind::Conflict(_) => Failure::new("already_profiling", error.to_string())
            .hint("another profiling session is active: wait, or end it with curl -X POST URL/stop_profile if it is yours"),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::http::Keys;

    #[test]
    fn files_of_ranks() {
        let recording = Recording {
            steps: 5,
            activities: vec![],
            record_shapes: false,
            with_stack: false,
            server_folder: PathBuf::new(),
            report: None,
        };
        let client = Client::new("http://h:1", Keys::default()).unwrap();
        let backend = VllmEndpoint::new(client, recording, Some(2));
        let rank = |file: &str| backend.rank_of(file);
        assert_eq!(
            rank("dp0_pp0_tp1_dcp0_ep1_rank1.1700.pt.trace.json.gz").as_deref(),
            Some("rank-1")
        );
        assert_eq!(rank("host_123.1700.pt.trace.json.gz").as_deref(), Some("host_123.1700"));
        assert_eq!(rank("host_123.async_llm.1700.pt.trace.json.gz"), None);
        assert_eq!(rank("dp0_rank0.profiler_out.txt"), None);
        assert_eq!(backend.expected_ranks().unwrap(), ["rank-0", "rank-1"]);
        assert_eq!(backend.request(), json!({"max_iterations": 5}));
    }
}
