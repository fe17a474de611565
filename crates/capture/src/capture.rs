//! The driver: carries out what a [`Session`] asks for, on tokio.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use steptally_trace_model::manifest::{
    Baseline, CaptureManifest, CaptureOutcome, LoadShape, SpeedAfter, SpeedVerdict, Verification,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backend::{Activity, Backend, Stopped};
use crate::engine::ServerInfo;
use crate::error::Failure;
use crate::files::{State, TraceFolder, total_bytes};
use crate::http::Client;
use crate::load::{LoadSource, RunningLoad};
use crate::lock::Lock;
use crate::preflight;
use crate::record::ManifestFile;
use crate::secret::Redactor;
use crate::session::{Ask, Conduct, Ending, Event, Limits, Observation, Phase, Session, Step};

/// How a profiler is to be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instrument {
    /// The server's profile endpoints.
    Endpoint,
    /// The torch hook that looks into a folder.
    Hook {
        /// The folder.
        control: PathBuf,
        /// Decode steps to skip.
        skip: u32,
        /// Ranks to record on.
        ranks: Vec<u32>,
    },
}

/// Everything that a capture is told.
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// The server.
    pub client: Client,
    /// Folder of the capture: made when it is not there, refused when something is in it.
    pub folder: PathBuf,
    /// That folder as the server sees it, when it sees it elsewhere; for vLLM, the folder that it
    /// was started with, as this machine sees it.
    pub server_folder: Option<PathBuf>,
    /// How to record.
    pub instrument: Instrument,
    /// Requests of the baselines and, made longer, of the capture.
    pub shape: LoadShape,
    /// Times that the baseline sends them.
    pub rounds: u32,
    /// Steps to record.
    pub steps: u32,
    /// Activities to record. [`Activity::CudaProfiler`] is for a server that was started by nsys, and goes
    /// with no other.
    pub activities: Vec<Activity>,
    /// The report that nsys writes, to be waited for and moved to the capture; `None`: it is not.
    pub nsys_report: Option<PathBuf>,
    /// Whether to record shapes.
    pub record_shapes: bool,
    /// Whether to record Python stacks.
    pub with_stack: bool,
    /// Number of ranks, for servers that do not say.
    pub ranks: Option<u32>,
    /// Whether the server may have other requests.
    pub allow_traffic: bool,
    /// Bytes that must be free on the disk.
    pub min_free_bytes: u64,
    /// How long things may take.
    pub limits: Limits,
    /// Name and version of the program, for the manifest.
    pub tool: String,
    /// The command line, for the manifest; it is redacted.
    pub command: Vec<String>,
}

/// What a check of traces is told.
#[derive(Clone, Debug)]
pub struct VerifyInput {
    /// The capture's folder.
    pub folder: PathBuf,
    /// Requests at the same time.
    pub batch_size: u32,
    /// Steps that were wanted.
    pub steps: u32,
    /// Ranks that are expected; `None`: not known.
    pub ranks: Option<u32>,
    /// Activities that were recorded.
    pub activities: Vec<Activity>,
    /// What is known so far: server, baseline, load.
    pub manifest: CaptureManifest,
}

/// Reads traces back: what they hold, and everything that makes them useless.
pub type Verifier = Arc<dyn Fn(&VerifyInput) -> (Verification, Vec<Failure>) + Send + Sync>;

/// Told what a capture does.
pub type Progress = Arc<dyn Fn(Phase, &str) + Send + Sync>;

/// A capture that ended.
#[derive(Clone, Debug)]
pub struct Captured {
    /// What the manifest says.
    pub manifest: CaptureManifest,
    /// How it ended.
    pub ending: Ending,
}

/// Captures. `interrupt` becomes true when the user wants to end.
///
/// # Errors
/// When not even the manifest could be written. Every other failure is in [`Captured::ending`].
pub async fn capture(
    options: CaptureOptions,
    verifier: Verifier,
    progress: Progress,
    interrupt: watch::Receiver<bool>,
) -> Result<Captured, Failure> {
    let _folder = preflight::make_folder(&options.folder)?;
    let redactor = Redactor::new(options.client.secrets());
    let manifest =
        ManifestFile::create(&options.folder, &options.tool, &options.command, redactor)?;
    let mut driver = Driver::new(options, manifest, verifier, progress);
    let begin = Instant::now();
    let mut session = Session::new(driver.options.limits);
    let mut step = session.next(Event::Begin, Duration::ZERO);
    let mut is_told = false;
    loop {
        driver.enter(session.phase(), step);
        let event = match &driver.unwritten {
            // Without a manifest nothing is begun that is not an end.
            Some(failure) if step.ask.needs_manifest() => Event::Failed(failure.clone()),
            _ => driver.perform(step, &interrupt, is_told).await,
        };
        if step.ask == Ask::Finish {
            break;
        }
        driver.note(step.ask, &event);
        is_told |= event == Event::Interrupted;
        step = session.next(event, begin.elapsed());
        if *interrupt.borrow() && !is_told {
            is_told = true;
            if !matches!(session.phase(), Phase::CleanUp | Phase::Done) {
                step = session.next(Event::Interrupted, begin.elapsed());
            }
        }
    }
    let ending = driver.finish(session.ending());
    Ok(Captured { manifest: driver.manifest.manifest, ending })
}

struct Driver {
    options: CaptureOptions,
    manifest: ManifestFile,
    verifier: Verifier,
    progress: Progress,
    phase: Phase,
    info: Option<ServerInfo>,
    backend: Option<Result<Box<dyn Backend>, Failure>>,
    incoming: PathBuf,
    traces: TraceFolder,
    source: Option<LoadSource>,
    load: Option<RunningLoad>,
    load_rounds: u64,
    last_probe: Option<Instant>,
    /// Keeps other captures from the server.
    lock: Option<Lock>,
    /// Why the manifest on disk is not what it should be.
    unwritten: Option<Failure>,
}

/// The load of a capture is numbered from here, so that its prompts are not those of a baseline.
const FIRST_LOAD: u64 = 1 << 16;
const AFTER: u64 = 1 << 20;

/// Times that requests are timed after the capture, as long as they are slower than before.
const ATTEMPTS_AFTER: u32 = 4;

/// Requests of the warm-up generate so many tokens.
const WARM_UP_TOKENS: u32 = 32;

/// A load that is left over may take so long to end by itself.
const LOAD_GRACE: Duration = Duration::from_secs(5);

/// Between two looks whether the server accepts connections.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// An interrupt waits so long for the answer to a start, to know whether there is anything to stop.
const START_GRACE: Duration = Duration::from_secs(5);

impl Driver {
    fn new(
        options: CaptureOptions,
        manifest: ManifestFile,
        verifier: Verifier,
        progress: Progress,
    ) -> Self {
        let incoming = options.folder.join("incoming");
        Self {
            options,
            manifest,
            verifier,
            progress,
            phase: Phase::Done,
            info: None,
            backend: None,
            traces: TraceFolder::new(incoming.clone()),
            incoming,
            source: None,
            load: None,
            load_rounds: 0,
            last_probe: None,
            lock: None,
            unwritten: None,
        }
    }

    fn enter(&mut self, phase: Phase, step: Step) {
        if self.phase == phase {
            return;
        }
        self.phase = phase;
        phase.name().clone_into(&mut self.manifest.manifest.phase);
        self.say(&format!("waiting for {}", step.waiting_for));
        self.save();
    }

    fn say(&self, text: &str) {
        (self.progress)(self.phase, text);
    }

    fn log(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.say(&text);
        self.manifest.note(self.phase.name(), text);
    }

    /// Writes the manifest.
    fn save(&mut self) {
        self.unwritten = self.manifest.write().err();
    }

    fn note(&mut self, ask: Ask, event: &Event) {
        match event {
            Event::Failed(failure) | Event::StartUnclear(failure) => {
                let text = format!("failed: {failure}");
                self.log(text);
                self.manifest.manifest.problems.push(failure.into());
            }
            Event::TimedOut => self.log(format!("{ask:?}: gave up waiting")),
            Event::Interrupted => self.log("interrupted"),
            _ => return,
        }
        self.save();
    }

    /// Carries out one step within its limit; an interrupt breaks off what may be broken off.
    async fn perform(
        &mut self,
        step: Step,
        interrupt: &watch::Receiver<bool>,
        is_told: bool,
    ) -> Event {
        let folder = self.incoming.clone();
        let may_break_off = step.ask.may_be_broken_off() && !is_told;
        let shortens = step.ask == Ask::Start;
        tokio::select! {
            biased;
            event = self.carry_out(step.ask) => event,
            () = interrupted(interrupt.clone()), if may_break_off => Event::Interrupted,
            () = out_of_time(step, &folder) => Event::TimedOut,
            () = grace(interrupt.clone()), if shortens => Event::Interrupted,
        }
    }

    async fn carry_out(&mut self, ask: Ask) -> Event {
        let done =
            |result: Result<(), Failure>| result.map_or_else(Event::Failed, |()| Event::Done);
        match ask {
            Ask::Preflight => match self.preflight().await {
                Ok(event) => event,
                Err(failure) => Event::Failed(failure),
            },
            Ask::WarmUp => done(self.warm_up().await),
            Ask::Baseline => done(self.baseline(0).await.map(|baseline| {
                self.manifest.manifest.baseline_before = Some(baseline);
            })),
            Ask::BaselineAfter => done(self.baseline_after().await),
            Ask::BeginLoad => done(self.begin_load().await),
            Ask::Start => self.start().await,
            Ask::Look => match self.look().await {
                Ok(seen) => Event::Seen(seen),
                Err(failure) => Event::Failed(failure),
            },
            Ask::Stop => done(self.stop().await),
            Ask::Collect => done(self.collect().await),
            Ask::Verify => done(self.verify().await),
            Ask::EndLoad => {
                if let Some(load) = self.load.take() {
                    let grace =
                        if self.phase == Phase::CleanUp { Duration::ZERO } else { LOAD_GRACE };
                    load.end(grace).await;
                }
                Event::Done
            }
            Ask::Finish => Event::Done,
        }
    }

    async fn preflight(&mut self) -> Result<Event, Failure> {
        let ready = preflight::check(&self.options, &mut self.manifest.manifest).await?;
        for remark in &ready.remarks {
            self.log(remark.clone());
        }
        self.incoming = ready.incoming;
        self.traces = if ready.owns_incoming {
            TraceFolder::new(self.incoming.clone())
        } else {
            TraceFolder::shared(self.incoming.clone())
        };
        let mut conduct = Conduct::default();
        if let Ok(backend) = &ready.backend {
            conduct = backend.conduct();
            self.manifest.manifest.expected_ranks = backend.expected_ranks().unwrap_or_default();
        }
        self.backend = Some(ready.backend);
        self.source = Some(ready.source);
        self.lock = ready.lock;
        self.info = Some(ready.info);
        Ok(Event::Ready(conduct))
    }

    fn source(&self) -> Result<&LoadSource, Failure> {
        self.source.as_ref().ok_or_else(not_ready)
    }

    async fn warm_up(&mut self) -> Result<(), Failure> {
        let shape = LoadShape {
            output_len: self.options.shape.output_len.min(WARM_UP_TOKENS),
            ..self.options.shape
        };
        let mut source = self.source()?.clone();
        source.seed ^= 1 << 60;
        source.measure(shape, 2).await.map(|_| ())
    }

    async fn baseline(&mut self, seed: u64) -> Result<Baseline, Failure> {
        let mut source = self.source()?.clone();
        source.seed ^= seed << 32;
        source.measure(self.options.shape, self.options.rounds).await
    }

    /// Times requests after the capture. A server that is slower than before is given time: a host's
    /// speed wanders for seconds.
    async fn baseline_after(&mut self) -> Result<(), Failure> {
        for attempt in 1..=ATTEMPTS_AFTER {
            let after = self.baseline(AFTER + u64::from(attempt)).await?;
            let before = self.manifest.manifest.baseline_before.as_ref();
            let speed = before.and_then(|before| SpeedAfter::of(before, &after));
            self.manifest.manifest.speed_after = speed;
            self.manifest.manifest.baseline_after = Some(after);
            let slower = speed.filter(|speed| speed.verdict == SpeedVerdict::Slower);
            let Some(slower) = slower.filter(|_| attempt < ATTEMPTS_AFTER) else { break };
            self.log(format!(
                "tokens take {:.0} % longer than before: measuring again in {} s",
                slower.change_ratio * 100.0,
                self.options.limits.again.as_secs_f64()
            ));
            tokio::time::sleep(self.options.limits.again).await;
        }
        Ok(())
    }

    async fn begin_load(&mut self) -> Result<(), Failure> {
        // Without a profiler there is nothing to be loaded for.
        self.backend()?;
        let tpot =
            self.manifest.manifest.baseline_before.as_ref().map(|baseline| baseline.tpot_ns.median);
        let shape = preflight::capture_shape(&self.options, self.info.as_ref(), tpot);
        self.manifest.manifest.load = Some(shape);
        let round = FIRST_LOAD + self.load_rounds;
        if self.load_rounds > 0 {
            self.log("the requests ended before the profiler did: sending more");
        }
        self.load_rounds += 1;
        let load = self.source()?.begin(shape, round);
        self.load.insert(load).flows().await
    }

    fn backend(&self) -> Result<&dyn Backend, Failure> {
        backend(self.backend.as_ref())
    }

    async fn start(&mut self) -> Event {
        let outcome = match self.backend() {
            Ok(backend) => backend.start().await,
            Err(failure) => return Event::Failed(failure),
        };
        match outcome {
            Ok(()) => {
                self.log("the profiler is on");
                Event::Done
            }
            Err(error) if error.is_unclear => Event::StartUnclear(error.failure),
            Err(error) => Event::Failed(error.failure),
        }
    }

    async fn stop(&mut self) -> Result<(), Failure> {
        let stopped = self.backend()?.stop().await?;
        self.log(match stopped {
            Stopped::Now => "the profiler is stopped",
            Stopped::Before => "the profiler had ended already",
        });
        Ok(())
    }

    async fn look(&mut self) -> Result<Observation, Failure> {
        tokio::time::sleep(self.options.limits.look).await;
        let backend = backend(self.backend.as_ref())?;
        let files = self.traces.look(&|name| backend.rank_of(name))?;
        let foreign = files.iter().find_map(|file| match &file.state {
            State::Foreign(what) => Some((file.name.clone(), what.clone())),
            _ => None,
        });
        if let Some((name, what)) = foreign {
            return Err(Failure::new("wrong_content", format!("{name} is no trace: {what}"))
                .hint("several ranks may have written one file, or its disk is full: look into the server's log"));
        }
        let mut whole: Vec<&str> = files
            .iter()
            .filter(|file| file.state == State::Whole)
            .map(|file| file.rank.as_str())
            .collect();
        whole.sort_unstable();
        whole.dedup();
        let whole_count = whole.len();
        let expected = backend.expected_ranks();
        let whole = match &expected {
            Some(ranks) => ranks.iter().filter(|rank| whole.contains(&rank.as_str())).count(),
            None => whole_count,
        };
        let is_due = self.last_probe.is_none_or(|last| last.elapsed() >= PROBE_EVERY);
        let alive = if is_due {
            self.last_probe = Some(Instant::now());
            self.options.client.accepts_connections().await
        } else {
            true
        };
        Ok(Observation {
            expected: expected.map(|ranks| ranks.len()),
            whole,
            files: files.len(),
            bytes: files.iter().map(|file| file.bytes).sum(),
            alive,
            load_runs: self.load.as_mut().is_some_and(RunningLoad::is_full),
        })
    }

    async fn collect(&mut self) -> Result<(), Failure> {
        let backend = backend(self.backend.as_ref())?;
        let place = self.options.folder.clone();
        // The folder is read in one go: a capture has a file or two per rank.
        let (files, failure) = self.traces.collect(&place, &|name| backend.rank_of(name))?;
        let came: Vec<&String> = files
            .iter()
            .filter(|file| file.complete)
            .filter_map(|file| file.rank.as_ref())
            .collect();
        let manifest = &mut self.manifest.manifest;
        manifest.missing_ranks =
            manifest.expected_ranks.iter().filter(|rank| !came.contains(rank)).cloned().collect();
        if backend.conduct().writes_elsewhere {
            self.log("what was recorded is with nsys");
            return Ok(());
        }
        let count = files.iter().filter(|file| file.complete && file.rank.is_some()).count();
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        manifest.files = files;
        self.log(format!(
            "{count} whole trace{} of {bytes} bytes",
            if count == 1 { "" } else { "s" }
        ));
        self.save();
        failure.map_or(Ok(()), Err)
    }

    async fn verify(&mut self) -> Result<(), Failure> {
        if self.options.activities.contains(&Activity::CudaProfiler) {
            self.log("a report of nsys is read after its export, not here");
            return Ok(());
        }
        let ranks =
            self.backend()?.expected_ranks().and_then(|ranks| u32::try_from(ranks.len()).ok());
        let input = VerifyInput {
            folder: self.options.folder.clone(),
            batch_size: self.options.shape.batch_size,
            steps: self.options.steps,
            ranks,
            activities: self.options.activities.clone(),
            manifest: self.manifest.manifest.clone(),
        };
        let verifier = Arc::clone(&self.verifier);
        let (mut verification, failures) =
            tokio::task::spawn_blocking(move || verifier(&input)).await.map_err(|error| {
                Failure::new("verification", format!("the check of the traces broke off: {error}"))
            })?;
        verification.passed = failures.is_empty();
        self.manifest.manifest.verification = Some(verification);
        let mut failures = failures.into_iter();
        match failures.next() {
            None => Ok(()),
            Some(first) => {
                self.manifest.manifest.problems.extend(failures.map(|failure| (&failure).into()));
                Err(first)
            }
        }
    }

    /// The last word of the manifest.
    fn finish(&mut self, ending: Ending) -> Ending {
        let manifest = &mut self.manifest.manifest;
        if let Ending::Failed(failure) = &ending
            && !manifest.problems.iter().any(|problem| problem.message == failure.message)
        {
            manifest.problems.push(failure.into());
        }
        manifest.outcome = match &ending {
            Ending::Complete => CaptureOutcome::Complete,
            Ending::Failed(_) => CaptureOutcome::Failed,
            Ending::Interrupted => CaptureOutcome::Interrupted,
        };
        match self.manifest.write() {
            Err(failure) if ending == Ending::Complete => {
                self.manifest.manifest.outcome = CaptureOutcome::Failed;
                self.manifest.manifest.problems.push((&failure).into());
                Ending::Failed(failure)
            }
            _ => ending,
        }
    }
}

fn backend(backend: Option<&Result<Box<dyn Backend>, Failure>>) -> Result<&dyn Backend, Failure> {
    backend.ok_or_else(not_ready)?.as_deref().map_err(Clone::clone)
}

fn not_ready() -> Failure {
    Failure::new("not_ready", "the preflight has not been made")
}

async fn interrupted(mut interrupt: watch::Receiver<bool>) {
    if interrupt.wait_for(|&wants_to_end| wants_to_end).await.is_err() {
        // Nobody is left who could interrupt.
        std::future::pending::<()>().await;
    }
}

async fn grace(interrupt: watch::Receiver<bool>) {
    interrupted(interrupt).await;
    tokio::time::sleep(START_GRACE).await;
}

/// Ends when the limit has passed, or has passed without growth of a trace.
async fn out_of_time(step: Step, folder: &Path) {
    let mut bytes = total_bytes(folder);
    let mut last_growth = Instant::now();
    loop {
        tokio::time::sleep_until(last_growth + step.limit).await;
        let now = total_bytes(folder);
        if !step.grows || now <= bytes {
            return;
        }
        bytes = now;
        last_growth = Instant::now();
    }
}
