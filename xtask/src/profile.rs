//! `cargo xtask profile`: the whole pipeline against a tensor-parallel deployment, into one folder.
//!
//! ```text
//!   doctor ──> profile (baseline, capture, baseline) ──> analyze ──> gap ──> checks
//!   doctor.txt  capture/  profile.txt                   report.*    gap.*   report.md
//! ```
//!
//! It runs the program as a user would. A part that fails leaves what came before it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::run::{cargo, output, target_directory};

/// What to run when there is no server.
const NO_SERVER: &str = "\
Start one first, with as many ranks as GPUs (docs/guide/tp8.md has all steps):

  python3 -m sglang.launch_server --model-path MODEL --load-format dummy --tp 8 \\
      --kv-cache-dtype fp8_e4m3 --host 127.0.0.1 --port 30000

and without one, against a recorded server of two ranks:

  cargo run --release -- serve-replay fixtures/sglang-h200-tp2/graphs --port 30000
  cargo xtask profile --url http://127.0.0.1:30000 --tp 2 --steps 5 --model fixtures/qwen3-moe-6-layers";

/// The program's exit code when part of the input could not be read: there is output.
const PARTIAL: i32 = 5;

/// Arguments of `cargo xtask profile`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server's URL.
    #[arg(long)]
    url: String,
    /// Ranks that must be there.
    #[arg(long, default_value_t = 8)]
    tp: u32,
    /// Folder for all of it, new or empty [default: target/profile/TIME].
    #[arg(long)]
    out: Option<PathBuf>,
    /// The model's config.json, or its folder [default: what the server says, when it is on this machine].
    #[arg(long)]
    model: Option<PathBuf>,
    /// Which GPU, such as H200 [default: the trace's].
    #[arg(long)]
    gpu: Option<String>,
    /// What `steptally bench -o FILE` measured on this GPU, for the bound.
    #[arg(long)]
    measured: Option<PathBuf>,
    /// A built `steptally` [default: built now, in release].
    #[arg(long)]
    program: Option<PathBuf>,
    /// Decode steps to record.
    #[arg(long, default_value_t = 10)]
    steps: u32,
    /// More arguments for `steptally profile`, after `--`.
    #[arg(last = true)]
    more: Vec<String>,
}

/// Runs all parts, prints the checks. True when every part ran and every check holds.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let pipeline = Pipeline { program: program(args)?, args, out: folder(args)? };
    pipeline.find_server()?;
    let captured = pipeline.capture()?;
    let mut checks = Checks::default();
    checks.add("the capture is complete and verified", captured, "see profile.txt");
    let report = pipeline.analyze()?;
    let gap = pipeline.gap()?;
    check_ranks(&report, args.tp, &mut checks);
    pipeline.summarize(&report, &checks, gap)?;
    print!("{}", checks.text());
    println!("kept in {}: report.md first", pipeline.out.display());
    Ok(checks.passed())
}

fn program(args: &Args) -> Result<PathBuf> {
    if let Some(program) = &args.program {
        return Ok(program.clone());
    }
    println!("building steptally (release)");
    output(&mut cargo(&["build", "--release", "--locked", "--package", "steptally"]))?;
    Ok(target_directory()?.join("release/steptally"))
}

/// The output folder, made; an error when there is something in it.
fn folder(args: &Args) -> Result<PathBuf> {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            target_directory()?.join("profile").join(now.as_secs().to_string())
        }
    };
    let name = || out.display().to_string();
    std::fs::create_dir_all(&out).with_context(name)?;
    if std::fs::read_dir(&out).with_context(name)?.next().is_some() {
        bail!("{} is not empty", out.display());
    }
    Ok(out)
}

struct Pipeline<'a> {
    program: PathBuf,
    args: &'a Args,
    out: PathBuf,
}

impl Pipeline<'_> {
    fn capture_folder(&self) -> PathBuf {
        self.out.join("capture")
    }

    /// Runs the program with its stdout in a file; gives the exit code. Progress is shown.
    fn steptally(&self, file: &str, args: &[&str]) -> Result<i32> {
        println!("steptally {}", args.join(" "));
        let path = self.out.join(file);
        let out = std::fs::File::create(&path).with_context(|| path.display().to_string())?;
        let mut command = Command::new(&self.program);
        command.args(args).stdin(Stdio::null()).stdout(out);
        let status = command.status().with_context(|| self.program.display().to_string())?;
        status.code().with_context(|| format!("steptally {}: {status}", args[0]))
    }

    /// What the server is, before anything is started there.
    fn find_server(&self) -> Result<()> {
        let url = self.args.url.as_str();
        if self.steptally("doctor.txt", &["doctor", "--url", url])? != 0 {
            bail!("no server to profile at {url}\n\n{NO_SERVER}");
        }
        self.steptally("doctor.json", &["doctor", "--url", url, "--format", "json"])?;
        let doctor = read_json(&self.out.join("doctor.json"))?;
        let (tp, wanted) = (doctor["server"]["parallel"]["tp"].as_u64(), self.args.tp);
        match tp {
            Some(tp) if tp != u64::from(wanted) => bail!(
                "the server runs on {tp} ranks, not {wanted}: nothing was captured\n\
                 hint: start it with --tp {wanted}, or give --tp {tp} here"
            ),
            _ => Ok(()),
        }
    }

    /// Baseline, capture of all ranks, baseline. False when the capture failed but left traces.
    fn capture(&self) -> Result<bool> {
        let (folder, steps) = (self.capture_folder(), self.args.steps.to_string());
        let folder_name = folder.display().to_string();
        let url = self.args.url.as_str();
        let mut args = vec!["profile", "--url", url, "--steps", &steps, "--out", &folder_name];
        args.extend(self.args.more.iter().map(String::as_str));
        let code = self.steptally("profile.txt", &args)?;
        let manifest = folder.join("manifest.json");
        if manifest.is_file() {
            std::fs::copy(&manifest, self.out.join("manifest.json"))?;
        }
        let has_traces = !as_list(&read_json(&manifest)?["files"]).is_empty();
        if code != 0 && !has_traces {
            bail!("steptally profile: exit code {code}, no trace was captured");
        }
        Ok(code == 0)
    }

    /// The report of all ranks; gives its JSON form.
    fn analyze(&self) -> Result<Value> {
        let folder = self.capture_folder().display().to_string();
        for (file, format) in [("report.txt", "text"), ("report.json", "json")] {
            let code = self.steptally(file, &["analyze", &folder, "--format", format])?;
            if code != 0 && code != PARTIAL {
                bail!("steptally analyze: exit code {code}");
            }
        }
        read_json(&self.out.join("report.json"))
    }

    /// The step against its bound. False when there is none: the model is not known, for one.
    fn gap(&self) -> Result<bool> {
        let (folder, tp) = (self.capture_folder().display().to_string(), self.args.tp.to_string());
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let (model, measured) = (path(&self.args.model), path(&self.args.measured));
        let forms = [("gap.txt", "text"), ("gap.json", "json"), ("gap.md", "markdown")];
        for (file, format) in forms {
            let mut args = vec!["gap", folder.as_str(), "--tp", &tp, "--format", format];
            args.extend(model.iter().flat_map(|model| ["--model", model.as_str()]));
            args.extend(measured.iter().flat_map(|file| ["--measured", file.as_str()]));
            args.extend(self.args.gpu.iter().flat_map(|gpu| ["--gpu", gpu.as_str()]));
            let code = self.steptally(file, &args)?;
            if code != 0 && code != PARTIAL {
                for (file, _) in forms {
                    let _ = std::fs::remove_file(self.out.join(file));
                }
                println!("no bound: see above (--model, --gpu)");
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// `report.md`: the checks, the bound, the whole report.
    fn summarize(&self, report: &Value, checks: &Checks, gap: bool) -> Result<()> {
        let read = |file: &str| {
            std::fs::read_to_string(self.out.join(file)).with_context(|| file.to_owned())
        };
        let ranks = as_list(&report["ranks"]).len();
        let mut text = format!("# A capture of {ranks} ranks\n\n```\n{}```\n", checks.text());
        if gap {
            let _ = write!(text, "\n{}\n", read("gap.md")?.trim_end());
        }
        for (title, file) in
            [("Report", "report.txt"), ("Capture", "profile.txt"), ("Server", "doctor.txt")]
        {
            let body = read(file)?;
            // The report follows the capture's own lines there.
            let body = if file == "profile.txt" { first_part(&body) } else { &body };
            let _ = write!(text, "\n## {title}\n\n```\n{}\n```\n", body.trim_end());
        }
        let path = self.out.join("report.md");
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    }
}

/// Up to the first blank line that is followed by a report.
fn first_part(text: &str) -> &str {
    text.find("\n\n").map_or(text, |end| &text[..end])
}

/// Whether the run is of so many ranks, all of them compared with one another.
fn check_ranks(report: &Value, tp: u32, checks: &mut Checks) {
    let found: Vec<u64> =
        as_list(&report["ranks"]).iter().filter_map(|rank| rank["rank"].as_u64()).collect();
    let all: Vec<u64> = (0..u64::from(tp)).collect();
    checks.add(&format!("ranks 0 to {} are there", tp.saturating_sub(1)), found == all, &{
        format!("found {found:?}")
    });
    let selected = as_list(&report["steps"]["steps"]);
    let has_steps = |rank: &&u64| {
        selected.iter().any(|step| {
            step["rank"].as_u64() == Some(**rank) && step["period_ns"].as_i64().is_some()
        })
    };
    let with_steps = all.iter().filter(has_steps).count();
    checks.add("each has whole steps", with_steps == all.len(), &{
        format!("{with_steps} of {} have", all.len())
    });
    if tp < 2 {
        return;
    }
    let cross = &report["collectives"]["cross_rank"];
    let compared = as_list(&cross["ranks"]).len();
    let why = report["collectives"]["no_cross_rank"].as_str().unwrap_or("see COLLECTIVES");
    checks.add("their collectives are matched over all of them", compared == all.len(), &{
        format!("{compared} ranks compared; {why}")
    });
    let adds_up = |step: &Value| {
        let ns = |key: &str| step[key].as_i64().unwrap_or(i64::MIN / 4);
        step["matched_count"] != step["count"]
            || ns("wait_ns") + ns("transfer_ns") == ns("total_ns")
    };
    let steps = as_list(&report["collectives"]["steps"]);
    checks.add("wait and transfer add up to their kernels", steps.iter().all(adds_up), &{
        "in report.json, collectives.steps".to_owned()
    });
}

fn as_list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn read_json(path: &Path) -> Result<Value> {
    let name = || path.display().to_string();
    serde_json::from_slice(&std::fs::read(path).with_context(name)?).with_context(name)
}

/// What must hold, with its verdicts.
#[derive(Default)]
struct Checks(Vec<(String, bool, String)>);

impl Checks {
    fn add(&mut self, what: &str, holds: bool, otherwise: &str) {
        self.0.push((what.to_owned(), holds, otherwise.to_owned()));
    }

    fn passed(&self) -> bool {
        self.0.iter().all(|(_, holds, _)| *holds)
    }

    fn text(&self) -> String {
        let line = |(what, holds, otherwise): &(String, bool, String)| match holds {
            true => format!("pass  {what}\n"),
            false => format!("FAIL  {what}: {otherwise}\n"),
        };
        self.0.iter().map(line).collect()
    }
}
