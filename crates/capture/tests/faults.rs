//! One test per way a server misbehaves: the right message, one stop where one is due, nothing left
//! behind, a true manifest. The clock is paused, so minutes of waiting take no time.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::time::Duration;

use steptally_capture::engine::Engine;
use steptally_capture::http::Keys;
use steptally_capture::replay::{Fault, ReplayOptions};
use steptally_capture::session::{Ending, Phase};
use steptally_capture::{CaptureOptions, Secret};
use steptally_trace_model::manifest::SpeedVerdict;
use support::{World, recorded, run};

async fn with(fault: Fault) -> World {
    let world =
        run(ReplayOptions::new(recorded(2)).fault(fault), Keys::default(), |_| {}, None).await;
    world.check();
    world
}

/// The code of the failure, whether the hint and message say what they should, and how many stops.
fn expect(world: &World, code: &str, words: &str, stops: usize) {
    let failure = world.failure();
    assert_eq!(failure.code, code, "{failure:?}");
    let text = format!("{} {}", failure.message, failure.hint.as_deref().unwrap_or_default());
    assert!(text.contains(words), "{text}");
    assert_eq!(world.stops(), stops, "{:?}", world.replay.requests());
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_wrong() {
    let alone = |options: &mut CaptureOptions| options.shape.batch_size = 1;
    let world = run(ReplayOptions::new(recorded(2)), Keys::default(), alone, None).await;
    world.check();
    assert_eq!(world.ending(), &Ending::Complete);
    // It ends itself after its steps.
    assert_eq!((world.starts(), world.stops()), (1, 0));
    let manifest = world.manifest();
    assert_eq!(manifest.expected_ranks, ["TP-0", "TP-1"]);
    assert!(manifest.missing_ranks.is_empty());
    assert_eq!(manifest.files.len(), 2);
    assert!(manifest.files.iter().all(|file| file.complete));
    // 2 rounds of 1 request of 32 tokens: 31 pauses each.
    let baseline = manifest.baseline_before.unwrap();
    assert_eq!((baseline.requests, baseline.failed_requests, baseline.itl_ns.n), (2, 0, 62));
    // The replay steps every 1.139 ms; timers have a resolution of 1 ms.
    assert!((1.1e6..1.2e6).contains(&baseline.tpot_ns.median), "{:?}", baseline.tpot_ns);
    let dilation = manifest.verification.unwrap().dilation_ratio.unwrap();
    assert!((2.0..2.2).contains(&dilation), "{dilation}");
    // A replay is as fast afterwards.
    let after = manifest.baseline_after.unwrap();
    assert_eq!(after.requests, 2);
    assert_eq!(manifest.speed_after.unwrap().verdict, SpeedVerdict::WithinNoise);
    assert!(!world.folder.path().join("out/incoming").exists());
    let body = &manifest.profiler.unwrap().body;
    assert_eq!((body["num_steps"].as_u64(), body["with_stack"].as_bool()), (Some(5), Some(false)));
}

#[tokio::test(start_paused = true)]
async fn hangs_on_start() {
    // It is on nevertheless, so it is stopped.
    let world = with(Fault::HangOnStart).await;
    expect(&world, "timed_out", "arm: waited 60 s for an answer to the start of the profiler", 1);
}

#[tokio::test(start_paused = true)]
async fn hangs_on_stop() {
    let options =
        ReplayOptions::new(recorded(2)).fault(Fault::HangOnStop).fault(Fault::WriteNothing);
    let world = run(options, Keys::default(), |_| {}, None).await;
    world.check();
    // The first failure is the one that is told; the stop was tried once.
    expect(&world, "no_trace", "no trace came within 120 s", 1);
    assert!(
        world.manifest().events.iter().any(|event| event.what.contains("Stop: gave up waiting"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_profiler_runs_already() {
    let world = with(Fault::AlreadyProfiling).await;
    // It is somebody else's: it is not stopped.
    expect(&world, "already_profiling", "a profiler is probably running already", 0);
}

#[tokio::test(start_paused = true)]
async fn unavailable_for_a_minute_while_it_exports() {
    let world = with(Fault::UnavailableFor(Duration::from_secs(60))).await;
    assert_eq!(world.ending(), &Ending::Complete);
    assert_eq!(world.stops(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_export_of_ten_minutes_that_grows() {
    let world = with(Fault::ExportFor(Duration::from_secs(600))).await;
    assert_eq!(world.ending(), &Ending::Complete);
}

#[tokio::test(start_paused = true)]
async fn dies_in_the_middle_of_the_export() {
    let world = with(Fault::DieMidExport).await;
    expect(&world, "server_died", "accepts no connections", 0);
    let manifest = world.manifest();
    assert_eq!(manifest.missing_ranks, ["TP-0", "TP-1"]);
    // What it wrote is kept, and not under a final name.
    assert_eq!(manifest.files.len(), 1);
    assert!(!manifest.files[0].complete && manifest.files[0].path.starts_with("incoming/"));
}

#[tokio::test(start_paused = true)]
async fn a_truncated_file() {
    let world = with(Fault::Truncate).await;
    expect(&world, "incomplete_trace", "traces of 0 of 2 ranks are whole", 1);
}

#[tokio::test(start_paused = true)]
async fn a_missing_rank() {
    let world = with(Fault::MissRank).await;
    expect(&world, "missing_rank", "traces of 1 of 2 ranks came", 1);
    let manifest = world.manifest();
    assert_eq!(manifest.missing_ranks, ["TP-1"]);
    assert!(manifest.files[0].complete);
}

#[tokio::test(start_paused = true)]
async fn an_empty_folder() {
    let world = with(Fault::WriteNothing).await;
    expect(&world, "no_trace", "does it see the output folder under the same path", 1);
    assert!(world.manifest().files.is_empty());
}

#[tokio::test(start_paused = true)]
async fn wrong_content() {
    let world = with(Fault::WriteHtml).await;
    expect(&world, "wrong_content", "neither gzip nor JSON", 1);
    assert!(world.manifest().files.iter().all(|file| !file.complete));
}

#[tokio::test(start_paused = true)]
async fn the_servers_disk_is_full() {
    let world = with(Fault::DiskFull).await;
    expect(&world, "incomplete_trace", "a full disk", 1);
}

#[tokio::test(start_paused = true)]
async fn our_disk_is_full() {
    let world = run(
        ReplayOptions::new(recorded(1)),
        Keys::default(),
        |options| options.min_free_bytes = u64::MAX,
        None,
    )
    .await;
    world.check();
    expect(&world, "disk_full", "--min-free", 0);
    assert_eq!(world.starts(), 0);
}

#[tokio::test(start_paused = true)]
async fn trickles() {
    let world = with(Fault::Trickle).await;
    expect(&world, "timed_out", "/server_info: waited 15 s for an answer", 0);
}

#[tokio::test(start_paused = true)]
async fn redirects() {
    let world = with(Fault::Redirect).await;
    expect(
        &world,
        "redirect",
        "redirects to http://203.0.113.1/elsewhere, which is not followed",
        0,
    );
}

#[tokio::test(start_paused = true)]
async fn a_huge_reply() {
    let world = with(Fault::HugeReply).await;
    expect(&world, "reply_too_large", "larger than 16777216 bytes", 0);
}

#[tokio::test(start_paused = true)]
async fn traffic_of_others() {
    let world = with(Fault::Traffic).await;
    expect(&world, "traffic", "--allow-traffic", 0);
    assert_eq!(world.replay.count("/generate"), 0);
    let allowed = run(
        ReplayOptions::new(recorded(1)).fault(Fault::Traffic),
        Keys::default(),
        |options| options.allow_traffic = true,
        None,
    )
    .await;
    assert_eq!(allowed.ending(), &Ending::Complete);
}

fn keys(api: Option<&str>, admin: Option<&str>) -> Keys {
    Keys { api: api.map(Secret::new), admin: admin.map(Secret::new) }
}

async fn locked(server: Keys, ours: Keys) -> World {
    let mut options = ReplayOptions::new(recorded(1));
    options.keys = server;
    let change = |options: &mut CaptureOptions| {
        options
            .command
            .extend(["--api-key", "planted-api", "--admin-key=planted-admin"].map(String::from));
    };
    let world = run(options, ours, change, None).await;
    world.check();
    let text = std::fs::read_to_string(world.folder.path().join("out/manifest.json")).unwrap();
    assert!(!text.contains("planted"), "{text}");
    world
}

#[tokio::test(start_paused = true)]
async fn keys_missing_wrong_and_right() {
    let world = locked(keys(Some("planted-api"), None), keys(None, None)).await;
    expect(&world, "unauthorized", "401", 0);
    let world = locked(keys(Some("planted-api"), None), keys(Some("planted-wrong"), None)).await;
    expect(&world, "unauthorized", "--api-key", 0);
    let world = locked(keys(Some("planted-api"), None), keys(Some("planted-api"), None)).await;
    assert_eq!(world.ending(), &Ending::Complete);
    // Once there is an admin key, only that one may profile.
    let both = || keys(Some("planted-api"), Some("planted-admin"));
    let world = locked(both(), keys(Some("planted-api"), None)).await;
    expect(&world, "forbidden", "403", 0);
    let world = locked(keys(None, Some("planted-admin")), keys(None, None)).await;
    expect(&world, "unauthorized", "--admin-key", 0);
    assert_eq!(world.starts(), 0);
    let world = locked(both(), both()).await;
    assert_eq!(world.ending(), &Ending::Complete);
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_in_every_phase() {
    let none = run(ReplayOptions::new(recorded(1)), Keys::default(), |_| {}, None).await;
    let all = [
        Phase::Preflight,
        Phase::WarmUp,
        Phase::Baseline,
        Phase::Load,
        Phase::Arm,
        Phase::Window,
        Phase::Settle,
        Phase::Collect,
        Phase::Verify,
        Phase::After,
    ];
    assert_eq!(none.phases[..all.len()], all);
    for phase in all {
        let world =
            run(ReplayOptions::new(recorded(1)), Keys::default(), |_| {}, Some(phase)).await;
        world.check();
        assert_eq!(world.ending(), &Ending::Interrupted, "{phase:?}");
        let is_on = [Phase::Arm, Phase::Window, Phase::Settle].contains(&phase);
        assert_eq!(world.stops(), usize::from(is_on), "{phase:?}: {:?}", world.replay.requests());
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_while_a_start_hangs() {
    let options = ReplayOptions::new(recorded(1)).fault(Fault::HangOnStart);
    let begin = tokio::time::Instant::now();
    let world = run(options, Keys::default(), |_| {}, Some(Phase::Arm)).await;
    world.check();
    assert_eq!(world.ending(), &Ending::Interrupted);
    assert_eq!(world.stops(), 1);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

fn vllm(world: &mut ReplayOptions, folder: &std::path::Path) {
    world.recorded.engine = Engine::Vllm;
    world.folder = Some(folder.to_owned());
}

async fn vllm_with(faults: &[Fault]) -> World {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("dp0_rank0.1.pt.trace.json.gz"), "of yesterday").unwrap();
    let mut options = ReplayOptions::new(recorded(2));
    options.faults = faults.to_vec();
    vllm(&mut options, folder.path());
    let change = |options: &mut CaptureOptions| {
        options.server_folder = Some(folder.path().to_owned());
        options.ranks = Some(2);
    };
    let world = run(options, Keys::default(), change, None).await;
    world.check();
    assert!(folder.path().join("dp0_rank0.1.pt.trace.json.gz").is_file());
    world
}

#[tokio::test(start_paused = true)]
async fn vllm_is_always_stopped_once() {
    let world = vllm_with(&[]).await;
    assert_eq!(world.ending(), &Ending::Complete);
    assert_eq!((world.starts(), world.stops()), (1, 1));
    let manifest = world.manifest();
    assert_eq!(manifest.files.len(), 2);
    assert_eq!(manifest.server.unwrap().kv_token_capacity, Some(131_072));
}

#[tokio::test(start_paused = true)]
async fn vllm_answers_a_stop_after_minutes() {
    let world = vllm_with(&[Fault::ExportFor(Duration::from_secs(400))]).await;
    assert_eq!(world.ending(), &Ending::Complete);
    assert_eq!(world.stops(), 1);
}

#[tokio::test(start_paused = true)]
async fn vllm_without_a_profiler_or_with_a_session() {
    let world = vllm_with(&[Fault::NoProfiler]).await;
    expect(&world, "no_profiler", "--profiler-config.profiler=torch", 0);
    assert_eq!(
        world.replay.requests().iter().filter(|request| request.starts_with("POST")).count(),
        0
    );
    let world = vllm_with(&[Fault::AlreadyProfiling]).await;
    expect(&world, "already_profiling", "409", 0);
}

/// A capture of a server that is slower for so long afterwards: the verdict, and the notes about it.
async fn slow_afterwards(time: Duration) -> (SpeedVerdict, Vec<String>) {
    let replay = ReplayOptions::new(recorded(1)).fault(Fault::SlowAfterwards(time));
    let alone = |options: &mut CaptureOptions| options.shape.batch_size = 1;
    let world = run(replay, Keys::default(), alone, None).await;
    world.check();
    assert_eq!(world.ending(), &Ending::Complete);
    let manifest = world.manifest();
    let notes = manifest.events.into_iter().filter(|event| event.phase == "after");
    (manifest.speed_after.unwrap().verdict, notes.map(|event| event.what).collect())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_slower_for_a_while_is_measured_again() {
    // The load ends within 5 s. Then 2 requests of 32 tokens take 0.2 s, and 5 s pass: the first
    // attempt is before 8 s, the second after.
    let (verdict, notes) = slow_afterwards(Duration::from_secs(8)).await;
    assert_eq!(verdict, SpeedVerdict::WithinNoise);
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.contains("% longer than before: measuring again in 5 s"), "{note}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stays_slower_is_said_to_be() {
    let begin = tokio::time::Instant::now();
    let (verdict, notes) = slow_afterwards(Duration::from_secs(3600)).await;
    assert_eq!((verdict, notes.len()), (SpeedVerdict::Slower, 3));
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}

/// A capture of an engine that has no profiler to reach.
async fn without_profiler(engine: Engine) -> World {
    let mut options = ReplayOptions::new(recorded(1));
    options.recorded.engine = engine;
    let alone = |options: &mut CaptureOptions| options.shape.batch_size = 1;
    let world = run(options, Keys::default(), alone, None).await;
    world.check();
    assert_eq!((world.starts(), world.stops()), (0, 0));
    let manifest = world.manifest();
    // 2 rounds of a request, at the pace of the replay: 1.139 ms a step, timers of 1 ms.
    let baseline = manifest.baseline_before.unwrap();
    assert_eq!((baseline.requests, baseline.failed_requests), (2, 0));
    assert!((1.1e6..1.2e6).contains(&baseline.tpot_ns.median), "{:?}", baseline.tpot_ns);
    // Nothing was recorded, and no load was begun for it.
    assert!(manifest.profiler.is_none() && manifest.load.is_none());
    assert!(manifest.files.is_empty() && manifest.baseline_after.is_none());
    assert_eq!(world.phases.last(), Some(&Phase::Done));
    world
}

#[tokio::test(start_paused = true)]
async fn llama_cpp_has_no_profiler_but_a_speed() {
    let world = without_profiler(Engine::LlamaCpp).await;
    expect(&world, "no_profiler", "under nsys launch", 0);
    let server = world.manifest().server.unwrap();
    assert_eq!(
        (server.engine.as_str(), server.version.as_deref()),
        ("llama_cpp", Some("b6871-1f5accb8"))
    );
    assert_eq!(server.model.as_deref(), Some("/srv/model/a.gguf"));
    // 2 requests of the warm-up and 2 of the baseline.
    assert_eq!(world.replay.count("/completion"), 4);
    // It says 4 slots and a context of 4096.
    let options = |change: fn(&mut CaptureOptions)| async move {
        let mut options = ReplayOptions::new(recorded(1));
        options.recorded.engine = Engine::LlamaCpp;
        run(options, Keys::default(), change, None).await
    };
    let world = options(|options| options.shape.batch_size = 5).await;
    expect(&world, "load_shape", "at most 4 requests", 0);
    let world = options(|options| options.shape.input_len = 4090).await;
    expect(&world, "load_shape", "context of 4096", 0);
}

#[tokio::test(start_paused = true)]
async fn tensorrt_llm_has_no_profiler_over_http_but_a_speed() {
    let world = without_profiler(Engine::TensorRtLlm).await;
    expect(&world, "no_profiler", "TLLM_PROFILE_START_STOP", 0);
    let server = world.manifest().server.unwrap();
    assert_eq!(
        (server.engine.as_str(), server.version.as_deref()),
        ("tensorrt_llm", Some("1.2.0"))
    );
    assert_eq!(server.model.as_deref(), Some("/srv/model/A"));
    assert_eq!(world.replay.count("/v1/completions"), 4);
}
