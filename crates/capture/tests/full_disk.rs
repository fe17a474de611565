//! A full disk on this side, as the kernel gives it (`/dev/full`): the profiler is off afterwards, and
//! nothing is half written under its final name.

#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use steptally_capture::engine::Engine;
use steptally_capture::http::Keys;
use steptally_capture::replay::ReplayOptions;
use steptally_capture::session::{Ending, Phase};
use support::{World, recorded, run_during};
use tokio::sync::watch;

/// Whatever is written to `path` from now on finds no room.
fn fill(path: &Path) {
    let _ = fs::remove_file(path);
    symlink("/dev/full", path).unwrap();
}

/// A capture during which, from `phase` on, the manifest cannot be written.
async fn without_room_for_the_manifest(phase: Phase) -> World {
    let is_full = std::sync::atomic::AtomicBool::new(false);
    let during = move |now, out: &Path| {
        is_full.fetch_or(now == phase, std::sync::atomic::Ordering::Relaxed);
        if is_full.load(std::sync::atomic::Ordering::Relaxed) {
            fill(&out.join("manifest.json.partial"));
        }
    };
    let (_user, interrupt) = watch::channel(false);
    run_during(ReplayOptions::new(recorded(1)), Keys::default(), |_| {}, during, interrupt).await
}

#[tokio::test(start_paused = true)]
async fn a_manifest_without_room_ends_the_capture() {
    // In each phase: how often the profiler is started, and stopped.
    for (phase, starts, stops) in [
        (Phase::Baseline, 0, 0),
        (Phase::Load, 0, 0),
        (Phase::Arm, 0, 0),
        (Phase::Window, 1, 1),
        (Phase::Settle, 1, 1),
        (Phase::Verify, 1, 0),
        (Phase::After, 1, 0),
    ] {
        let world = without_room_for_the_manifest(phase).await;
        let failure = world.failure();
        assert_eq!(failure.code, "disk_full", "{phase:?}: {failure:?}");
        assert!(failure.message.contains("manifest.json: No space left"), "{failure}");
        assert_eq!((world.starts(), world.stops()), (starts, stops), "{phase:?}");
        assert_eq!(world.replay.open_connections(), 0);
        // What was written last is there in one piece.
        assert!(!world.manifest().tool.is_empty());
        let out = world.folder.path().join("out");
        let partial = fs::symlink_metadata(out.join("manifest.json.partial"));
        assert!(partial.is_err(), "{phase:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_trace_that_cannot_be_copied_is_kept_where_it_is() {
    // From another disk traces are copied, not renamed.
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("SKIPPED: /dev/shm cannot be written");
        return;
    };
    let here = tempfile::tempdir().unwrap();
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    if device(other.path()) == device(here.path()) {
        eprintln!("SKIPPED: /dev/shm is on the disk of the temporary folder");
        return;
    }
    let mut replay = ReplayOptions::new(recorded(2));
    replay.recorded.engine = Engine::Vllm;
    replay.folder = Some(other.path().to_owned());
    let incoming = other.path().to_owned();
    // The first of two traces finds no room.
    let once = std::sync::Once::new();
    let during = move |phase, out: &Path| {
        if phase == Phase::Collect {
            once.call_once(|| {
                let name = fs::read_dir(&incoming).unwrap().filter_map(|entry| {
                    let name = entry.unwrap().file_name().into_string().unwrap();
                    name.contains("rank0").then_some(name)
                });
                let name = name.last().unwrap();
                fill(&out.join(name).with_extension("partial"));
            });
        }
    };
    let (_user, interrupt) = watch::channel(false);
    let folder = other.path().to_owned();
    let world = run_during(
        replay,
        Keys::default(),
        |options| {
            options.server_folder = Some(folder);
            options.ranks = Some(2);
        },
        during,
        interrupt,
    )
    .await;
    let failure = world.failure();
    assert_eq!(failure.code, "disk_full", "{failure:?}");
    assert!(failure.hint.as_ref().unwrap().contains("it is kept in /dev/shm"), "{failure:?}");
    assert!(matches!(world.ending(), Ending::Failed(_)));
    assert_eq!((world.starts(), world.stops()), (1, 1));
    // `check` holds for what is in the folder: the second trace, whole, and nothing partial.
    world.check();
    let files = world.manifest().files;
    assert_eq!(files.len(), 2);
    let [kept, moved] = &files[..] else { unreachable!() };
    assert!(kept.path.starts_with(other.path().to_str().unwrap()) && kept.complete, "{kept:?}");
    assert!(Path::new(&kept.path).is_file());
    assert!(
        !moved.path.contains('/') && world.folder.path().join("out").join(&moved.path).is_file()
    );
}
