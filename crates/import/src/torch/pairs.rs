//! Begin and end events (`ph` `B` and `E`), paired by process and thread over the whole file.

use std::collections::HashMap;

use steptally_trace_model::{Issues, Severity, Timestamp};

use super::event::Event;
use super::issue::excerpt;
use super::scan::Scanner;
use super::store::Store;

/// A begin or an end: rare in what Kineto writes, so it is kept as text.
#[derive(Debug)]
pub(super) struct Mark {
    text: Box<[u8]>,
    at: Timestamp,
    offset: u64,
}

impl Mark {
    pub(super) fn new(event: &Event<'_>, at: Timestamp, base: u64) -> Self {
        Self { text: event.text.into(), at, offset: base + event.at as u64 }
    }

    fn event(&self) -> Event<'_> {
        let mut event = Event::default();
        let mut scanner = Scanner::new(&self.text, 0);
        scanner.lenient = true;
        // It was read before.
        let _ = event.read(&mut scanner);
        event
    }
}

/// How many open begins of a thread are searched for the one that an end names.
const SEARCHED: usize = 64;

/// Begins that wait for their ends.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    open: HashMap<Box<[u8]>, Vec<Mark>>,
}

impl Pairs {
    /// Takes the marks of one block; returns begins with their ends.
    pub(super) fn close(
        &mut self,
        marks: Vec<Mark>,
        issues: &mut Issues,
    ) -> Vec<(Mark, Timestamp)> {
        let mut closed = Vec::new();
        for mark in marks {
            let event = mark.event();
            let track = [event.pid.bytes, event.tid.bytes].join(&0);
            let (phase, name) = (event.phase, event.name.bytes);
            if phase == b'B' {
                self.open.entry(track.into()).or_default().push(mark);
                continue;
            }
            // The innermost range of that name; without a name, the innermost.
            let begin = self.open.get_mut(&track[..]).and_then(|open| {
                let named = |begin: &Mark| name.is_empty() || begin.event().name.bytes == name;
                let outermost = open.len().saturating_sub(SEARCHED);
                let found = open.get(outermost..)?.iter().rposition(named);
                found.map(|index| open.remove(outermost + index))
            });
            match begin {
                Some(begin) => closed.push((begin, mark.at)),
                None => note_unmatched(issues, &mark),
            }
        }
        closed
    }

    /// Notes the begins without an end.
    pub(super) fn finish(self, issues: &mut Issues) {
        let mut unmatched: Vec<Mark> = self.open.into_values().flatten().collect();
        unmatched.sort_by_key(|mark| mark.offset);
        unmatched.iter().for_each(|mark| note_unmatched(issues, mark));
    }
}

/// Puts pairs into tables.
pub(super) fn store<'t>(store: &mut Store<'t>, pairs: &'t [(Mark, Timestamp)]) {
    for (begin, end) in pairs {
        store.base = begin.offset;
        store.pair(&mut begin.event(), begin.at, *end);
    }
}

fn note_unmatched(issues: &mut Issues, mark: &Mark) {
    let text = || excerpt(&mark.text);
    issues.note("unmatched_begin_end", Severity::Warning, Some(mark.offset), text);
}
