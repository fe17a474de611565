//! Replays of every trace of the shared folder without any change.

use std::path::{Path, PathBuf};

use steptally_import::{ImportOptions, import_path};

use super::{Change, Pace, Replay, run};
use crate::categories::Categories;
use crate::gpu::{self, Lane};
use crate::links::{ApiIndex, OpTree};
use crate::{Config, collectives, quality, steps, view};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

#[test]
fn an_unchanged_replay_of_every_trace_gives_its_periods_to_the_nanosecond() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("STEPTALLY_SHARED").map_or(beside, PathBuf::from);
    if !shared.join("traces/truth.jsonl").exists() {
        eprintln!("SKIPPED: no traces in {}", shared.display());
        return;
    }
    let mut paths = Vec::new();
    for folder in ["traces", "captures"] {
        files(&shared.join(folder), &mut paths);
    }
    paths.sort();
    let (config, categories) = (Config::default(), Categories::builtin());
    let (mut periods, mut matched_count) = (0, 0);
    for path in paths {
        let Ok(import) = import_path(&path, &ImportOptions::default()) else { continue };
        let links: Vec<_> =
            import.traces.iter().map(|trace| (ApiIndex::new(trace), OpTree::new(trace))).collect();
        let mut lanes: Vec<Lane<'_>> = Vec::new();
        let mut of_lane = Vec::new();
        for (trace, links) in import.traces.iter().zip(&links) {
            for mut lane in gpu::lanes(trace) {
                quality::gate(&mut lane);
                lanes.push(lane);
                of_lane.push(links);
            }
        }
        let apis: Vec<&ApiIndex> = of_lane.iter().map(|(api, _)| api).collect();
        let detection = steps::detect(&lanes, &apis, &config);
        let (lane_steps, selection) = steps::select(&detection, &config);
        let (scope, views) =
            view::views(&lanes, &of_lane, &lane_steps, selection.as_ref(), &categories);
        let matched = collectives::collectives(scope, &views).matched;
        let with_index = views.iter().enumerate();
        let replays: Vec<Replay<'_>> =
            with_index.filter_map(|(index, view)| Replay::new(index, view)).collect();
        let keep = |replay: &Replay<'_>| vec![Change::Keep; replay.view.lane.ops.len()];
        let changes: Vec<_> = replays.iter().map(keep).collect();
        for unchanged in run(&replays, &matched, &changes, Pace::CAPTURED) {
            assert_eq!(unchanged.after, unchanged.before, "{}", path.display());
            periods += unchanged.before.len();
        }
        matched_count += matched.len();
    }
    // The captures alone have more than a hundred whole steps.
    assert!(periods > 100, "{periods}");
    // The merged capture of two ranks has 4 whole steps with 14 collectives.
    assert!(matched_count >= 4 * 14, "{matched_count}");
}
