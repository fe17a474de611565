//! One event object, as slices of the text.

use super::args::Args;
use super::number;
use super::scan::{Scanner, Stop, Text};

/// A time as an event gives it, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Time {
    /// The event does not have it.
    #[default]
    Missing,
    /// It is not a number, or out of range.
    Bad,
    /// Nanoseconds.
    At(i64),
}

/// One event object.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Event<'a> {
    /// Position of its opening brace.
    pub(super) at: usize,
    /// The object as written.
    pub(super) text: &'a [u8],
    /// `ph`; 0 when missing.
    pub(super) phase: u8,
    pub(super) category: &'a [u8],
    pub(super) name: Text<'a>,
    pub(super) pid: Text<'a>,
    pub(super) tid: Text<'a>,
    pub(super) start: Time,
    pub(super) duration: Time,
    pub(super) id: Text<'a>,
    pub(super) has_args: bool,
    /// Arguments; all absent when the event has none.
    pub(super) args: Args<'a>,
}

/// Four characters as the scanner sees them in a word.
const fn four(text: [u8; 4]) -> u32 {
    u32::from_le_bytes(text)
}

const PH: u32 = four(*b"ph\":");
const TS: u32 = four(*b"ts\":");
const ID: u32 = four(*b"id\":");
const CAT: u32 = four(*b"cat\"");
const PID: u32 = four(*b"pid\"");
const TID: u32 = four(*b"tid\"");
const DUR: u32 = four(*b"dur\"");
const NAME: u64 = u64::from_le_bytes(*b"name\":\0\0");
const ARGS: u64 = u64::from_le_bytes(*b"args\":\0\0");
const SIX: u64 = (1 << 48) - 1;

#[derive(Clone, Copy)]
enum Key {
    Phase,
    Category,
    Name,
    Pid,
    Tid,
    Start,
    Duration,
    Id,
    Args,
    Other,
}

impl<'a> Event<'a> {
    /// Reads the object whose opening brace is at the scanner.
    pub(super) fn read(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Stop> {
        self.clear();
        self.at = scanner.at;
        scanner.at += 1;
        let mut more = scanner.next_member(true)?;
        while more {
            let key = read_key(scanner)?;
            self.member(key, scanner)?;
            more = scanner.next_member(false)?;
        }
        self.text = &scanner.text[self.at..scanner.at];
        Ok(())
    }

    /// Whether there is a `name`, and it is text.
    pub(super) fn has_name(&self) -> bool {
        let quote = self.name.at.checked_sub(self.at + 1).and_then(|at| self.text.get(at));
        quote == Some(&b'"')
    }

    /// Back to an event without members. Arguments are large, so only used ones are cleared.
    #[inline(always)]
    fn clear(&mut self) {
        if self.has_args {
            self.args = Args::default();
            self.has_args = false;
        }
        self.phase = 0;
        self.category = &[];
        (self.start, self.duration) = (Time::Missing, Time::Missing);
        (self.name, self.id) = (Text::default(), Text::default());
        (self.pid, self.tid) = (Text::default(), Text::default());
    }

    #[inline(always)]
    fn member(&mut self, key: Key, scanner: &mut Scanner<'a>) -> Result<(), Stop> {
        match key {
            Key::Phase => {
                self.phase = match scanner.value()?.bytes {
                    &[phase] => phase,
                    _ => 0,
                }
            }
            Key::Category => self.category = scanner.value()?.bytes,
            Key::Name => self.name = scanner.value()?,
            Key::Pid => self.pid = scanner.value()?,
            Key::Tid => self.tid = scanner.value()?,
            Key::Start => self.start = read_time(scanner)?,
            Key::Duration => self.duration = read_time(scanner)?,
            Key::Id => self.id = scanner.value()?,
            Key::Args if scanner.require()? == b'{' => {
                if self.has_args {
                    self.args = Args::default();
                }
                self.has_args = true;
                self.args.read(scanner)?;
            }
            Key::Args | Key::Other => {
                scanner.value()?;
            }
        }
        Ok(())
    }
}

#[inline(always)]
fn read_key(scanner: &mut Scanner<'_>) -> Result<Key, Stop> {
    let word = scanner.word();
    let (key, length) = match word as u32 {
        PH => (Key::Phase, 4),
        TS => (Key::Start, 4),
        ID => (Key::Id, 4),
        CAT if (word >> 32) as u8 == b':' => (Key::Category, 5),
        PID if (word >> 32) as u8 == b':' => (Key::Pid, 5),
        TID if (word >> 32) as u8 == b':' => (Key::Tid, 5),
        DUR if (word >> 32) as u8 == b':' => (Key::Duration, 5),
        _ if word & SIX == NAME => (Key::Name, 6),
        _ if word & SIX == ARGS => (Key::Args, 6),
        _ => return read_other_key(scanner),
    };
    scanner.at += length;
    scanner.skip_space();
    Ok(key)
}

fn read_other_key(scanner: &mut Scanner<'_>) -> Result<Key, Stop> {
    Ok(match scanner.key()? {
        b"ph" => Key::Phase,
        b"cat" => Key::Category,
        b"name" => Key::Name,
        b"pid" => Key::Pid,
        b"tid" => Key::Tid,
        b"ts" => Key::Start,
        b"dur" => Key::Duration,
        b"id" => Key::Id,
        b"args" => Key::Args,
        // Keys of the head of a file: not an event, and not to be skipped over.
        b"schemaVersion" | b"deviceProperties" | b"traceEvents" => return Err(Stop::Bad),
        _ => Key::Other,
    })
}

/// Microseconds to nanoseconds.
#[inline(always)]
fn read_time(scanner: &mut Scanner<'_>) -> Result<Time, Stop> {
    let start = scanner.at;
    if let Some(whole) = read_whole(scanner) {
        let rest = &scanner.text[scanner.at..];
        let (fraction, length) = match *rest {
            [b'.', a, b, c, ..]
                if a.is_ascii_digit() && b.is_ascii_digit() && c.is_ascii_digit() =>
            {
                (i64::from(a - b'0') * 100 + i64::from(b - b'0') * 10 + i64::from(c - b'0'), 4)
            }
            _ => (0, 0),
        };
        if matches!(rest.get(length), Some(b',' | b'}' | b' ' | b'\n')) {
            scanner.at += length;
            return Ok(Time::At(whole * 1000 + fraction));
        }
    }
    scanner.at = start;
    let text = scanner.value()?.bytes;
    Ok(number::microseconds(text).map_or(Time::Bad, Time::At))
}

/// The digits before a point or the end, if they are far from any overflow as nanoseconds.
#[inline(always)]
fn read_whole(scanner: &mut Scanner<'_>) -> Option<i64> {
    let start = scanner.at;
    let mut value = 0i64;
    let mut at = start;
    while let Some(digit @ b'0'..=b'9') = scanner.text.get(at).copied() {
        value = value.wrapping_mul(10).wrapping_add(i64::from(digit - b'0'));
        at += 1;
    }
    let fits = at > start && at - start <= 18 && value < i64::MAX / 1000;
    fits.then(|| {
        scanner.at = at;
        value
    })
}
