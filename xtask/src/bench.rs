//! `cargo xtask bench`: what `steptally analyze` costs, against `gzip -dc` on the same machine.

pub(crate) mod measure;

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use measure::{Cost, measure};

use crate::replicate::Template;
use crate::run::{cargo, output, root};

/// The trace that is repeated: decode steps of an eager SGLang server, with marks and shapes.
const FIXTURE: &str = "fixtures/sglang-h200/decode-eager-TP-0.trace.json.gz";

/// Peak memory must stay under this.
const MOST_MEMORY_BYTES: f64 = 300e6;

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many events the trace has.
    #[arg(long, default_value_t = 2_100_000)]
    events: usize,
    /// How often each command is run; medians are printed.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// The fixture to repeat, `.json` or `.json.gz`.
    #[arg(long, default_value = FIXTURE)]
    fixture: PathBuf,
    /// Uses the trace of an earlier run.
    #[arg(long)]
    reuse: bool,
    /// Succeeds also when a limit is exceeded.
    #[arg(long)]
    report_only: bool,
}

/// Makes the trace, measures, prints. True when every limit holds or only a report was asked for.
pub(crate) fn run(args: &Args) -> Result<bool> {
    if args.runs == 0 {
        bail!("--runs must be at least 1");
    }
    let target = target_directory()?;
    let folder = target.join("bench");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let (json, gz) = (folder.join("big.json"), folder.join("big.json.gz"));
    if !(args.reuse && json.is_file() && gz.is_file()) {
        make_trace(&root().join(&args.fixture), args.events, &json)?;
        compress(&json, &gz)?;
    }

    println!("building steptally (release)");
    output(&mut cargo(&["build", "--release", "--locked", "--package", "steptally"]))?;
    let steptally = target.join("release/steptally").display().to_string();
    let (json, gz) = (json.display().to_string(), gz.display().to_string());

    let pin = pin_to_two_cores();
    let commands = [
        ("gzip -dc big.json.gz", vec!["gzip", "-dc", &gz]),
        ("steptally analyze big.json", vec![&steptally, "analyze", &json]),
        ("steptally analyze big.json.gz", vec![&steptally, "analyze", &gz]),
    ];
    let mut costs: [Vec<Cost>; 3] = Default::default();
    // Taking turns spreads a noisy moment over all; the first round only fills the page cache.
    for round in 0..=args.runs {
        for (index, (_, command)) in commands.iter().enumerate() {
            let pinned: Vec<&str> = pin.iter().chain(command).copied().collect();
            let cost = measure(&pinned)?;
            if round > 0 {
                costs[index].push(cost);
            }
        }
    }
    let medians = costs.map(|costs| median_cost(&costs));

    println!("\nmedians of {} runs", args.runs);
    println!("{:<32}{:>10}{:>10}{:>12}", "", "CPU s", "wall s", "peak MB");
    for ((name, _), cost) in commands.iter().zip(&medians) {
        let peak_mb = cost.peak_bytes / 1e6;
        println!("{name:<32}{:>10.2}{:>10.2}{peak_mb:>12.0}", cost.cpu_s, cost.wall_s);
    }
    let [gzip, plain, packed] = medians;
    let two_cores = std::thread::available_parallelism().is_ok_and(|cores| cores.get() >= 2);
    let limits = [
        Some(("big.json: CPU / CPU of gzip -dc", plain.cpu_s / gzip.cpu_s, 1.0)),
        Some(("big.json.gz: CPU / CPU of gzip -dc", packed.cpu_s / gzip.cpu_s, 1.6)),
        two_cores.then_some(("big.json: wall / CPU, 2 cores", plain.wall_s / plain.cpu_s, 0.7)),
        two_cores.then_some((
            "big.json.gz: wall / CPU, 2 cores",
            packed.wall_s / packed.cpu_s,
            0.7,
        )),
        Some(("big.json: peak memory / 300 MB", plain.peak_bytes / MOST_MEMORY_BYTES, 1.0)),
        Some(("big.json.gz: peak memory / 300 MB", packed.peak_bytes / MOST_MEMORY_BYTES, 1.0)),
    ];
    println!();
    let mut passed = true;
    for (name, ratio, limit) in limits.into_iter().flatten() {
        let holds = ratio <= limit;
        passed &= holds;
        println!(
            "{name:<40}{ratio:>6.2}  limit {limit:.1}  {}",
            if holds { "pass" } else { "FAIL" }
        );
    }
    if !two_cores {
        println!("SKIPPED: wall / CPU, there is one core only");
    }
    Ok(passed || args.report_only)
}

fn target_directory() -> Result<PathBuf> {
    let metadata = output(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).context("cargo metadata")?;
    let target = metadata["target_directory"].as_str().context("no target directory")?;
    Ok(PathBuf::from(target))
}

fn make_trace(fixture: &Path, events: usize, path: &Path) -> Result<()> {
    let name = || fixture.display().to_string();
    let mut text = String::new();
    if fixture.extension().is_some_and(|extension| extension == "gz") {
        text = output(Command::new("gzip").arg("-dc").arg(fixture))?;
    } else {
        File::open(fixture).with_context(name)?.read_to_string(&mut text).with_context(name)?;
    }
    let template = Template::new(&text).with_context(name)?;
    let copies = template.copies_for(events);
    let file = File::create(path).with_context(|| path.display().to_string())?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    template.write(copies, &mut out)?;
    out.flush()?;
    let (bytes, events) = (std::fs::metadata(path)?.len(), template.event_count(copies));
    println!(
        "{}: {copies} times {}, {:.1} MB, {events} events, {} bytes each",
        path.display(),
        fixture.file_name().unwrap_or_default().display(),
        bytes as f64 / 1e6,
        bytes / events as u64
    );
    Ok(())
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

/// What to put before a command so that it has two cores, where there are more.
fn pin_to_two_cores() -> Vec<&'static str> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cores <= 2 {
        return Vec::new();
    }
    let pin = ["taskset", "-c", "0,1"];
    let works = Command::new(pin[0]).args(&pin[1..]).arg("true").status();
    if works.is_ok_and(|status| status.success()) {
        return pin.to_vec();
    }
    println!("note: {cores} cores in use, taskset does not work here");
    Vec::new()
}

fn median_cost(costs: &[Cost]) -> Cost {
    let median = |of: fn(&Cost) -> f64| {
        let mut values: Vec<f64> = costs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        match values.len() % 2 {
            0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        }
    };
    Cost {
        cpu_s: median(|cost| cost.cpu_s),
        wall_s: median(|cost| cost.wall_s),
        peak_bytes: median(|cost| cost.peak_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_taken_column_by_column() {
        let cost = |cpu_s, wall_s, peak_bytes| Cost { cpu_s, wall_s, peak_bytes };
        let costs = [cost(3.0, 1.0, 10.0), cost(1.0, 2.0, 30.0), cost(2.0, 9.0, 20.0)];
        assert_eq!(median_cost(&costs), cost(2.0, 2.0, 20.0));
        assert_eq!(median_cost(&costs[..2]), cost(2.0, 1.5, 20.0));
    }
}
