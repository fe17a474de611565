//! A capture as a state machine without I/O: events in, one thing to do out.
//!
//! ```text
//! preflight -> warm-up -> baseline -> load -> arm -> window -> (stop) -> settle -> collect -> verify -> after -> done
//!      \___________\__________\_________\______\_______\__________\________\_________\________\______/
//!                                any failure, or the user's interrupt
//!                                                   v
//!                              undo what was started, newest first -> collect what there is -> done
//! ```
//!
//! Whatever is started pushes its undo first. The profiler is stopped at most once, and exactly
//! once when it was (or may have been) started and did not end by itself. Time comes in from
//! outside, so that minutes of waiting are tested in no time.

use std::time::Duration;

use crate::error::Failure;

/// How long things may take. Each wait says what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Questions to the server before anything is started.
    pub preflight: Duration,
    /// Warm-up and each baseline.
    pub requests: Duration,
    /// From the start of the load to the first token of every request.
    pub first_tokens: Duration,
    /// The answer to the start of the profiler.
    pub start: Duration,
    /// From the start of the profiler to the first byte of a trace.
    pub window: Duration,
    /// Without growth of any trace, a server that writes counts as stuck.
    pub stall: Duration,
    /// From the first byte of a trace to the last, however it grows.
    pub export: Duration,
    /// Reading the traces back.
    pub verify: Duration,
    /// Between two looks at the files.
    pub look: Duration,
    /// Until a server that is slower after the capture is measured again.
    pub again: Duration,
    /// Without growth, files of an unknown number of ranks count as all.
    pub settle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            preflight: seconds(60),
            requests: seconds(600),
            first_tokens: seconds(120),
            start: seconds(60),
            window: seconds(120),
            stall: seconds(120),
            export: seconds(1800),
            verify: seconds(600),
            look: Duration::from_millis(100),
            again: seconds(5),
            settle: seconds(3),
        }
    }
}

/// How a backend's profiler behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conduct {
    /// It ends by itself after the steps that were asked for, so that a stop would be refused.
    pub ends_itself: bool,
    /// It ends by itself, and yet wants a stop afterwards.
    pub wants_stop: bool,
    /// The answer to its start comes only when the traces are written.
    pub start_is_held: bool,
    /// It is stopped after this time, unless a trace comes before; `None`: it is waited for.
    pub record_for: Option<Duration>,
    /// What it records is written by another program, and not waited for.
    pub writes_elsewhere: bool,
}

/// Phases of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Asking the server and the disk whether a capture can go well.
    Preflight,
    /// Requests that nobody times.
    WarmUp,
    /// Requests that are timed, without a profiler.
    Baseline,
    /// Getting requests under way.
    Load,
    /// Starting the profiler.
    Arm,
    /// Steps are recorded; the first byte of a trace ends it.
    Window,
    /// Stopping the profiler.
    Stop,
    /// Traces are being written.
    Settle,
    /// Moving whole traces to their place.
    Collect,
    /// Reading them back.
    Verify,
    /// Requests that are timed again.
    After,
    /// Undoing what was started.
    CleanUp,
    /// Nothing is left to do.
    Done,
}

impl Phase {
    /// Its name in manifests and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Preflight => "preflight",
            Self::WarmUp => "warm-up",
            Self::Baseline => "baseline",
            Self::Load => "load",
            Self::Arm => "arm",
            Self::Window => "window",
            Self::Stop => "stop",
            Self::Settle => "settle",
            Self::Collect => "collect",
            Self::Verify => "verify",
            Self::After => "after",
            Self::CleanUp => "clean-up",
            Self::Done => "done",
        }
    }
}

/// Something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Ask the server about itself, and check the disk.
    Preflight,
    /// Send some requests.
    WarmUp,
    /// Time requests.
    Baseline,
    /// Get the load under way; once more when it ran out.
    BeginLoad,
    /// Start the profiler.
    Start,
    /// Wait a moment, then look at files, server and load.
    Look,
    /// Stop the profiler.
    Stop,
    /// Move whole traces to their place, and list all.
    Collect,
    /// Read the traces.
    Verify,
    /// Let the load end, or break it off.
    EndLoad,
    /// Time requests again.
    BaselineAfter,
    /// Write the outcome down.
    Finish,
}

impl Ask {
    /// Whether an interrupt may break it off. What starts, stops and cleans up is seen through.
    #[must_use]
    pub const fn may_be_broken_off(self) -> bool {
        !matches!(self, Self::Start | Self::Stop | Self::Collect | Self::EndLoad | Self::Finish)
    }

    /// Whether it is not to be done when the manifest cannot be written: what ends a capture is done.
    #[must_use]
    pub const fn needs_manifest(self) -> bool {
        self.may_be_broken_off() || matches!(self, Self::Start)
    }
}

/// Something to do, for how long, and what is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What.
    pub ask: Ask,
    /// When to give up.
    pub limit: Duration,
    /// Whether the limit counts from the last growth of a trace.
    pub grows: bool,
    /// What is waited for.
    pub waiting_for: &'static str,
}

/// What a look shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Ranks that are expected; `None`: not known.
    pub expected: Option<usize>,
    /// Ranks whose trace is whole.
    pub whole: usize,
    /// Files, whole or not.
    pub files: usize,
    /// Bytes in all of them.
    pub bytes: u64,
    /// Whether the server accepts connections.
    pub alive: bool,
    /// Whether all requests of the load still run.
    pub load_runs: bool,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The session begins.
    Begin,
    /// Preflight went well.
    Ready(Conduct),
    /// What was asked is done.
    Done,
    /// A look.
    Seen(Observation),
    /// What was asked failed.
    Failed(Failure),
    /// The start failed, and may have started the profiler nevertheless.
    StartUnclear(Failure),
    /// What was asked took longer than its limit.
    TimedOut,
    /// The user wants to end.
    Interrupted,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Well.
    Complete,
    /// Not.
    Failed(Failure),
    /// The user ended it.
    Interrupted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undo {
    StopProfiler,
    EndLoad,
}

/// The state machine.
#[derive(Debug)]
pub struct Session {
    limits: Limits,
    phase: Phase,
    ask: Ask,
    conduct: Conduct,
    undo: Vec<Undo>,
    failure: Option<Failure>,
    interrupted: bool,
    /// Whether the profiler was, or may have been, started.
    started: bool,
    collected: bool,
    bytes: u64,
    phase_began: Duration,
    last_growth: Duration,
    refills: u32,
}

/// Times that a load which ran out is begun again.
const REFILLS: u32 = 5;

impl Session {
    /// A session that has not begun.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            phase: Phase::Preflight,
            ask: Ask::Preflight,
            conduct: Conduct::default(),
            undo: Vec::new(),
            failure: None,
            interrupted: false,
            started: false,
            collected: false,
            bytes: 0,
            phase_began: Duration::ZERO,
            last_growth: Duration::ZERO,
            refills: 0,
        }
    }

    /// The phase it is in.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// How it ended, once [`Phase::Done`] is reached.
    #[must_use]
    pub fn ending(&self) -> Ending {
        match (&self.failure, self.interrupted) {
            (_, true) => Ending::Interrupted,
            (Some(failure), false) => Ending::Failed(failure.clone()),
            (None, false) => Ending::Complete,
        }
    }

    /// Takes what happened at `now` (since any fixed moment); says what to do next. Nothing is
    /// left to do after [`Ask::Finish`].
    pub fn next(&mut self, event: Event, now: Duration) -> Step {
        match event {
            Event::Interrupted if self.is_unwinding() => self.step(self.ask),
            Event::Interrupted => {
                self.interrupted = true;
                self.unwind(now)
            }
            Event::TimedOut => self.timed_out(now),
            Event::Failed(failure) => self.failed(failure, now),
            Event::StartUnclear(failure) => {
                self.fail(failure);
                self.unwind(now)
            }
            Event::Seen(seen) => self.seen(seen, now),
            Event::Ready(conduct) => {
                self.conduct = conduct;
                self.enter(Phase::WarmUp, Ask::WarmUp, now)
            }
            Event::Begin => self.enter(Phase::Preflight, Ask::Preflight, now),
            Event::Done => self.done(now),
        }
    }

    fn is_unwinding(&self) -> bool {
        matches!(self.phase, Phase::CleanUp | Phase::Done)
    }

    fn done(&mut self, now: Duration) -> Step {
        if self.is_unwinding() {
            self.collected |= self.ask == Ask::Collect;
            return self.unwind(now);
        }
        match self.ask {
            Ask::WarmUp => self.enter(Phase::Baseline, Ask::Baseline, now),
            Ask::Baseline => {
                self.undo.push(Undo::EndLoad);
                self.enter(Phase::Load, Ask::BeginLoad, now)
            }
            Ask::BeginLoad if self.phase == Phase::Load => {
                self.undo.push(Undo::StopProfiler);
                self.started = true;
                self.last_growth = now;
                self.enter(Phase::Arm, Ask::Start, now)
            }
            Ask::BeginLoad => self.step(Ask::Look),
            Ask::Start => {
                self.last_growth = now;
                self.enter(Phase::Window, Ask::Look, now)
            }
            Ask::Stop if self.conduct.writes_elsewhere => {
                self.enter(Phase::Collect, Ask::Collect, now)
            }
            Ask::Stop => {
                self.last_growth = now;
                self.enter(Phase::Settle, Ask::Look, now)
            }
            Ask::Collect => {
                self.collected = true;
                self.enter(Phase::Verify, Ask::Verify, now)
            }
            Ask::Verify => {
                self.undo.retain(|&undo| undo != Undo::EndLoad);
                self.enter(Phase::After, Ask::EndLoad, now)
            }
            Ask::EndLoad => self.step(Ask::BaselineAfter),
            _ => self.enter(Phase::Done, Ask::Finish, now),
        }
    }

    fn failed(&mut self, failure: Failure, now: Duration) -> Step {
        if self.is_unwinding() {
            // The first failure is the one that counts; clean-up goes on.
            self.fail(failure);
            return self.done(now);
        }
        match self.ask {
            // Refused: it was not started, so there is nothing to stop.
            Ask::Start => {
                self.profiler_is_off();
                self.started = false;
            }
            Ask::Collect => self.collected = true,
            // The traces are good; only the second baseline is missing.
            Ask::BaselineAfter => {
                self.fail(failure);
                return self.enter(Phase::Done, Ask::Finish, now);
            }
            _ => {}
        }
        self.fail(failure);
        self.unwind(now)
    }

    fn timed_out(&mut self, now: Duration) -> Step {
        let step = self.step(self.ask);
        let growth = if step.grows { " without growth of a trace" } else { "" };
        let failure = Failure::new(
            "timed_out",
            format!(
                "{}: waited {} s{growth} for {}",
                self.phase.name(),
                seconds(step.limit),
                step.waiting_for
            ),
        )
        .hint("the server hangs or is very slow: look into its log; --timeout allows more time");
        self.failed_keeping_profiler(failure, now)
    }

    /// A start that timed out may have started.
    fn failed_keeping_profiler(&mut self, failure: Failure, now: Duration) -> Step {
        if self.ask == Ask::Start {
            self.fail(failure);
            return self.unwind(now);
        }
        self.failed(failure, now)
    }

    fn seen(&mut self, seen: Observation, now: Duration) -> Step {
        if seen.bytes > self.bytes {
            self.bytes = seen.bytes;
            self.last_growth = now;
        }
        let still = now.saturating_sub(self.last_growth);
        let is_whole = match seen.expected {
            Some(expected) => seen.whole >= expected,
            None => seen.files > 0 && seen.whole == seen.files && still >= self.limits.settle,
        };
        if is_whole {
            return self.whole(now);
        }
        if !seen.alive {
            self.profiler_is_off();
            let what = format!(
                "the server died during the {}: it accepts no connections any more",
                self.phase.name()
            );
            self.fail(
                Failure::new("server_died", what)
                    .hint("look into its log; some servers abort when their profiler ends"),
            );
            return self.unwind(now);
        }
        let waited = now.saturating_sub(self.phase_began);
        match self.phase {
            Phase::Window if seen.bytes > 0 => {
                if self.conduct.ends_itself {
                    self.enter(Phase::Settle, Ask::Look, now)
                } else {
                    self.stop(now)
                }
            }
            Phase::Window if self.conduct.record_for.is_some_and(|limit| waited >= limit) => {
                self.stop(now)
            }
            Phase::Window if waited >= self.limits.window => {
                self.fail(self.nothing_recorded(waited));
                self.unwind(now)
            }
            Phase::Window if !seen.load_runs && self.refills < REFILLS => {
                self.refills += 1;
                self.step(Ask::BeginLoad)
            }
            Phase::Settle if still >= self.limits.stall || waited >= self.limits.export => {
                self.fail(stuck(seen, still, waited));
                self.unwind(now)
            }
            _ => self.step(Ask::Look),
        }
    }

    fn nothing_recorded(&self, waited: Duration) -> Failure {
        Failure::new(
            "no_trace",
            format!("no trace came within {} s of the profiler's start", seconds(waited)),
        )
        .hint(
            "the server writes on its own disk: does it see the output folder under the same path \
             (--server-dir says which), and may it write there? its log says where it saves traces",
        )
    }

    fn whole(&mut self, now: Duration) -> Step {
        if self.conduct.ends_itself && !self.conduct.wants_stop {
            self.profiler_is_off();
        }
        if self.undo.contains(&Undo::StopProfiler) {
            return self.stop(now);
        }
        self.enter(Phase::Collect, Ask::Collect, now)
    }

    /// Stops the profiler in the normal course of things.
    fn stop(&mut self, now: Duration) -> Step {
        self.profiler_is_off();
        self.enter(Phase::Stop, Ask::Stop, now)
    }

    fn profiler_is_off(&mut self) {
        self.undo.retain(|&undo| undo != Undo::StopProfiler);
    }

    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// The next thing to undo, then what there is to collect.
    fn unwind(&mut self, now: Duration) -> Step {
        match self.undo.pop() {
            Some(Undo::StopProfiler) => {
                self.last_growth = now;
                self.enter(Phase::CleanUp, Ask::Stop, now)
            }
            Some(Undo::EndLoad) => self.enter(Phase::CleanUp, Ask::EndLoad, now),
            None if self.started && !self.collected => {
                self.enter(Phase::CleanUp, Ask::Collect, now)
            }
            None => self.enter(Phase::Done, Ask::Finish, now),
        }
    }

    fn enter(&mut self, phase: Phase, ask: Ask, now: Duration) -> Step {
        if phase != self.phase {
            self.phase_began = now;
        }
        self.phase = phase;
        self.step(ask)
    }

    fn step(&mut self, ask: Ask) -> Step {
        self.ask = ask;
        let limits = &self.limits;
        let (limit, grows, waiting_for) = match ask {
            Ask::Preflight => (limits.preflight, false, "answers about the server's state"),
            Ask::WarmUp => (limits.requests, false, "the warm-up requests to end"),
            Ask::Baseline => (limits.requests, false, "the baseline requests to end"),
            Ask::BaselineAfter => (limits.requests, false, "the requests after the capture to end"),
            Ask::BeginLoad => (limits.first_tokens, false, "the first token of every request"),
            Ask::Start if self.conduct.start_is_held => {
                (limits.window + limits.stall, true, "the profiler to record and write")
            }
            Ask::Start => (limits.start, false, "an answer to the start of the profiler"),
            Ask::Look if self.phase == Phase::Window => {
                (limits.preflight, false, "the steps to be recorded")
            }
            Ask::Look => (limits.preflight, false, "the traces to be written"),
            Ask::Stop => (limits.stall, true, "an answer to the stop of the profiler"),
            Ask::Collect => (limits.verify, false, "the traces to be read and moved"),
            Ask::Verify => (limits.verify, false, "the traces to be analysed"),
            Ask::EndLoad => (limits.first_tokens, false, "the load to end"),
            Ask::Finish => (limits.verify, false, "the manifest to be written"),
        };
        Step { ask, limit, grows, waiting_for }
    }
}

/// Seconds for people: whole ones from 10 on.
fn seconds(time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds >= 10.0 { seconds.round() } else { (seconds * 10.0).round() / 10.0 }
}

fn stuck(seen: Observation, still: Duration, waited: Duration) -> Failure {
    let ranks = match seen.expected {
        Some(expected) => format!("{} of {expected} ranks", seen.whole),
        None => format!("{} of {} files", seen.whole, seen.files),
    };
    let (code, what) = if seen.files == 0 {
        ("no_trace", "the profiler was stopped, but no trace came".to_owned())
    } else if seen.expected.is_some_and(|expected| seen.files < expected)
        && seen.whole == seen.files
    {
        ("missing_rank", format!("traces of {ranks} came, the others did not"))
    } else {
        ("incomplete_trace", format!("traces of {ranks} are whole, the rest stopped growing"))
    };
    Failure::new(
        code,
        format!(
            "{what}: no growth for {} s, {} s after the profiler ended",
            seconds(still),
            seconds(waited)
        ),
    )
    .hint(
        "look into the server's log for an error of its profiler or a full disk; what came is kept",
    )
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
