//! torch.profiler JSON: `steptally analyze` against `gzip -dc` of the same trace.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::Bench;
use super::rounds::{Limit, judge};
use crate::run::{output, root};

/// The trace that is repeated: decode steps of an eager SGLang server, with marks and shapes.
const FIXTURE: &str = "fixtures/sglang-h200/decode-eager-TP-0.trace.json.gz";

/// Peak memory must stay under this.
const MOST_MEMORY_BYTES: f64 = 300e6;

/// What is measured.
#[derive(clap::Args)]
pub(crate) struct TorchArgs {
    /// How many events the JSON trace has.
    #[arg(long, default_value_t = 2_100_000)]
    events: usize,
    /// The fixture to repeat, `.json` or `.json.gz`.
    #[arg(long, default_value = FIXTURE)]
    fixture: PathBuf,
}

/// Makes the trace, measures, prints. True when every limit holds.
pub(super) fn run(args: &TorchArgs, bench: &Bench) -> Result<bool> {
    let (json, gz) = (bench.folder.join("big.json"), bench.folder.join("big.json.gz"));
    if !(bench.reuse && json.is_file() && gz.is_file()) {
        let fixture = root().join(&args.fixture);
        let mut make = Command::new(bench.make_trace()?);
        make.arg("repeat").arg(fixture).arg(args.events.to_string()).arg(&json);
        print!("{}", output(&mut make)?);
        compress(&json, &gz)?;
    }
    let (json, gz) = (json.display().to_string(), gz.display().to_string());
    let steptally = bench.steptally.as_str();
    let [gzip, plain, packed] = bench.measure([
        ("gzip -dc big.json.gz", vec!["gzip", "-dc", &gz]),
        ("steptally analyze big.json", vec![steptally, "analyze", &json]),
        ("steptally analyze big.json.gz", vec![steptally, "analyze", &gz]),
    ])?;
    let mut limits = vec![
        Limit::new("big.json: CPU / CPU of gzip -dc", plain.cpu_s / gzip.cpu_s, 1.0),
        Limit::new("big.json.gz: CPU / CPU of gzip -dc", packed.cpu_s / gzip.cpu_s, 1.6),
        Limit::new("big.json: peak memory / 300 MB", plain.peak_bytes / MOST_MEMORY_BYTES, 1.0),
        Limit::new("big.json.gz: peak memory / 300 MB", packed.peak_bytes / MOST_MEMORY_BYTES, 1.0),
    ];
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() >= 2) {
        let two_cores = |cost: super::measure::Cost| cost.wall_s / cost.cpu_s;
        limits.push(Limit::new("big.json: wall / CPU, 2 cores", two_cores(plain), 0.7));
        limits.push(Limit::new("big.json.gz: wall / CPU, 2 cores", two_cores(packed), 0.7));
    } else {
        println!("SKIPPED: wall / CPU, there is one core only");
    }
    Ok(judge(&limits))
}

fn compress(json: &Path, gz: &Path) -> Result<()> {
    let out = File::create(gz).with_context(|| gz.display().to_string())?;
    let mut command = Command::new("gzip");
    command.args(["-6", "-c"]).arg(json).stdout(Stdio::from(out));
    let status = command.status().context("cannot start gzip")?;
    if !status.success() {
        bail!("gzip: {status}");
    }
    println!("{}: {:.1} MB", gz.display(), std::fs::metadata(gz)?.len() as f64 / 1e6);
    Ok(())
}
