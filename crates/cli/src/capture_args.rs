//! The command line of what talks to servers, as typed.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::args::Format;

const PROFILE_EXAMPLES: &str = "\
Examples:
  steptally profile --url http://127.0.0.1:30000
  steptally profile --url http://127.0.0.1:30000 --batch-size 8 --input-len 1024 --steps 20 --out run1
  steptally profile --url http://127.0.0.1:8000 --server-dir /traces --ranks 2    vLLM
  steptally profile --url http://127.0.0.1:30000 --hook /run/hook --skip 20 --steps 30
  steptally profile --url http://127.0.0.1:30000 --activities cuda-profiler --nsys-report run.nsys-rep";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  steptally doctor --url http://127.0.0.1:30000
  steptally doctor --url http://127.0.0.1:30000 --format json | jq .instruments[0]
  steptally doctor --host
  steptally doctor --write-hook /opt/steptally-hook";

/// Where a server is, and its keys.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server's URL
    #[arg(long, value_name = "URL")]
    pub(crate) url: String,

    #[command(flatten)]
    pub(crate) keys: KeyArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// The server's API key [environment: STEPTALLY_API_KEY]
    #[arg(long, value_name = "KEY", hide_default_value = true)]
    pub(crate) api_key: Option<String>,

    /// The server's admin key, which profiling needs when there is one [environment:
    /// STEPTALLY_ADMIN_KEY]
    #[arg(long, value_name = "KEY", hide_default_value = true)]
    pub(crate) admin_key: Option<String>,
}

/// Measure a live server, capture a few decode steps, check and explain them
///
/// Times requests without a profiler, lets the server's own profiler record a few decode steps under
/// load, checks the traces, times requests again, and accounts for every nanosecond of a step. The
/// server serves on as before, whatever happens in between. Everything is kept in a folder, with a
/// manifest.json that says what was done.
#[derive(Debug, Args)]
#[command(after_help = PROFILE_EXAMPLES)]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    #[command(flatten)]
    pub(crate) capture: CaptureArgs,

    /// Capture even though the server has requests of others
    #[arg(long)]
    pub(crate) allow_traffic: bool,

    /// The output folder as the server sees it, when it sees it under another path; for vLLM the
    /// folder that it was started with
    #[arg(long, value_name = "DIR")]
    pub(crate) server_dir: Option<PathBuf>,

    /// How many GPUs serve, for servers that do not say (vLLM)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ranks: Option<u32>,

    /// Record through the torch hook that looks into this folder (see `steptally doctor`)
    #[arg(long, value_name = "DIR")]
    pub(crate) hook: Option<PathBuf>,

    /// Decode steps that the hook skips first
    #[arg(long, value_name = "N", default_value_t = 20, requires = "hook")]
    pub(crate) skip: u32,

    /// Ranks that the hook records on
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "0", requires = "hook")]
    pub(crate) hook_ranks: Vec<u32>,

    /// The report that nsys writes (its -o), to be waited for and moved to the capture: with --activities
    /// cuda-profiler
    #[arg(long, value_name = "FILE", conflicts_with = "hook")]
    pub(crate) nsys_report: Option<PathBuf>,

    /// Refuse when fewer megabytes are free on the output's disk
    #[arg(long, value_name = "MB", default_value_t = 500)]
    pub(crate) min_free: u64,

    /// Longest wait, in seconds, for an answer, for the first byte of a trace, or for one to grow
    #[arg(long, value_name = "S", default_value_t = 120)]
    pub(crate) timeout: u64,
}

/// What a capture records, under which load, and where it goes.
#[derive(Debug, Args)]
pub(crate) struct CaptureArgs {
    /// Requests at the same time
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch_size: u32,

    /// Prompt tokens of a request
    #[arg(long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) input_len: u32,

    /// Tokens that a request generates
    #[arg(long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) output_len: u32,

    /// Decode steps to record
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) steps: u32,

    /// Times that the requests are sent to measure TPOT, before and after
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// What to record
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cpu,gpu")]
    pub(crate) activities: Vec<RecordedActivity>,

    /// Do not record the shapes of operators' inputs
    #[arg(long)]
    pub(crate) no_shapes: bool,

    /// Record Python stacks: they slow the host and make traces large
    #[arg(long)]
    pub(crate) with_stack: bool,

    /// Folder for the capture, new or empty [default: one in the current folder, named by the time]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// The model's config.json, or the folder that has it: holds the step against what the GPU allows
    #[arg(long, value_name = "CONFIG")]
    pub(crate) model: Option<PathBuf>,

    /// How to write the report
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,

    /// How many kernels and operators to list in text
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
}

/// What a profiler records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordedActivity {
    /// Operators, annotations and calls on the host
    Cpu,
    /// Kernels and copies
    Gpu,
    /// Nothing by itself: it opens the range of an nsys that started the server (`nsys profile
    /// --capture-range=cudaProfilerApi`); goes with no other
    CudaProfiler,
}

/// Tell what can be captured at a server, or on this machine, and how
///
/// Asks the server about itself, or looks for servers among this machine's processes, and weighs the
/// instruments: profile endpoints, the torch hook, nsys, NVTX. Starts nothing and sends no request to the
/// model.
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// The server's URL
    #[arg(long, value_name = "URL", required_unless_present_any = ["write_hook", "host"])]
    pub(crate) url: Option<String>,

    /// Look at this machine instead: servers that run here, GPUs, nsys, permissions, disk
    #[arg(long, conflicts_with_all = ["url", "write_hook"])]
    pub(crate) host: bool,

    #[command(flatten)]
    pub(crate) keys: KeyArgs,

    /// Where captures would go
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,

    /// The folder that a torch hook looks into
    #[arg(long, value_name = "DIR")]
    pub(crate) hook: Option<PathBuf>,

    /// Write the torch hook to this folder and say how to use it
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub(crate) write_hook: Option<PathBuf>,

    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Show a whole capture without a GPU: a replay of a recorded server
///
/// Starts a server on this machine that behaves as a recorded one, and runs `steptally profile`
/// against it over HTTP. The trace is real, the server is not.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Folder for the capture, new or empty [default: one in the temporary folder]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// How to write the report
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Serve the traces of a folder as the server that recorded them, until Ctrl-C
///
/// For tests without a GPU: it answers as SGLang, generates at the recorded pace, and when it is
/// told to profile, writes these traces.
#[derive(Debug, Args)]
pub(crate) struct ServeReplayArgs {
    /// A folder with the trace of each rank (*.trace.json.gz) and, if there is one, its manifest.json
    pub(crate) path: PathBuf,

    /// Port to listen on; 0: any that is free
    #[arg(long, value_name = "N", default_value_t = 30000)]
    pub(crate) port: u16,

    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) host: std::net::IpAddr,
}
