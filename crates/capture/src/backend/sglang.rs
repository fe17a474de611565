//! SGLang's `/start_profile` and `/stop_profile`, version by version.
//!
//! Stages (`profile_by_stage`), `start_step`, `merge_profiles` and `profile_prefix` are never sent:
//! by stage a profiler stays armed when it is stopped too early, and stops too late under
//! speculation; merging stalls the server longest, and misses files under a prefix.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Activity, Backend, Pending, Recording, StartError, Stopped};
use crate::engine::ServerInfo;
use crate::error::{Failure, HttpError, HttpErrorKind};
use crate::http::{Client, Role};
use crate::session::Conduct;
use crate::version::Version;

/// From here on a start is answered at once; before, when the traces are written.
const ANSWERS_AT_ONCE: Version = Version { parts: [0, 4, 7, 1] };

/// From here on `num_steps` steps are recorded; before, one fewer.
const COUNTS_RIGHT: Version = Version::new(0, 5, 15);

/// Longer than any limit of a session: that one decides.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// SGLang's profile endpoints.
#[derive(Debug)]
pub struct SglangEndpoint {
    client: Client,
    recording: Recording,
    version: Option<Version>,
    ranks: Option<Vec<String>>,
    dp_in_label: bool,
    is_v2: bool,
}

impl SglangEndpoint {
    /// The endpoints of the server that `info` describes.
    ///
    /// # Errors
    /// When the activities cannot be recorded together.
    pub fn new(client: Client, info: &ServerInfo, recording: Recording) -> Result<Self, Failure> {
        if recording.activities.contains(&Activity::CudaProfiler) && recording.activities.len() > 1
        {
            return Err(Failure::new(
                "activities",
                "CUDA_PROFILER cannot be recorded together with other activities: SGLang dies when it saves",
            )
            .hint("record for nsys (CUDA_PROFILER) and for the torch profiler (CPU, GPU) one after the other"));
        }
        let parallel = info.parallel;
        let dp_in_label = !parallel.dp_attention;
        Ok(Self {
            client,
            recording,
            version: info.version(),
            ranks: (parallel.nodes.unwrap_or(1) == 1).then(|| expected(info)),
            dp_in_label,
            is_v2: info.profile_v2,
        })
    }
}

/// `TP-0`, `TP-0-PP-1`, ..: one per process. Ranks of attention's data parallelism and of expert
/// parallelism are within those of tensor parallelism.
fn expected(info: &ServerInfo) -> Vec<String> {
    let parallel = info.parallel;
    let size = |size: Option<u32>| size.unwrap_or(1).max(1);
    let (tp, pp) = (size(parallel.tp), size(parallel.pp));
    let dp = if parallel.dp_attention { 1 } else { size(parallel.dp) };
    let mut labels = Vec::new();
    for dp_rank in 0..dp {
        for pp_rank in 0..pp {
            for tp_rank in 0..tp {
                let mut label = format!("TP-{tp_rank}");
                if dp > 1 {
                    label.push_str(&format!("-DP-{dp_rank}"));
                }
                if pp > 1 {
                    label.push_str(&format!("-PP-{pp_rank}"));
                }
                labels.push(label);
            }
        }
    }
    labels
}

/// The label in `[prefix-]id-TP-0[-DP-0][-PP-0][-EP-0][-STAGE].trace.json.gz`.
fn label(file: &str, with_dp: bool) -> Option<String> {
    let stem = file.strip_suffix(".trace.json.gz")?;
    let start = stem.rfind("-TP-")? + 1;
    let mut words = stem[start..].split('-');
    let mut label = Vec::new();
    while let (Some(name), Some(number)) = (words.next(), words.next()) {
        let wanted = matches!(name, "TP" | "PP") || (name == "DP" && with_dp);
        if wanted && number.bytes().all(|byte| byte.is_ascii_digit()) {
            label.push(format!("{name}-{number}"));
        }
    }
    (!label.is_empty()).then(|| label.join("-"))
}

impl Backend for SglangEndpoint {
    fn code(&self) -> &'static str {
        "sglang_endpoint"
    }

    fn conduct(&self) -> Conduct {
        if self.recording.is_for_nsys() {
            return self.recording.range();
        }
        Conduct {
            ends_itself: true,
            start_is_held: self.version.is_some_and(|version| version < ANSWERS_AT_ONCE),
            ..Conduct::default()
        }
    }

    fn expected_ranks(&self) -> Option<Vec<String>> {
        // A report of nsys has all of them.
        if self.recording.is_for_nsys() { None } else { self.ranks.clone() }
    }

    fn rank_of(&self, file: &str) -> Option<String> {
        if self.recording.is_for_nsys() {
            return self.recording.is_report(file).then(|| "nsys".to_owned());
        }
        if self.is_v2 && !file.contains("-decode.") {
            return None;
        }
        label(file, self.dp_in_label)
    }

    fn request(&self) -> Value {
        let Recording { steps, activities, record_shapes, with_stack, server_folder, .. } =
            &self.recording;
        let activities: Vec<&str> = activities.iter().map(|activity| activity.name()).collect();
        // Without a version it is better to record one step too many.
        let counts_right = self.version.is_some_and(|version| version >= COUNTS_RIGHT);
        let steps = if self.is_v2 || counts_right { *steps } else { steps + 1 };
        let mut body = json!({
            "output_dir": server_folder,
            "num_steps": steps,
            "activities": activities,
            "record_shapes": record_shapes,
            "with_stack": with_stack,
        });
        if self.is_v2 {
            body["profile_by_stage"] = true.into();
            body["profile_stages"] = json!(["decode"]);
        }
        body
    }

    fn start(&self) -> Pending<'_, Result<(), StartError>> {
        Box::pin(async {
            let body = self.request();
            let answer =
                self.client.post("/start_profile", Some(&body), Role::Admin, FOREVER).await;
            match answer {
                Ok(_) => Ok(()),
                Err(error) => Err(StartError::of(error, start_failure)),
            }
        })
    }

    fn stop(&self) -> Pending<'_, Result<Stopped, Failure>> {
        Box::pin(async {
            if self.is_v2 {
                // Its stop kills the scheduler; it ends by itself.
                return Ok(Stopped::Before);
            }
            match self.client.post("/stop_profile", None, Role::Admin, FOREVER).await {
                Ok(_) => Ok(Stopped::Now),
                // "Profiling is not in progress", which only the log says.
                Err(HttpError { kind: HttpErrorKind::Status { status: 500, .. }, .. }) => {
                    Ok(Stopped::Before)
                }
                Err(error) => Err(error.into()),
            }
        })
    }
}

fn start_failure(error: HttpError) -> Failure {
    let hint = match &error.kind {
        HttpErrorKind::Status { status: 500, .. } => {
            "a profiler is probably running already (the reason is in the server's log): wait until it \
             ends, or end it with curl -X POST URL/stop_profile if it is yours"
        }
        HttpErrorKind::Status { status: 400, .. } => {
            "this version of SGLang does not take this request: see the manifest for what was sent"
        }
        HttpErrorKind::NotFound => {
            "this version of SGLang has no profile endpoint, or a router is in front of it"
        }
        _ => return error.into(),
    };
    let code = match &error.kind {
        HttpErrorKind::Status { status: 500, .. } => "already_profiling",
        kind => kind.code(),
    };
    Failure::new(code, error.to_string()).hint(hint)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::engine::Engine;
    use crate::http::Keys;

    fn backend(version: &str, change: impl FnOnce(&mut ServerInfo)) -> SglangEndpoint {
        let mut info = ServerInfo::new(Engine::Sglang);
        info.version_text = Some(version.to_owned());
        info.parallel.tp = Some(1);
        change(&mut info);
        let recording = Recording {
            steps: 5,
            activities: vec![Activity::Cpu, Activity::Gpu],
            record_shapes: true,
            with_stack: false,
            server_folder: PathBuf::from("/out"),
            report: None,
        };
        let client = Client::new("http://h:1", Keys::default()).unwrap();
        SglangEndpoint::new(client, &info, recording).unwrap()
    }

    #[test]
    fn requests_by_version() {
        // The request that was recorded against 0.5.16 had exactly these fields.
        let body = backend("0.5.16", |_| {}).request();
        assert_eq!(
            body,
            json!({"num_steps": 5, "activities": ["CPU", "GPU"], "record_shapes": true, "with_stack": false, "output_dir": "/out"})
        );
        assert_eq!(backend("0.5.14", |_| {}).request()["num_steps"], 6);
        assert_eq!(backend("0.4.6.post5", |_| {}).request()["num_steps"], 6);
        assert!(backend("0.4.6.post5", |_| {}).conduct().start_is_held);
        assert!(!backend("0.4.7.post1", |_| {}).conduct().start_is_held);
        let body = backend("0.5.16", |info| info.profile_v2 = true).request();
        assert_eq!(body["profile_stages"], json!(["decode"]));
        assert_eq!(body["num_steps"], 5);
    }

    #[test]
    fn ranks() {
        let ranks = |change: fn(&mut ServerInfo)| backend("0.5.16", change).expected_ranks();
        assert_eq!(ranks(|_| {}).unwrap(), ["TP-0"]);
        assert_eq!(ranks(|info| info.parallel.tp = Some(2)).unwrap(), ["TP-0", "TP-1"]);
        let pipeline = ranks(|info| {
            info.parallel.tp = Some(2);
            info.parallel.pp = Some(2);
        });
        assert_eq!(pipeline.unwrap(), ["TP-0-PP-0", "TP-1-PP-0", "TP-0-PP-1", "TP-1-PP-1"]);
        let attention = ranks(|info| {
            info.parallel.tp = Some(2);
            info.parallel.dp = Some(2);
            info.parallel.dp_attention = true;
        });
        assert_eq!(attention.unwrap(), ["TP-0", "TP-1"]);
        assert_eq!(ranks(|info| info.parallel.nodes = Some(2)), None);
    }

    #[test]
    fn labels_of_files() {
        assert_eq!(label("1795969652.485812-TP-0.trace.json.gz", true).as_deref(), Some("TP-0"));
        assert_eq!(
            label("pfx-p2-TP-1-DP-3-EP-0-DECODE.trace.json.gz", true).as_deref(),
            Some("TP-1-DP-3")
        );
        assert_eq!(label("1-TP-1-DP-1-EP-1.trace.json.gz", false).as_deref(), Some("TP-1"));
        assert_eq!(label("1-TP-0-PP-1.trace.json.gz", true).as_deref(), Some("TP-0-PP-1"));
        assert_eq!(label("merged-1.trace.json.gz", true), None);
        assert_eq!(label("manifest.json", true), None);
    }

    #[test]
    fn a_range_for_nsys() {
        let mut backend = backend("0.5.16", |info| info.parallel.tp = Some(2));
        backend.recording.activities = vec![Activity::CudaProfiler];
        assert_eq!(backend.request()["activities"], json!(["CUDA_PROFILER"]));
        assert_eq!(backend.request()["num_steps"], 5);
        // 1 s and 5 times 100 ms; no traces of ranks.
        let conduct = backend.conduct();
        assert_eq!(conduct.record_for, Some(Duration::from_millis(1500)));
        assert!(conduct.writes_elsewhere && !conduct.ends_itself);
        assert_eq!(backend.expected_ranks(), None);
        assert_eq!(backend.rank_of("1-TP-0.trace.json.gz"), None);
        backend.recording.report = Some("run".to_owned());
        let conduct = backend.conduct();
        assert!(!conduct.writes_elsewhere && conduct.ends_itself);
        assert_eq!(backend.rank_of("run.nsys-rep").as_deref(), Some("nsys"));
    }

    #[test]
    fn activities_that_kill() {
        let info = ServerInfo::new(Engine::Sglang);
        let recording = Recording {
            steps: 1,
            activities: vec![Activity::Gpu, Activity::CudaProfiler],
            record_shapes: false,
            with_stack: false,
            server_folder: PathBuf::new(),
            report: None,
        };
        let client = Client::new("http://h:1", Keys::default()).unwrap();
        assert_eq!(SglangEndpoint::new(client, &info, recording).unwrap_err().code, "activities");
    }
}
