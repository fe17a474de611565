//! A range for an nsys that started the server: no trace of torch is expected, a report of nsys is
//! waited for when it is named.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use steptally_capture::CaptureOptions;
use steptally_capture::backend::Activity;
use steptally_capture::http::Keys;
use steptally_capture::replay::ReplayOptions;
use steptally_capture::session::{Ending, Phase};
use support::{World, recorded, run_during};
use tokio::sync::watch;

/// How such a report begins, and something behind it.
const REPORT: &[u8] = b"NVIDIA Tegra Profiler Report 2023@4@4@54-234433681190v0.\0....";

/// A capture for nsys, which writes its report, if any, when the range has been opened.
async fn for_nsys(report: Option<PathBuf>, comes: bool) -> World {
    let written = report.clone();
    let during = move |phase, _: &Path| {
        if let (Phase::Window, Some(report), true) = (phase, &written, comes) {
            fs::write(report, REPORT).unwrap();
        }
    };
    let change = |options: &mut CaptureOptions| {
        options.activities = vec![Activity::CudaProfiler];
        options.nsys_report = report;
    };
    let (_user, interrupt) = watch::channel(false);
    let world =
        run_during(ReplayOptions::new(recorded(2)), Keys::default(), change, during, interrupt)
            .await;
    world.check();
    let manifest = world.manifest();
    assert_eq!(manifest.profiler.unwrap().body["activities"][0], "CUDA_PROFILER");
    assert_eq!(world.starts(), 1);
    world
}

#[tokio::test(start_paused = true)]
async fn without_a_report_to_wait_for() {
    let world = for_nsys(None, false).await;
    assert_eq!(world.ending(), &Ending::Complete, "{:?}", world.manifest().problems);
    // It had ended by itself, which a stop is told.
    assert_eq!(world.stops(), 1);
    let manifest = world.manifest();
    assert!(manifest.events.iter().any(|event| event.what.contains("had ended already")));
    // Neither traces of ranks nor a check of them.
    assert!(manifest.expected_ranks.is_empty() && manifest.files.is_empty());
    assert_eq!(manifest.verification, None);
    assert!(manifest.baseline_before.is_some() && manifest.baseline_after.is_some());
    assert!(!world.folder.path().join("out/incoming").exists());
}

#[tokio::test(start_paused = true)]
async fn a_report_is_waited_for_and_moved_to_the_capture() {
    let nsys = tempfile::tempdir().unwrap();
    fs::write(nsys.path().join("other.nsys-rep"), REPORT).unwrap();
    let report = nsys.path().join("run.nsys-rep");
    let world = for_nsys(Some(report.clone()), true).await;
    assert_eq!(world.ending(), &Ending::Complete, "{:?}", world.manifest().problems);
    assert_eq!(world.stops(), 0);
    let files = world.manifest().files;
    assert_eq!((files.len(), files[0].path.as_str()), (1, "run.nsys-rep"));
    assert!(files[0].complete && files[0].bytes == REPORT.len() as u64);
    assert!(!report.exists() && nsys.path().join("other.nsys-rep").exists());
}

#[tokio::test(start_paused = true)]
async fn a_report_that_does_not_come() {
    let nsys = tempfile::tempdir().unwrap();
    let world = for_nsys(Some(nsys.path().join("run.nsys-rep")), false).await;
    assert_eq!(world.failure().code, "no_trace");
    assert_eq!(world.stops(), 1);
}
