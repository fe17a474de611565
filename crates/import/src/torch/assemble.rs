//! Blocks in file order to whole lanes.

use steptally_trace_model::{Issues, Severity, StreamId, Trace, TraceBuilder, TraceMeta};

use super::block::{BlockEnd, Cut, Place, read_events};
use super::issue::excerpt;
use super::pairs::{self, Mark, Pairs};
use super::source::{Block, SourceEnd};
use super::store::{MAX_LANES, Store};
use super::top::{Fed, TopLevel};
use super::window::WindowMarks;
use super::{Lane, TorchError, TorchRead};

/// The longest event that is waited for.
const MAX_EVENT: usize = 64 << 20;

/// What was read of one block, free of its text.
#[derive(Debug)]
pub(super) struct Parsed {
    lanes: Vec<(Vec<u8>, TraceBuilder, WindowMarks)>,
    issues: Issues,
    marks: Vec<Mark>,
    events: u64,
    end: BlockEnd,
}

/// Reads the events of a block.
pub(super) fn parse(
    text: &[u8],
    offset: u64,
    from: Place,
    cut: Cut,
    keep_args: &[String],
) -> Parsed {
    let mut store = Store::new(offset, keep_args);
    let end = read_events(&mut store, text, from, cut);
    parsed(store, end)
}

fn parsed(store: Store<'_>, end: BlockEnd) -> Parsed {
    let lanes = store.lanes.into_iter().map(|lane| (lane.prefix, lane.builder, lane.window));
    Parsed {
        lanes: lanes.collect(),
        issues: store.issues,
        marks: store.marks,
        events: store.events,
        end,
    }
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    /// Before or behind the events.
    Around,
    /// Among the events.
    Events(Place),
}

#[derive(Debug, Default)]
struct WholeLane {
    prefix: Vec<u8>,
    builder: TraceBuilder,
    window: WindowMarks,
}

/// Joins blocks.
#[derive(Debug)]
pub(super) struct Assembly<'o> {
    keep_args: &'o [String],
    top: TopLevel,
    mode: Mode,
    lanes: Vec<WholeLane>,
    issues: Issues,
    pairs: Pairs,
    events: u64,
    /// Text of an event that goes on in the next block.
    carry: Vec<u8>,
    /// How long the carried text must be before it is read again.
    enough: usize,
    /// The first bytes, when they are no JSON.
    not_json: Option<Vec<u8>>,
}

impl<'o> Assembly<'o> {
    pub(super) fn new(keep_args: &'o [String]) -> Self {
        Self {
            keep_args,
            top: TopLevel::default(),
            mode: Mode::Around,
            lanes: Vec::new(),
            issues: Issues::default(),
            pairs: Pairs::default(),
            events: 0,
            carry: Vec::new(),
            enough: 0,
            not_json: None,
        }
    }

    /// Whether nothing more can come of this source.
    pub(super) fn is_hopeless(&self) -> bool {
        self.not_json.is_some()
    }

    /// Takes the next block; `parsed`: what a worker read of it, on the assumption that it begins
    /// between two events.
    pub(super) fn take(&mut self, block: &Block, parsed: Option<Parsed>) {
        let mut text = &block.text[..];
        let mut offset = block.offset;
        let mut parsed = parsed.filter(|_| block.at_boundary && self.carry.is_empty());
        let joined;
        if !self.carry.is_empty() {
            offset -= self.carry.len() as u64;
            let mut carry = std::mem::take(&mut self.carry);
            carry.extend_from_slice(text);
            let last = matches!(block.cut, Cut::EndOfFile | Cut::Broken);
            if carry.len() < self.enough && !last {
                self.carry = carry;
                return;
            }
            joined = carry;
            text = &joined;
        }
        loop {
            let Mode::Events(place) = self.mode else {
                parsed = None;
                let Some(at) = self.around(text, offset) else {
                    return;
                };
                text = &text[at..];
                offset += at as u64;
                continue;
            };
            let too_long = text.len() > MAX_EVENT && self.enough > 0;
            let cut = if too_long { Cut::EndOfFile } else { block.cut };
            let read = match parsed.take() {
                Some(read) if place == Place::AfterComma => read,
                _ => parse(text, offset, place, cut, self.keep_args),
            };
            let end = read.end;
            self.append(read);
            self.enough = 0;
            match end {
                BlockEnd::Between(place) => {
                    self.mode = Mode::Events(place);
                    return;
                }
                BlockEnd::InEvent(at, place) => {
                    self.mode = Mode::Events(place);
                    self.carry = text[at..].to_vec();
                    self.enough = 2 * self.carry.len();
                    return;
                }
                BlockEnd::Closed(at) => {
                    self.mode = Mode::Around;
                    self.top.events_closed();
                    text = &text[at..];
                    offset += at as u64;
                }
            }
        }
    }

    /// Feeds text around the events; where events begin in it.
    fn around(&mut self, text: &[u8], offset: u64) -> Option<usize> {
        // The byte order mark of UTF-8.
        let mark = if offset == 0 && text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        match self.top.feed(&text[mark..], offset + mark as u64, &mut self.issues) {
            Fed::All => None,
            Fed::Events(at) => {
                self.mode = Mode::Events(Place::Start);
                Some(mark + at)
            }
            Fed::Resumed(at) => {
                self.mode = Mode::Events(Place::AfterComma);
                Some(mark + at)
            }
            Fed::NotJson => {
                if self.not_json.is_none() {
                    let start = text[mark..].trim_ascii_start();
                    self.not_json = Some(start[..start.len().min(256)].to_vec());
                }
                None
            }
        }
    }

    fn append(&mut self, read: Parsed) {
        self.events += read.events;
        self.issues.append(read.issues);
        self.append_lanes(read.lanes);
        if read.marks.is_empty() {
            return;
        }
        let closed = self.pairs.close(read.marks, &mut self.issues);
        let mut store = Store::new(0, self.keep_args);
        pairs::store(&mut store, &closed);
        let read = parsed(store, BlockEnd::Closed(0));
        self.issues.append(read.issues);
        self.append_lanes(read.lanes);
    }

    fn append_lanes(&mut self, lanes: Vec<(Vec<u8>, TraceBuilder, WindowMarks)>) {
        for (prefix, builder, window) in lanes {
            let known = self.lanes.iter().position(|lane| lane.prefix == prefix);
            let index = match known {
                Some(index) => index,
                None if self.lanes.len() < MAX_LANES => {
                    self.lanes.push(WholeLane { prefix, ..WholeLane::default() });
                    self.lanes.len() - 1
                }
                None => {
                    let text = || excerpt(&prefix);
                    self.issues.note("too_many_lanes", Severity::Error, None, text);
                    continue;
                }
            };
            if let Some(lane) = self.lanes.get_mut(index) {
                lane.builder.append(builder);
                lane.window.add(window);
            }
        }
    }

    /// The whole, after the last block.
    pub(super) fn finish(mut self, end: SourceEnd) -> Result<TorchRead, TorchError> {
        let bytes = end.bytes;
        let truncated = end.error.is_some();
        if let Some(start) = &self.not_json {
            return Err(TorchError::NotJson { found: describe(start) });
        }
        if let Some(error) = end.error {
            if bytes == 0 {
                return Err(TorchError::Unreadable(error));
            }
            let text = || error.to_string();
            self.issues.note("source_truncated", Severity::Error, Some(bytes), text);
        } else if self.top.is_untouched() {
            return Err(TorchError::Empty { bytes });
        }
        std::mem::take(&mut self.pairs).finish(&mut self.issues);
        let open = matches!(self.mode, Mode::Events(_)) || self.top.is_open();
        if open && !truncated {
            // A bare array need not be closed.
            let severity = if self.top.bare { Severity::Info } else { Severity::Warning };
            let text = || "the text ends before its closing bracket".into();
            self.issues.note("not_closed", severity, Some(bytes), text);
        }
        if self.events == 0 {
            return Err(self.nothing_read());
        }
        let partial = self.issues.worst() == Some(Severity::Error);
        let meta = TraceMeta { partial, ..std::mem::take(&mut self.top.meta) };
        Ok(TorchRead { lanes: finish_lanes(self.lanes, &meta), issues: self.issues, bytes })
    }

    fn nothing_read(mut self) -> TorchError {
        let grave = |issue: &&steptally_trace_model::Issue| issue.severity == Severity::Error;
        let first = self.issues.iter().find(grave).or_else(|| self.issues.iter().next());
        let detail = first.map(|issue| {
            let at = issue.first.byte_offset.map(|at| format!(" at byte {at}")).unwrap_or_default();
            format!("{}{at}: {}", issue.code, issue.first.text)
        });
        if self.top.seen_events || self.issues.find("source_truncated").is_some() {
            return TorchError::NoEvents { detail };
        }
        let keys = std::mem::take(&mut self.top.keys);
        let has = |key: &str| keys.iter().any(|known| known == key);
        let guess = if has("schema") && has("nodes") {
            Some("a PyTorch execution trace (Chakra)")
        } else if has("$schema") && has("profiles") {
            Some("a speedscope profile")
        } else {
            None
        };
        TorchError::NoTraceEvents { keys, guess, cut: self.top.is_open() }
    }
}

fn finish_lanes(lanes: Vec<WholeLane>, meta: &TraceMeta) -> Vec<Lane> {
    let merged = lanes.iter().any(|lane| !lane.prefix.is_empty());
    let mut finished: Vec<Lane> = lanes
        .into_iter()
        // What lies outside all lanes of a merged file is of no rank, and mostly nothing.
        .filter(|lane| !merged || !lane.prefix.is_empty() || has_rows(&lane.builder))
        .map(|lane| {
            let mut builder = lane.builder;
            place_ranges_on_streams(&mut builder);
            builder.meta = meta.clone();
            builder.meta.window = lane.window.window();
            if merged {
                builder.meta.rank = None;
            }
            let prefix = String::from_utf8_lossy(&lane.prefix).into_owned();
            Lane { prefix, trace: builder.finish() }
        })
        .collect();
    if finished.is_empty() {
        let trace = Trace { meta: meta.clone(), ..TraceBuilder::default().finish() };
        finished.push(Lane { prefix: String::new(), trace });
    }
    finished
}

/// Ranges on the GPU come without a context: where one stream of that device and number is known
/// with its context, they are on it.
fn place_ranges_on_streams(builder: &mut TraceBuilder) {
    let stream_of = |id: StreamId| {
        let track = builder.streams[id];
        let mut same = builder.streams.iter().filter(|(_, stream)| {
            stream.context.is_some()
                && (stream.device, stream.stream) == (track.device, track.stream)
        });
        match (same.next(), same.next()) {
            (Some((known, _)), None) if !track.context.is_some() => known,
            _ => id,
        }
    };
    let moved: Vec<StreamId> = builder.streams.iter().map(|(id, _)| stream_of(id)).collect();
    for id in &mut builder.gpu_ranges.stream {
        *id = moved[id.index()];
    }
}

fn has_rows(builder: &TraceBuilder) -> bool {
    builder.gpu_event_count() > 0
        || !builder.api_calls.is_empty()
        || !builder.cpu_ops.is_empty()
        || !builder.ranges.is_empty()
        || !builder.frames.is_empty()
}

/// What a text that is no JSON looks like.
fn describe(start: &[u8]) -> String {
    let lower = start.to_ascii_lowercase();
    if start.starts_with(b"version https://git-lfs") {
        "a Git LFS pointer (the file itself was not fetched)".into()
    } else if lower.starts_with(b"<!doctype html") || lower.starts_with(b"<html") {
        "an HTML page".into()
    } else if start.starts_with(b"<") {
        "XML or HTML".into()
    } else if start.starts_with(b"SQLite format 3") {
        "an SQLite database".into()
    } else {
        format!("it begins with `{}`", excerpt(&start[..start.len().min(40)]))
    }
}
