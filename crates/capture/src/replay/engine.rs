//! The scheduler of a replay: admits requests, steps, profiles, and stalls while it exports.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::body::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Fault, Shared};
use crate::engine::Engine;

/// What handlers ask of the scheduler.
pub(crate) enum Job {
    /// Generate tokens: the number of each is sent.
    Generate {
        /// How many.
        count: u64,
        /// Where they go.
        tokens: mpsc::UnboundedSender<u64>,
    },
    /// Start the profiler.
    Start(Order),
    /// Stop it; answered with whether it ran.
    Stop(oneshot::Sender<bool>),
}

/// What is to be recorded.
pub(crate) struct Order {
    /// After so many steps it ends by itself.
    pub(crate) steps: Option<u64>,
    /// Where the traces go.
    pub(crate) folder: PathBuf,
    /// Whether anything is recorded.
    pub(crate) records: bool,
}

struct Request {
    sent: u64,
    count: u64,
    tokens: mpsc::UnboundedSender<u64>,
}

struct Profiler {
    order: Order,
    steps: u64,
}

/// A scheduler that is behind by more than this has stalled, and does not catch up.
const STALL: Duration = Duration::from_millis(50);

/// Steps and answers jobs until nobody can send any.
pub(crate) async fn run(shared: Arc<Shared>, mut queue: mpsc::UnboundedReceiver<Job>) {
    let pace = shared.options.recorded.pace;
    let mut running: Vec<Request> = Vec::new();
    let mut profiler: Option<Profiler> = None;
    let mut clock = Instant::now();
    let slow_for = shared.options.faults.iter().find_map(|fault| match fault {
        Fault::SlowAfterwards(time) => Some(*time),
        _ => None,
    });
    let mut slow_until = None;
    loop {
        if running.is_empty() {
            let Some(job) = queue.recv().await else { return };
            clock = Instant::now();
            take(&shared, job, &mut running, &mut profiler, &mut clock).await;
        }
        while let Ok(job) = queue.try_recv() {
            take(&shared, job, &mut running, &mut profiler, &mut clock).await;
        }
        if running.is_empty() {
            continue;
        }
        let is_profiled = profiler.as_ref().is_some_and(|profiler| profiler.order.records);
        let is_slow = slow_until.is_some_and(|until| Instant::now() < until);
        clock += match (is_profiled, is_slow) {
            (true, _) => pace.profiled_step,
            (false, true) => 2 * pace.step,
            (false, false) => pace.step,
        };
        if clock.elapsed() > STALL {
            clock = Instant::now();
        }
        sleep_until(clock).await;
        running.retain_mut(|request| {
            request.sent += 1;
            request.tokens.send(request.sent).is_ok() && request.sent < request.count
        });
        if let Some(current) = &mut profiler {
            current.steps += 1;
            if current.order.steps.is_some_and(|steps| current.steps >= steps)
                && let Some(done) = profiler.take()
            {
                export(&shared, &done.order).await;
                slow_until = slow_for.map(|time| Instant::now() + time);
                // vLLM keeps its session until it is stopped.
                if shared.options.recorded.engine == Engine::Vllm {
                    let order = Order { records: false, steps: None, ..done.order };
                    profiler = Some(Profiler { order, steps: 0 });
                }
            }
        }
    }
}

async fn take(
    shared: &Arc<Shared>,
    job: Job,
    running: &mut Vec<Request>,
    profiler: &mut Option<Profiler>,
    clock: &mut Instant,
) {
    match job {
        Job::Generate { count, tokens } => {
            *clock += shared.options.recorded.pace.first_token;
            sleep_until(*clock).await;
            if tokens.send(1).is_ok() && count > 1 {
                running.push(Request { sent: 1, count, tokens });
            }
        }
        // A second start changes nothing: the first goes on.
        Job::Start(order) => {
            profiler.get_or_insert(Profiler { order, steps: 0 });
        }
        Job::Stop(reply) => {
            let ran = profiler.take();
            if let Some(profiler) = &ran
                && profiler.order.records
            {
                export(shared, &profiler.order).await;
            }
            let _ = reply.send(ran.is_some());
        }
    }
}

/// Writes the traces, a piece at a time, as the faults want it. Everything else waits meanwhile.
async fn export(shared: &Arc<Shared>, order: &Order) {
    let options = &shared.options;
    let pace = options.recorded.pace;
    if !order.records || options.has(Fault::WriteNothing) {
        return;
    }
    shared.is_exporting.send_replace(true);
    let slow = options.faults.iter().find_map(|fault| match fault {
        Fault::UnavailableFor(time) | Fault::ExportFor(time) => Some(*time),
        _ => None,
    });
    sleep(pace.before_export).await;
    let id = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let ranks = options.recorded.traces.len();
    let written = if options.has(Fault::MissRank) { ranks - 1 } else { ranks };
    for trace in &options.recorded.traces[..written] {
        let name = match options.recorded.engine {
            Engine::Vllm => {
                let rank = trace.rank.trim_start_matches("TP-");
                format!(
                    "dp0_pp0_tp{rank}_dcp0_ep{rank}_rank{rank}.{}.pt.trace.json.gz",
                    id.as_nanos()
                )
            }
            _ => format!("{}.{:06}-{}.trace.json.gz", id.as_secs(), id.subsec_micros(), trace.rank),
        };
        let content = match () {
            () if options.has(Fault::WriteHtml) => {
                Bytes::from_static(b"<html><body>not a trace</body></html>\n")
            }
            () if options.has(Fault::Truncate) => {
                trace.content.slice(..trace.content.len() * 2 / 3)
            }
            () => trace.content.clone(),
        };
        let pieces = content.len().div_ceil(pace.piece).max(1);
        let pause = slow.map_or(pace.between_pieces, |time| {
            time / u32::try_from(pieces * written).unwrap_or(1)
        });
        let path = order.folder.join(name);
        if append(&path, &[]).is_err() {
            break;
        }
        for (index, piece) in content.chunks(pace.piece).enumerate() {
            sleep(pause).await;
            if append(&path, piece).is_err() {
                break;
            }
            if index == 0 && options.has(Fault::DieMidExport) {
                shared.is_dead.send_replace(true);
                std::future::pending::<()>().await;
            }
            if index == 0 && options.has(Fault::DiskFull) {
                shared.is_exporting.send_replace(false);
                return;
            }
        }
    }
    shared.is_exporting.send_replace(false);
}

fn append(path: &Path, piece: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).open(path)?.write_all(piece)
}
