//! The text around the array of events, fed piece by piece: members before and after it.

use steptally_trace_model::{Issues, Severity, TraceMeta};

use super::header;
use super::issue::excerpt;
use super::resync::{Resume, find_resume};
use super::scan::{Scanner, Stop, is_space};

/// The largest value of a known key that is read.
const MAX_VALUE: usize = 16 << 20;
/// How much of the text before a piece is kept to find a key across the cut.
const OVERLAP: usize = 64;
/// How many top-level keys are remembered for a message.
const MAX_KEYS: usize = 16;

/// Where reading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before anything.
    Start,
    /// Between members.
    Members,
    /// In a value of no interest.
    Skipping(Skip),
    /// Grammar is lost: only the array of events is looked for.
    Lost,
    /// Behind the end of the document.
    Ended,
}

/// A value that is being skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Skip {
    depth: u32,
    in_string: bool,
    escaped: bool,
}

/// What came of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// All of it is used up.
    All,
    /// Events begin at this position of the piece, after an opening bracket.
    Events(usize),
    /// An event begins at this position, amidst damage.
    Resumed(usize),
    /// It begins with neither `{` nor `[`.
    NotJson,
}

/// Reads what surrounds the events.
#[derive(Debug)]
pub(super) struct TopLevel {
    state: State,
    /// Text of an unfinished member, or the last bytes of a skipped one.
    pending: Vec<u8>,
    pub(super) meta: TraceMeta,
    pub(super) keys: Vec<String>,
    /// Whether the document is a bare array.
    pub(super) bare: bool,
    /// Whether events were met.
    pub(super) seen_events: bool,
    depth: u32,
}

impl Default for TopLevel {
    fn default() -> Self {
        Self {
            state: State::Start,
            pending: Vec::new(),
            meta: TraceMeta::default(),
            keys: Vec::new(),
            bare: false,
            seen_events: false,
            depth: 0,
        }
    }
}

impl TopLevel {
    /// Whether the document is still open.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Members | State::Skipping(_))
    }

    /// Whether nothing but white space was met.
    pub(super) fn is_untouched(&self) -> bool {
        self.state == State::Start
    }

    /// Told that the array of events was closed.
    pub(super) fn events_closed(&mut self) {
        self.state = if self.bare { State::Ended } else { State::Members };
    }

    /// Takes the next piece, which begins at `offset` of the file.
    pub(super) fn feed(&mut self, piece: &[u8], offset: u64, issues: &mut Issues) -> Fed {
        let mut joined = std::mem::take(&mut self.pending);
        let before = joined.len();
        let fed = if before == 0 {
            self.read(piece, 0, offset, issues)
        } else {
            joined.extend_from_slice(piece);
            let from = if matches!(self.state, State::Members) { 0 } else { before };
            self.read(&joined, from, offset - before as u64, issues)
        };
        match fed {
            Fed::Events(at) => Fed::Events(at.saturating_sub(before)),
            Fed::Resumed(at) => Fed::Resumed(at.saturating_sub(before)),
            Fed::All | Fed::NotJson => fed,
        }
    }

    fn read(&mut self, text: &[u8], from: usize, base: u64, issues: &mut Issues) -> Fed {
        let mut at = from;
        // Keys are looked for from here on.
        let mut floor = 0;
        loop {
            match self.state {
                State::Start => {
                    at = skip_space(text, at);
                    match text.get(at) {
                        None => return Fed::All,
                        Some(b'{') => {
                            self.state = State::Members;
                            self.depth = 1;
                        }
                        Some(b'[') => {
                            self.bare = true;
                            self.state = State::Members;
                            return self.events(at + 1, base, issues);
                        }
                        Some(_) => return Fed::NotJson,
                    }
                    at += 1;
                }
                State::Members => {
                    at = text.len().min(at + separators(&text[at..]));
                    match text.get(at) {
                        None => return Fed::All,
                        Some(b'}') => {
                            self.depth = self.depth.saturating_sub(1);
                            if self.depth == 0 {
                                self.state = State::Ended;
                            }
                            at += 1;
                        }
                        Some(b']') => at += 1,
                        Some(_) => match self.member(text, at, base, issues) {
                            Member::Next(next) => {
                                at = next;
                                floor = next;
                            }
                            Member::Wait => {
                                self.pending = text[at..].to_vec();
                                return Fed::All;
                            }
                            Member::Events(next) => return self.events(next, base, issues),
                        },
                    }
                }
                State::Skipping(skip) => {
                    let window = at.saturating_sub(OVERLAP).max(floor);
                    let (next, done) = skip_value(text, at, skip);
                    let end = next.unwrap_or(text.len());
                    // In valid JSON this is a key, however deep; in damaged text, a way out.
                    if let Some(events) = find_events(&text[window..end]) {
                        return self.events(window + events, base, issues);
                    }
                    at = end;
                    if next.is_none() {
                        self.state = State::Skipping(done);
                        self.keep_overlap(text, floor);
                        return Fed::All;
                    }
                    self.state = State::Members;
                }
                State::Lost => {
                    let window = at.saturating_sub(OVERLAP).max(floor);
                    if let Some(events) = find_events(&text[window..]) {
                        return self.events(window + events, base, issues);
                    }
                    if let Some(Resume::Event(event)) = find_resume(text, window, false) {
                        note_writers(issues, self.seen_events, text, event, base);
                        self.seen_events = true;
                        return Fed::Resumed(event);
                    }
                    self.keep_overlap(text, floor);
                    return Fed::All;
                }
                State::Ended => {
                    at = skip_space(text, at);
                    match text.get(at) {
                        None => return Fed::All,
                        Some(b',' | b']' | b'}') => at += 1,
                        Some(b'{') => {
                            self.state = State::Members;
                            self.depth = 1;
                            at += 1;
                        }
                        Some(_) => {
                            let offset = Some(base + at as u64);
                            let shown = || excerpt(&text[at..]);
                            issues.note("trailing_data", Severity::Warning, offset, shown);
                            self.state = State::Lost;
                            floor = at;
                        }
                    }
                }
            }
        }
    }

    fn keep_overlap(&mut self, text: &[u8], floor: usize) {
        let from = text.len().saturating_sub(OVERLAP).max(floor);
        self.pending = text[from..].to_vec();
    }

    /// Events begin at `at`.
    fn events(&mut self, at: usize, base: u64, issues: &mut Issues) -> Fed {
        let offset = Some(base + at as u64);
        if self.seen_events {
            let text = || "a second array of events".into();
            issues.note("interleaved_writers", Severity::Error, offset, text);
        } else if self.depth > 1 {
            let text = || "traceEvents within traceEvents".into();
            issues.note("nested_trace_events", Severity::Warning, offset, text);
        }
        self.seen_events = true;
        Fed::Events(at)
    }

    /// Reads the member whose key should begin at `at`.
    fn member(&mut self, text: &[u8], at: usize, base: u64, issues: &mut Issues) -> Member {
        let mut scanner = Scanner::new(text, at + 1);
        let key = match text[at] {
            b'"' => scanner.key(),
            _ => Err(Stop::Bad),
        };
        let (key, first) = match key.and_then(|key| scanner.require().map(|byte| (key, byte))) {
            Ok(found) => found,
            Err(Stop::End) if text.len() - at < MAX_VALUE => return Member::Wait,
            Err(_) => return self.lose_grammar(text, at, base, issues),
        };
        let value_at = scanner.at;
        if key == b"traceEvents" {
            match first {
                b'[' => return Member::Events(value_at + 1),
                b'{' => {
                    self.depth += 1;
                    return Member::Next(value_at + 1);
                }
                _ => {}
            }
        }
        if self.keys.len() < MAX_KEYS && !self.seen_events {
            self.keys.push(excerpt(key));
        }
        if !header::is_kept(key) {
            self.state = State::Skipping(Skip::default());
            return Member::Next(value_at);
        }
        scanner.lenient = true;
        match scanner.value() {
            Ok(_) => {
                let value = &text[value_at..scanner.at];
                header::take(&mut self.meta, issues, key, value, base + value_at as u64);
                Member::Next(scanner.at)
            }
            Err(Stop::End) if text.len() - value_at >= MAX_VALUE => {
                self.state = State::Skipping(Skip::default());
                Member::Next(value_at)
            }
            // A quote too many may have swallowed the events.
            Err(Stop::End) if find_events(&text[value_at..]).is_none() => Member::Wait,
            Err(_) => self.lose_grammar(text, at, base, issues),
        }
    }

    fn lose_grammar(&mut self, text: &[u8], at: usize, base: u64, issues: &mut Issues) -> Member {
        // A file that ends within its header is not closed, which is noted elsewhere.
        let offset = Some(base + at as u64);
        issues.note("bad_header", Severity::Warning, offset, || excerpt(&text[at..]));
        self.state = State::Lost;
        Member::Next(at)
    }
}

enum Member {
    /// Go on here.
    Next(usize),
    /// The text ends within it.
    Wait,
    /// Events begin here.
    Events(usize),
}

fn note_writers(issues: &mut Issues, seen_events: bool, text: &[u8], at: usize, base: u64) {
    if seen_events {
        let offset = Some(base + at as u64);
        let shown = || excerpt(&text[at..]);
        issues.note("interleaved_writers", Severity::Error, offset, shown);
    }
}

fn skip_space(text: &[u8], mut at: usize) -> usize {
    while text.get(at).copied().is_some_and(is_space) {
        at += 1;
    }
    at
}

/// How many bytes of white space and commas a text begins with.
fn separators(text: &[u8]) -> usize {
    text.iter().take_while(|&&byte| is_space(byte) || byte == b',').count()
}

/// Behind the bracket of the first `"traceEvents": [`.
fn find_events(text: &[u8]) -> Option<usize> {
    const KEY: &[u8] = b"\"traceEvents\"";
    memchr::memmem::find_iter(text, KEY).find_map(|at| {
        let colon = skip_space(text, at + KEY.len());
        let bracket = skip_space(text, colon + 1);
        (text.get(colon) == Some(&b':') && text.get(bracket) == Some(&b'[')).then_some(bracket + 1)
    })
}

/// Where a skipped value ends; `None` with the state at the end of the text when it goes on.
fn skip_value(text: &[u8], from: usize, mut skip: Skip) -> (Option<usize>, Skip) {
    let mut at = from;
    while let Some(&byte) = text.get(at) {
        if skip.in_string {
            if skip.escaped {
                skip.escaped = false;
            } else if byte == b'\\' {
                skip.escaped = true;
            } else if byte == b'"' {
                skip.in_string = false;
                if skip.depth == 0 {
                    return (Some(at + 1), skip);
                }
            } else {
                let rest = &text[at..];
                at += memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                continue;
            }
        } else {
            match byte {
                b'"' => skip.in_string = true,
                b'[' | b'{' => skip.depth += 1,
                b']' | b'}' if skip.depth == 0 => return (Some(at), skip),
                b']' | b'}' => {
                    skip.depth -= 1;
                    if skip.depth == 0 {
                        return (Some(at + 1), skip);
                    }
                }
                b',' if skip.depth == 0 => return (Some(at), skip),
                _ => {}
            }
        }
        at += 1;
    }
    (None, skip)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `text` in pieces of `size` bytes; the offset where events begin.
    fn events_at(text: &str, size: usize) -> (Option<usize>, TopLevel, Issues) {
        let (mut top, mut issues) = (TopLevel::default(), Issues::default());
        let pieces = text.as_bytes().chunks(size);
        for (index, piece) in pieces.enumerate() {
            let offset = (index * size) as u64;
            match top.feed(piece, offset, &mut issues) {
                Fed::All => {}
                Fed::Events(at) | Fed::Resumed(at) => {
                    return (Some(index * size + at), top, issues);
                }
                Fed::NotJson => return (None, top, issues),
            }
        }
        (None, top, issues)
    }

    #[track_caller]
    fn check(text: &str, issue: Option<&str>) -> TopLevel {
        let expected =
            text.rfind("\"traceEvents\"").map(|at| at + text[at..].find('[').unwrap() + 1);
        let mut tops = [1, 2, 3, 7, 64, 1000].map(|size| {
            let (events, top, issues) = events_at(text, size);
            assert_eq!(events, expected, "{text} in pieces of {size}");
            let found: Vec<_> = issues.iter().map(|issue| issue.code).collect();
            assert_eq!(found, issue.into_iter().collect::<Vec<_>>(), "in pieces of {size}");
            top
        });
        std::mem::take(&mut tops[0])
    }

    #[test]
    fn known_keys_are_read_and_others_skipped() {
        let top = check(
            r#" {"schemaVersion": 1, "junk": [{"a": "]\"}", "b": [1]}, 2], "k": -1.5, "t": "x",
            "distributedInfo": {"rank": 3, "world_size": 8}, "record_shapes": 1,
            "baseTimeNanoseconds": 1790857026000000000, "traceEvents" : [ {"#,
            None,
        );
        assert_eq!(top.meta.rank.as_ref().map(|rank| rank.number), Some(3));
        assert_eq!(top.meta.world_size, Some(8));
        assert_eq!(top.meta.record_shapes, Some(true));
        assert_eq!(top.meta.base_time_ns, Some(1_790_857_026_000_000_000));
        assert_eq!(top.meta.versions, [("schemaVersion".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn nested_trace_events_are_unwrapped() {
        check(r#"{"traceEvents":{"traceEvents":[{"ph":"X"}"#, Some("nested_trace_events"));
    }

    #[test]
    fn events_are_found_behind_a_damaged_header() {
        check(r#"{"note": "a "quoted" word", "traceEvents": [{"#, Some("bad_header"));
        check(r#"{"note": {"a": "b"c"}, "x": 1, "traceEvents": [{"#, None);
        check(
            r#"{"deviceProperties": [{"id": 0, "name": "a"b"}], "traceEvents": [{"#,
            Some("bad_header"),
        );
    }
}
