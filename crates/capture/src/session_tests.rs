//! The state machine: every path, with times by hand.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A session under test: events at times in seconds, and all that was asked.
struct Run {
    session: Session,
    asked: Vec<Ask>,
    now: Duration,
}

impl Run {
    fn new() -> Self {
        let mut run = Self {
            session: Session::new(Limits::default()),
            asked: Vec::new(),
            now: Duration::ZERO,
        };
        assert_eq!(run.event(Event::Begin), Ask::Preflight);
        run
    }

    fn event(&mut self, event: Event) -> Ask {
        let step = self.session.next(event, self.now);
        self.asked.push(step.ask);
        step.ask
    }

    fn at(&mut self, seconds: u64) -> &mut Self {
        self.now = Duration::from_secs(seconds);
        self
    }

    /// Up to the window of a profiler that ends itself, or does not.
    fn until_window(ends_itself: bool) -> Self {
        let mut run = Self::new();
        run.event(Event::Ready(Conduct { ends_itself, ..Conduct::default() }));
        for ask in [Ask::Baseline, Ask::BeginLoad, Ask::Start, Ask::Look] {
            assert_eq!(run.event(Event::Done), ask);
        }
        run
    }

    fn stops(&self) -> usize {
        self.asked.iter().filter(|&&ask| ask == Ask::Stop).count()
    }

    /// Says yes to whatever is asked until the end.
    fn finish(mut self) -> (Ending, Vec<Ask>) {
        for _ in 0..20 {
            if self.asked.last() == Some(&Ask::Finish) {
                return (self.session.ending(), self.asked);
            }
            self.event(Event::Done);
        }
        panic!("no end: {:?}", self.asked);
    }
}

fn files(whole: usize, files: usize, bytes: u64) -> Event {
    Event::Seen(Observation {
        expected: Some(2),
        whole,
        files,
        bytes,
        alive: true,
        load_runs: true,
    })
}

#[test]
fn a_profiler_that_ends_itself_is_not_stopped() {
    let mut run = Run::until_window(true);
    assert_eq!(run.at(1).event(files(0, 0, 0)), Ask::Look);
    assert_eq!(run.at(2).event(files(0, 1, 100)), Ask::Look);
    assert_eq!(run.session.phase(), Phase::Settle);
    assert_eq!(run.at(3).event(files(2, 2, 500)), Ask::Collect);
    let (ending, asked) = run.finish();
    assert_eq!(ending, Ending::Complete);
    let tail = [Ask::Collect, Ask::Verify, Ask::EndLoad, Ask::BaselineAfter, Ask::Finish];
    assert_eq!(asked[asked.len() - 5..], tail);
    assert!(!asked.contains(&Ask::Stop));
}

#[test]
fn a_profiler_that_does_not_is_stopped_once() {
    let mut run = Run::until_window(false);
    assert_eq!(run.at(2).event(files(2, 2, 500)), Ask::Stop);
    assert_eq!(run.event(Event::Done), Ask::Look);
    assert_eq!(run.at(3).event(files(2, 2, 500)), Ask::Collect);
    assert_eq!(run.stops(), 1);
    assert_eq!(run.finish().0, Ending::Complete);
}

#[test]
fn what_another_program_writes_is_not_waited_for() {
    let mut run = Run::new();
    let conduct = Conduct {
        writes_elsewhere: true,
        record_for: Some(Duration::from_secs(2)),
        ..Conduct::default()
    };
    run.event(Event::Ready(conduct));
    for ask in [Ask::Baseline, Ask::BeginLoad, Ask::Start, Ask::Look] {
        assert_eq!(run.event(Event::Done), ask);
    }
    assert_eq!(run.at(1).event(files(0, 0, 0)), Ask::Look);
    assert_eq!(run.at(2).event(files(0, 0, 0)), Ask::Stop);
    let (ending, asked) = run.finish();
    assert_eq!(ending, Ending::Complete);
    let tail =
        [Ask::Stop, Ask::Collect, Ask::Verify, Ask::EndLoad, Ask::BaselineAfter, Ask::Finish];
    assert_eq!(asked[asked.len() - 6..], tail);
}

#[test]
fn slow_is_not_dead() {
    let mut run = Run::until_window(true);
    // Grows by one byte every 100 s for 900 s; the stall limit is 120 s.
    for step in 1..=9 {
        assert_eq!(run.at(100 * step).event(files(0, 1, step)), Ask::Look, "{step}");
    }
    assert_eq!(run.at(1019).event(files(0, 1, 9)), Ask::Look);
    // 120 s without growth.
    assert_eq!(run.at(1020).event(files(0, 1, 9)), Ask::Stop);
    let (ending, asked) = run.finish();
    let Ending::Failed(failure) = ending else { panic!("{ending:?}") };
    assert_eq!(failure.code, "incomplete_trace");
    assert!(failure.message.contains("0 of 2 ranks"), "{failure}");
    assert_eq!(asked.iter().filter(|&&ask| ask == Ask::Stop).count(), 1);
    assert!(asked.contains(&Ask::Collect));
}

#[test]
fn nothing_comes() {
    let mut run = Run::until_window(true);
    assert_eq!(run.at(119).event(files(0, 0, 0)), Ask::Look);
    assert_eq!(run.at(120).event(files(0, 0, 0)), Ask::Stop);
    let (ending, _) = run.finish();
    assert!(matches!(ending, Ending::Failed(failure) if failure.code == "no_trace"));
}

#[test]
fn a_missing_rank() {
    let mut run = Run::until_window(true);
    run.at(1).event(files(1, 1, 100));
    assert_eq!(run.at(121).event(files(1, 1, 100)), Ask::Stop);
    let (ending, _) = run.finish();
    assert!(matches!(ending, Ending::Failed(failure) if failure.code == "missing_rank"));
}

#[test]
fn unknown_ranks_settle() {
    let mut run = Run::until_window(true);
    let seen = |bytes| {
        Event::Seen(Observation {
            expected: None,
            whole: 1,
            files: 1,
            bytes,
            alive: true,
            load_runs: true,
        })
    };
    run.at(1).event(seen(10));
    assert_eq!(run.at(3).event(seen(10)), Ask::Look);
    assert_eq!(run.at(4).event(seen(10)), Ask::Collect);
}

#[test]
fn a_dead_server_is_not_stopped() {
    let mut run = Run::until_window(true);
    let dead = Observation { expected: Some(2), ..Observation::default() };
    assert_eq!(run.at(1).event(Event::Seen(dead)), Ask::EndLoad);
    let (ending, asked) = run.finish();
    assert!(matches!(ending, Ending::Failed(failure) if failure.code == "server_died"));
    assert!(!asked.contains(&Ask::Stop));
    assert!(asked.contains(&Ask::Collect));
}

#[test]
fn a_load_that_runs_out_is_begun_again() {
    let mut run = Run::until_window(true);
    let empty =
        Event::Seen(Observation { expected: Some(2), alive: true, ..Observation::default() });
    for _ in 0..REFILLS {
        assert_eq!(run.event(empty.clone()), Ask::BeginLoad);
        assert_eq!(run.event(Event::Done), Ask::Look);
    }
    assert_eq!(run.event(empty), Ask::Look);
    assert_eq!(run.stops(), 0);
}

#[test]
fn a_refused_start_is_not_stopped_an_unclear_one_is() {
    let failure = Failure::new("server_error", "500");
    let until_start = || {
        let mut run = Run::new();
        run.event(Event::Ready(Conduct { ends_itself: true, ..Conduct::default() }));
        for _ in 0..3 {
            run.event(Event::Done);
        }
        assert_eq!(run.asked.last(), Some(&Ask::Start));
        run
    };
    let mut run = until_start();
    assert_eq!(run.event(Event::Failed(failure.clone())), Ask::EndLoad);
    let (ending, asked) = run.finish();
    assert_eq!(ending, Ending::Failed(failure.clone()));
    assert!(!asked.contains(&Ask::Stop) && !asked.contains(&Ask::Collect));

    for event in [Event::StartUnclear(failure), Event::TimedOut] {
        let mut run = until_start();
        assert_eq!(run.event(event), Ask::Stop);
        let (_, asked) = run.finish();
        assert_eq!(asked.iter().filter(|&&ask| ask == Ask::Stop).count(), 1);
    }
}

#[test]
fn an_interrupt_after_any_number_of_events() {
    let events = [
        Event::Ready(Conduct { ends_itself: true, ..Conduct::default() }),
        Event::Done,
        Event::Done,
        Event::Done,
        Event::Done,
        files(0, 1, 100),
        files(2, 2, 500),
        Event::Done,
        Event::Done,
        Event::Done,
    ];
    for count in 0..=events.len() {
        let mut run = Run::new();
        for event in &events[..count] {
            run.event(event.clone());
        }
        // The start is asked for by the 4th event; whole traces (the 7th) say that it ended.
        let is_on = (4..7).contains(&count);
        run.event(Event::Interrupted);
        let (ending, asked) = run.finish();
        assert_eq!(ending, Ending::Interrupted, "after {count}");
        let stops = asked.iter().filter(|&&ask| ask == Ask::Stop).count();
        assert_eq!(stops, usize::from(is_on), "after {count}: {asked:?}");
        // The load is begun by the 3rd event and ended by itself after the 9th.
        let ends = asked.iter().filter(|&&ask| ask == Ask::EndLoad).count();
        assert_eq!(ends, usize::from(count >= 3), "after {count}: {asked:?}");
    }
}

#[test]
fn a_second_interrupt_changes_nothing() {
    let mut run = Run::until_window(true);
    assert_eq!(run.event(Event::Interrupted), Ask::Stop);
    assert_eq!(run.event(Event::Interrupted), Ask::Stop);
    assert_eq!(run.event(Event::Done), Ask::EndLoad);
}

#[test]
fn every_wait_says_what_for() {
    let mut run = Run::until_window(false);
    run.event(files(2, 2, 10));
    run.event(Event::TimedOut);
    let (ending, _) = run.finish();
    let Ending::Failed(failure) = ending else { panic!("{ending:?}") };
    assert_eq!(
        failure.message,
        "stop: waited 120 s without growth of a trace for an answer to the stop of the profiler"
    );
}

#[test]
fn a_profiler_without_a_number_of_steps_is_stopped_by_time() {
    let mut run = Run::new();
    run.event(Event::Ready(Conduct { record_for: Some(5 * SECOND), ..Conduct::default() }));
    for _ in 0..4 {
        run.event(Event::Done);
    }
    assert_eq!(run.at(4).event(files(0, 0, 0)), Ask::Look);
    assert_eq!(run.at(5).event(files(0, 0, 0)), Ask::Stop);
    assert_eq!(run.event(Event::Done), Ask::Look);
    assert_eq!(run.at(6).event(files(2, 2, 10)), Ask::Collect);
    assert_eq!(run.stops(), 1);
}
