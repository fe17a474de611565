//! A replay, a capture of it, and what must hold after any capture.

#![allow(clippy::unwrap_used, clippy::panic, dead_code)]
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steptally_capture::backend::Activity;
use steptally_capture::http::{Client, Keys};
use steptally_capture::replay::{Recorded, RecordedTrace, Replay, ReplayOptions};
use steptally_capture::session::{Ending, Limits, Phase};
use steptally_capture::{CaptureOptions, Captured, Failure, Instrument, Verifier, capture};
use steptally_trace_model::manifest::{CaptureManifest, CaptureOutcome, LoadShape, Verification};
use tempfile::TempDir;
use tokio::sync::watch;

/// The recorded server with as many ranks.
pub(crate) fn recorded(ranks: usize) -> Recorded {
    let mut recorded = Recorded::demo();
    // Small pieces, so that a slow export grows steadily.
    recorded.pace.piece = 1024;
    let content = recorded.traces[0].content.clone();
    recorded.traces = (0..ranks)
        .map(|rank| RecordedTrace { rank: format!("TP-{rank}"), content: content.clone() })
        .collect();
    recorded
}

pub(crate) fn options(client: Client, folder: &Path) -> CaptureOptions {
    CaptureOptions {
        client,
        folder: folder.to_owned(),
        server_folder: None,
        instrument: Instrument::Endpoint,
        shape: LoadShape { batch_size: 2, input_len: 16, output_len: 32 },
        rounds: 2,
        steps: 5,
        activities: vec![Activity::Cpu, Activity::Gpu],
        record_shapes: true,
        with_stack: false,
        ranks: None,
        allow_traffic: false,
        nsys_report: None,
        min_free_bytes: 0,
        limits: Limits::default(),
        tool: "steptally test".to_owned(),
        command: vec!["steptally".to_owned(), "profile".to_owned()],
    }
}

/// A capture that ended, and the server it was made of.
pub(crate) struct World {
    pub(crate) captured: Result<Captured, Failure>,
    pub(crate) replay: Replay,
    pub(crate) folder: TempDir,
    pub(crate) phases: Vec<Phase>,
}

/// Captures a replay through pipes in memory; the user interrupts in `interrupt_in`.
pub(crate) async fn run(
    replay: ReplayOptions,
    keys: Keys,
    change: impl FnOnce(&mut CaptureOptions),
    interrupt_in: Option<Phase>,
) -> World {
    let (interrupt, is_interrupted) = watch::channel(false);
    let during = move |phase, _: &Path| {
        if Some(phase) == interrupt_in {
            interrupt.send_replace(true);
        }
    };
    run_during(replay, keys, change, during, is_interrupted).await
}

/// The same, with something that happens in some phase; it is told the capture's folder.
pub(crate) async fn run_during(
    replay: ReplayOptions,
    keys: Keys,
    change: impl FnOnce(&mut CaptureOptions),
    during: impl Fn(Phase, &Path) + Send + Sync + 'static,
    is_interrupted: watch::Receiver<bool>,
) -> World {
    let (replay, transport) = Replay::in_memory(replay);
    let client = Client::new("http://127.0.0.1:9", keys).unwrap().over(transport);
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(client, &folder.path().join("out"));
    change(&mut options);
    let out = options.folder.clone();
    let phases = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&phases);
    let progress = move |phase, _: &str| {
        let mut seen = seen.lock().unwrap();
        if seen.last() != Some(&phase) {
            seen.push(phase);
        }
        during(phase, &out);
    };
    let captured = capture(options, good(), Arc::new(progress), is_interrupted).await;
    // What the capture left to itself has time to end.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let phases = phases.lock().unwrap().clone();
    World { captured, replay, folder, phases }
}

/// A check that finds nothing wrong, and a period of 2.39 ms.
pub(crate) fn good() -> Verifier {
    Arc::new(|wanted| {
        // The check is told what was measured before.
        let tpot = wanted.manifest.baseline_before.as_ref().unwrap().tpot_ns.median;
        let verification = Verification {
            period_ns: Some(2.39e6),
            dilation_ratio: Some(2.39e6 / tpot),
            ..Verification::default()
        };
        (verification, Vec::new())
    })
}

impl World {
    pub(crate) fn ending(&self) -> &Ending {
        &self.captured.as_ref().unwrap().ending
    }

    pub(crate) fn failure(&self) -> &Failure {
        match self.ending() {
            Ending::Failed(failure) => failure,
            other => panic!("{other:?}"),
        }
    }

    /// The manifest as it is on disk.
    pub(crate) fn manifest(&self) -> CaptureManifest {
        let path = self.folder.path().join("out/manifest.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    pub(crate) fn stops(&self) -> usize {
        self.replay.count("/stop_profile")
    }

    pub(crate) fn starts(&self) -> usize {
        self.replay.requests().iter().filter(|request| *request == "POST /start_profile").count()
    }

    /// What holds after every capture, however it ended.
    pub(crate) fn check(&self) {
        assert_eq!(self.replay.open_connections(), 0, "connections are left");
        assert_eq!(self.replay.count("/health"), 0, "a probe of health generates a token");
        assert!(self.starts() <= 1 && self.stops() <= 1, "{:?}", self.replay.requests());
        let manifest = self.manifest();
        let captured = self.captured.as_ref().unwrap();
        assert_eq!(manifest, captured.manifest);
        assert!(manifest.replay || manifest.server.is_none());
        let outcome = match &captured.ending {
            Ending::Complete => CaptureOutcome::Complete,
            Ending::Failed(failure) => {
                assert!(
                    manifest.problems.iter().any(|problem| problem.message == failure.message),
                    "{manifest:#?}"
                );
                CaptureOutcome::Failed
            }
            Ending::Interrupted => CaptureOutcome::Interrupted,
        };
        assert_eq!(manifest.outcome, outcome);
        // Nothing half written stands under its final name, and everything that is there is listed.
        let out = self.folder.path().join("out");
        for entry in std::fs::read_dir(&out).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            assert!(!name.contains("partial"), "{name}");
            if name.ends_with(".gz") {
                let file = manifest.files.iter().find(|file| file.path == name).unwrap();
                assert!(file.complete && file.bytes == entry.metadata().unwrap().len(), "{file:?}");
            }
        }
        for file in &manifest.files {
            assert!(out.join(&file.path).is_file(), "{file:?}");
        }
    }
}
