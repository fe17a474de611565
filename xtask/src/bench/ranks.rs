//! Many ranks: what `steptally analyze` costs for a whole run against one rank of it.
//!
//! The run is synthetic: eight ranks made from a captured run of two.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::Bench;
use super::rounds::{Limit, judge};
use crate::run::{output, root};

/// CPU time of N ranks may be this much more than N times that of one.
const MOST_CPU: f64 = 1.15;

/// What is measured.
#[derive(clap::Args)]
pub(crate) struct RanksArgs {
    /// How many ranks the run has.
    #[arg(long, default_value_t = 8)]
    ranks: u32,
    /// Bytes of JSON per rank, at least; 0: as long as captured.
    #[arg(long, default_value_t = 480_000_000)]
    rank_bytes: u64,
    /// The run to make it from: a folder with `..-TP-0.trace.json.gz` and so on.
    #[arg(long, default_value = "fixtures/sglang-h200-tp2/eager")]
    captured: PathBuf,
}

/// Makes the run, measures, prints. True when every limit holds.
pub(super) fn run(args: &RanksArgs, bench: &Bench) -> Result<bool> {
    let captured = root().join(&args.captured);
    let of = captured.file_name().unwrap_or_default().display();
    let name = format!("{}-{of}-{}", args.ranks, args.rank_bytes);
    let folder = bench.folder.join("ranks").join(name);
    let ending = if args.rank_bytes == 0 { "json.gz" } else { "json" };
    let file = |rank: u32| folder.join(format!("synthetic-TP-{rank}.trace.{ending}"));
    if !(bench.reuse && (0..args.ranks).all(|rank| file(rank).is_file())) {
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let mut make = Command::new(bench.make_trace()?);
        make.arg("ranks").arg(captured).arg(args.ranks.to_string());
        make.arg(args.rank_bytes.to_string()).arg(&folder);
        print!("{}", output(&mut make)?);
    }
    let (all, one) = (folder.display().to_string(), file(0).display().to_string());
    let steptally = bench.steptally.as_str();
    let name = format!("steptally analyze, {} ranks", args.ranks);
    let [one, all] = bench.measure([
        ("steptally analyze, rank 0", vec![steptally, "analyze", &one]),
        (&name, vec![steptally, "analyze", &all]),
    ])?;
    let ranks = f64::from(args.ranks);
    println!("synthetic run of {} ranks, all to one", args.ranks);
    println!("{:<48}{:>7.3}", "wall / wall of one rank", all.wall_s / one.wall_s);
    Ok(judge(&[
        Limit::new("CPU / CPU of one rank", all.cpu_s / one.cpu_s, MOST_CPU * ranks),
        Limit::new("peak memory / that of one rank", all.peak_bytes / one.peak_bytes, ranks),
    ]))
}
