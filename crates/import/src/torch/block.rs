//! The events of one block of text, damaged ones left out.

use steptally_trace_model::Severity;

use super::event::Event;
use super::issue::{excerpt, note_repairs};
use super::resync::{Resume, find_resume, looks_interleaved};
use super::scan::{Scanner, Stop};
use super::store::Store;

/// Where between two events a text begins or ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// Behind the bracket of the array.
    #[default]
    Start,
    /// Behind a comma.
    AfterComma,
    /// Behind an event, its comma still to come.
    AfterEvent,
}

/// Where a block's text was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Before something that looks like the beginning of an event.
    Boundary,
    /// Anywhere.
    Anywhere,
    /// It is the end of the file.
    EndOfFile,
    /// The source failed here.
    Broken,
}

/// Where the events of a block ended. Positions are within the block's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockEnd {
    /// Between two events, at the end of the text.
    Between(Place),
    /// In the midst of the event that begins here.
    InEvent(usize, Place),
    /// Behind the closing bracket of the array.
    Closed(usize),
}

/// What became of an element of the array that could not be read at once.
enum Outcome {
    /// It is read, or skipped as a value.
    Done,
    /// It is lost; the scanner is where reading goes on.
    Lost,
    /// It is lost or unfinished, and the block ends.
    Ended(BlockEnd),
}

/// Reads the events of `text` into `store`.
pub(super) fn read_events<'t>(
    store: &mut Store<'t>,
    text: &'t [u8],
    from: Place,
    cut: Cut,
) -> BlockEnd {
    let mut scanner = Scanner::new(text, 0);
    let mut event = Event::default();
    let mut place = from;
    loop {
        scanner.skip_space();
        let Some(byte) = scanner.peek() else {
            return BlockEnd::Between(place);
        };
        match byte {
            b'{' => {
                let start = scanner.at;
                if let Err(stop) = event.read(&mut scanner) {
                    match reread(store, &mut scanner, &mut event, place, stop, cut) {
                        Outcome::Done => {}
                        Outcome::Lost => {
                            place = Place::AfterComma;
                            continue;
                        }
                        Outcome::Ended(end) => return end,
                    }
                }
                if place == Place::AfterEvent {
                    note(store, text, start, "missing_comma", Severity::Warning);
                }
                store.event(&mut event);
                place = Place::AfterEvent;
            }
            b',' => {
                if place != Place::AfterEvent {
                    note(store, text, scanner.at, "stray_comma", Severity::Info);
                }
                scanner.at += 1;
                place = Place::AfterComma;
            }
            b']' => {
                if place == Place::AfterComma {
                    note(store, text, scanner.at, "stray_comma", Severity::Info);
                }
                return BlockEnd::Closed(scanner.at + 1);
            }
            _ => match odd_element(store, &mut scanner, place, cut) {
                Outcome::Done => place = Place::AfterEvent,
                Outcome::Lost => place = Place::AfterComma,
                Outcome::Ended(end) => return end,
            },
        }
    }
}

fn note(store: &mut Store<'_>, text: &[u8], at: usize, code: &'static str, severity: Severity) {
    let offset = store.base + at as u64;
    store.issues.note(code, severity, Some(offset), || excerpt(&text[at..]));
}

/// Reads an event again that broke the grammar, with repairs.
#[cold]
fn reread<'t>(
    store: &mut Store<'t>,
    scanner: &mut Scanner<'t>,
    event: &mut Event<'t>,
    place: Place,
    stop: Stop,
    cut: Cut,
) -> Outcome {
    let start = event.at;
    let unfinished = |stop| stop == Stop::End && cut != Cut::EndOfFile;
    if unfinished(stop) {
        return Outcome::Ended(BlockEnd::InEvent(start, place));
    }
    scanner.at = start;
    scanner.lenient = true;
    let result = event.read(scanner);
    scanner.lenient = false;
    let mut repairs = std::mem::take(&mut scanner.repairs);
    match result {
        Ok(()) => {
            note_repairs(&mut store.issues, &mut repairs, scanner.text, store.base);
            Outcome::Done
        }
        Err(stop) if unfinished(stop) => Outcome::Ended(BlockEnd::InEvent(start, place)),
        Err(_) => lose(store, scanner, start, place, cut),
    }
}

/// Something that is no event: skipped where it is a value, else lost.
#[cold]
fn odd_element(
    store: &mut Store<'_>,
    scanner: &mut Scanner<'_>,
    place: Place,
    cut: Cut,
) -> Outcome {
    let start = scanner.at;
    match scanner.value() {
        Ok(_) => {
            note(store, scanner.text, start, "not_an_event", Severity::Warning);
            Outcome::Done
        }
        Err(Stop::End) if cut != Cut::EndOfFile => Outcome::Ended(BlockEnd::InEvent(start, place)),
        Err(_) => lose(store, scanner, start, place, cut),
    }
}

/// Gives up what begins at `start` and goes to where reading can go on.
fn lose(
    store: &mut Store<'_>,
    scanner: &mut Scanner<'_>,
    start: usize,
    place: Place,
    cut: Cut,
) -> Outcome {
    let text = scanner.text;
    let (resume, outcome) = match find_resume(text, start + 1, cut == Cut::EndOfFile) {
        Some(Resume::Event(at)) => (at, Outcome::Lost),
        Some(Resume::Closed(at)) => (at, Outcome::Ended(BlockEnd::Closed(at))),
        None if cut == Cut::Anywhere => {
            return Outcome::Ended(BlockEnd::InEvent(start, place));
        }
        None => (text.len(), Outcome::Lost),
    };
    if looks_interleaved(&text[start..resume]) {
        note(store, text, start, "interleaved_writers", Severity::Error);
    }
    let lost = &text[start..resume];
    let count = memchr::memmem::find_iter(lost, b"\"ph\"").count().max(1) as u64;
    let offset = Some(store.base + start as u64);
    store.issues.note_many("lost_event", Severity::Error, count, offset, || excerpt(lost));
    scanner.at = resume;
    outcome
}
