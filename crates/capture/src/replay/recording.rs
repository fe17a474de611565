//! What a replay replays: replies, a pace, traces.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use hyper::body::Bytes;
use steptally_trace_model::manifest::CaptureManifest;

use crate::engine::Engine;
use crate::error::Failure;
use crate::record::MANIFEST_NAME;

/// A trace of one rank.
#[derive(Clone, Debug)]
pub struct RecordedTrace {
    /// Label of the rank: `TP-0`.
    pub rank: String,
    /// Content of the file.
    pub content: Bytes,
}

/// How fast the recorded server was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// From a request to its first token.
    pub first_token: Duration,
    /// A decode step without a profiler.
    pub step: Duration,
    /// A decode step under the profiler.
    pub profiled_step: Duration,
    /// From the last step to the first byte of a trace.
    pub before_export: Duration,
    /// Between two pieces of a trace.
    pub between_pieces: Duration,
    /// Bytes of a piece.
    pub piece: usize,
    /// Until a start of the profiler is answered.
    pub start: Duration,
}

impl Default for Pace {
    /// As recorded: SGLang 0.5.16 with CUDA graphs, model A at batch size 1.
    fn default() -> Self {
        Self {
            first_token: Duration::from_millis(17),
            step: Duration::from_micros(1139),
            profiled_step: Duration::from_micros(2390),
            before_export: Duration::from_millis(37),
            between_pieces: Duration::from_millis(15),
            piece: 25_600,
            start: Duration::from_millis(35),
        }
    }
}

/// A recorded server.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What it is called.
    pub name: String,
    /// The engine it behaves as.
    pub engine: Engine,
    /// Its traces, one per rank.
    pub traces: Vec<RecordedTrace>,
    /// How fast it was.
    pub pace: Pace,
}

/// A capture of this project: five decode steps at batch size 1 with CUDA graphs.
const DEMO: &[u8] = include_bytes!("../../data/sglang-decode-graphs-TP-0.trace.json.gz");

impl Recorded {
    /// The capture that is built in.
    #[must_use]
    pub fn demo() -> Self {
        Self {
            name: "SGLang 0.5.16 on one NVIDIA H200, a Qwen3-MoE of 6 layers, CUDA graphs"
                .to_owned(),
            engine: Engine::Sglang,
            traces: vec![RecordedTrace {
                rank: "TP-0".to_owned(),
                content: Bytes::from_static(DEMO),
            }],
            pace: Pace::default(),
        }
    }

    /// The traces in a folder, one per rank: the rank in their names, else the next in order of names
    /// that none claims. With a manifest of a capture beside them, its pace.
    ///
    /// # Errors
    /// When the folder cannot be read, holds no compressed trace, or two that claim one rank.
    pub fn from_folder(folder: &Path) -> Result<Self, Failure> {
        let unreadable = |error| Failure::io("read the folder", folder, &error);
        let mut names: Vec<_> = fs::read_dir(folder)
            .map_err(unreadable)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.ends_with(".trace.json.gz") && !name.starts_with("merged-"))
            .collect();
        names.sort();
        if names.is_empty() {
            return Err(Failure::new(
                "no_trace",
                format!("no *.trace.json.gz in {}", folder.display()),
            )
            .hint("give the folder of one capture, with a trace per rank"));
        }
        let mut traces = Vec::new();
        for (rank, name) in by_rank(&names)? {
            let path = folder.join(name);
            let content = fs::read(&path).map_err(|error| Failure::io("read", &path, &error))?;
            traces.push(RecordedTrace { rank: format!("TP-{rank}"), content: content.into() });
        }
        let manifest = fs::read_to_string(folder.join(MANIFEST_NAME))
            .ok()
            .and_then(|text| serde_json::from_str::<CaptureManifest>(&text).ok());
        Ok(Self {
            name: format!("the traces in {}", folder.display()),
            engine: Engine::Sglang,
            traces,
            pace: manifest.as_ref().map_or_else(Pace::default, pace_of),
        })
    }
}

/// The traces in order of their ranks.
fn by_rank(names: &[String]) -> Result<BTreeMap<u32, &str>, Failure> {
    let mut ranks = BTreeMap::new();
    for name in names {
        let Some(rank) = claimed_rank(name) else { continue };
        if let Some(first) = ranks.insert(rank, name.as_str()) {
            let text = format!("rank {rank} is claimed by two files: {first} and {name}");
            return Err(Failure::new("rank_conflict", text).hint(
                "a server is replayed from one capture: give a folder with a trace per rank",
            ));
        }
    }
    let mut free = 0;
    for name in names.iter().filter(|name| claimed_rank(name).is_none()) {
        while ranks.contains_key(&free) {
            free += 1;
        }
        ranks.insert(free, name);
    }
    Ok(ranks)
}

/// The rank that SGLang puts into a name: `1790000000-TP-3.trace.json.gz`, also with `-DECODE` behind.
fn claimed_rank(name: &str) -> Option<u32> {
    let (_, behind) = name.split_once("TP-")?;
    let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
    behind[..digits].parse().ok()
}

fn pace_of(manifest: &CaptureManifest) -> Pace {
    let mut pace = Pace::default();
    let length = |ns: f64| Duration::from_nanos(ns.max(1.0) as u64);
    if let Some(baseline) = &manifest.baseline_before {
        pace.step = length(baseline.tpot_ns.median);
        pace.first_token = length(baseline.ttft_ns.median);
        pace.profiled_step = pace.step;
    }
    if let Some(period) = manifest.verification.as_ref().and_then(|found| found.period_ns) {
        pace.profiled_step = length(period);
    }
    pace
}

#[cfg(test)]
mod tests {
    use steptally_trace_model::manifest::{Baseline, Spread, Verification};

    use super::*;

    #[test]
    fn the_demo_is_the_fixture() {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fixtures/sglang-h200/decode-graphs-TP-0.trace.json.gz");
        match fs::read(&fixture) {
            Ok(fixture) => assert!(fixture == DEMO, "what truth.json says of it would not hold"),
            Err(_) => eprintln!("SKIPPED: {} is not there", fixture.display()),
        }
    }

    #[test]
    fn traces_go_by_the_rank_in_their_names() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let ranks = by_rank(&names).map_err(|failure| failure.message)?;
            Ok::<_, String>(ranks.into_iter().map(|(r, n)| (r, n.to_owned())).collect::<Vec<_>>())
        };
        let owned = |rank: u32, name: &str| (rank, name.to_owned());
        let ranks = of(&["1-TP-0.x", "1-TP-10.x", "1-TP-2.x"]);
        assert_eq!(
            ranks,
            Ok(vec![owned(0, "1-TP-0.x"), owned(2, "1-TP-2.x"), owned(10, "1-TP-10.x")])
        );
        assert_eq!(of(&["a.x", "b-TP-0.x"]), Ok(vec![owned(0, "b-TP-0.x"), owned(1, "a.x")]));
        let error = of(&["a-TP-0-DECODE.x", "b-TP-0.x"]).unwrap_err();
        assert_eq!(error, "rank 0 is claimed by two files: a-TP-0-DECODE.x and b-TP-0.x");
    }

    #[test]
    fn a_folder_with_a_manifest() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Recorded::from_folder(folder.path()).unwrap_err().code, "no_trace");
        for name in
            ["1-TP-0.trace.json.gz", "1-TP-1.trace.json.gz", "merged-1.trace.json.gz", "notes"]
        {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let spread = |median| Spread { median, ..Spread::default() };
        let manifest = CaptureManifest {
            baseline_before: Some(Baseline {
                tpot_ns: spread(2e6),
                ttft_ns: spread(3e7),
                ..Baseline::default()
            }),
            verification: Some(Verification { period_ns: Some(5e6), ..Verification::default() }),
            ..CaptureManifest::default()
        };
        fs::write(folder.path().join(MANIFEST_NAME), serde_json::to_string(&manifest).unwrap())
            .unwrap();
        let recorded = Recorded::from_folder(folder.path()).unwrap();
        assert_eq!(recorded.traces.len(), 2);
        assert_eq!(recorded.traces[1].rank, "TP-1");
        assert_eq!(recorded.pace.step, Duration::from_millis(2));
        assert_eq!(recorded.pace.first_token, Duration::from_millis(30));
        assert_eq!(recorded.pace.profiled_step, Duration::from_millis(5));
    }
}
