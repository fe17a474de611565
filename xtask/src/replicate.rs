//! Makes a large torch.profiler trace by repeating the events of a small one.
//!
//! Each copy is shifted in time and gets ids of its own, so the result is what a longer capture of
//! the same server would be: valid JSON, one header, one rank, no id used twice. Metadata events
//! are written once; the recorder's own span is stretched over all copies.
//!
//! Arguments that no analysis reads are left out. That makes the text denser in events, at about
//! 230 bytes each, which is harder on a reader than the fixture itself.

use std::io::Write;
use std::ops::Range;

use anyhow::{Context, Result, bail};

/// Arguments left out.
const LEFT_OUT: &[&str] = &[
    "Record function id",
    "Ev Idx",
    "Input Strides",
    "Concrete Inputs",
    "Input type",
    "cbid",
    "queued",
    "blocks per SM",
    "warps per SM",
];

/// Arguments that hold an id.
const IDS: &[&str] =
    &["External id", "correlation", "Python id", "Python parent id", "Sequence number"];

/// A trace, taken apart into what is repeated and what is not.
pub(crate) struct Template {
    header: String,
    repeated: Vec<Event>,
    once: Vec<Event>,
    footer: String,
    /// How far each copy is shifted, in ns: from the first start to the last end.
    period_ns: i64,
    /// How far each copy's ids are shifted: more than any id.
    id_period: u64,
}

struct Event {
    pieces: Vec<Piece>,
    repeated: bool,
    start_ns: i64,
    duration_ns: i64,
}

enum Piece {
    Text(String),
    /// A point in time, in ns.
    Time(i64),
    Id(u64),
    /// The last copy's point in time.
    LastTime(i64),
    /// A duration over all copies.
    WholeDuration(i64),
}

/// One member of a JSON object: its key, and where its value is.
struct Member<'a> {
    key: &'a str,
    value: Range<usize>,
}

impl Template {
    /// Takes the text of a trace in object form apart.
    pub(crate) fn new(json: &str) -> Result<Self> {
        let open = json.find('{').context("no object")?;
        let members = members(json, open)?;
        let events = members.iter().find(|member| member.key == "traceEvents");
        let events = events.context("no traceEvents")?.value.clone();
        let mut template = Self {
            header: json[..=events.start].into(),
            repeated: Vec::new(),
            once: Vec::new(),
            footer: json[events.end - 1..].into(),
            period_ns: 0,
            id_period: 0,
        };
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        let mut at = events.start + 1;
        while let Some(start) = json[at..events.end].find('{').map(|offset| at + offset) {
            let end = value_end(json, start)?;
            let event = read_event(&json[start..end])?;
            if event.repeated {
                first = first.min(event.start_ns);
                last = last.max(event.start_ns + event.duration_ns);
            }
            for piece in &event.pieces {
                if let Piece::Id(id) = piece {
                    template.id_period = template.id_period.max(id + 1);
                }
            }
            let events = if event.repeated { &mut template.repeated } else { &mut template.once };
            events.push(event);
            at = end;
        }
        if template.repeated.is_empty() {
            bail!("no event to repeat");
        }
        // One microsecond between copies.
        template.period_ns = last - first + 1_000;
        Ok(template)
    }

    /// The least number of copies that has at least `events` events.
    pub(crate) fn copies_for(&self, events: usize) -> usize {
        events.saturating_sub(self.once.len()).div_ceil(self.repeated.len()).max(1)
    }

    /// Events of the trace with this many copies.
    pub(crate) fn event_count(&self, copies: usize) -> usize {
        self.once.len() + copies * self.repeated.len()
    }

    /// Writes the trace.
    pub(crate) fn write(&self, copies: usize, out: &mut impl Write) -> Result<()> {
        out.write_all(self.header.as_bytes())?;
        let mut separator = "\n  ";
        for copy in 0..copies {
            for event in &self.repeated {
                out.write_all(separator.as_bytes())?;
                separator = ",\n  ";
                self.write_event(event, copy, copies, out)?;
            }
        }
        for event in &self.once {
            out.write_all(separator.as_bytes())?;
            self.write_event(event, 0, copies, out)?;
        }
        out.write_all(b"\n  ")?;
        out.write_all(self.footer.as_bytes())?;
        Ok(())
    }

    fn write_event(
        &self,
        event: &Event,
        copy: usize,
        copies: usize,
        out: &mut impl Write,
    ) -> Result<()> {
        let shift = self.period_ns * copy as i64;
        let whole = self.period_ns * (copies as i64 - 1);
        for piece in &event.pieces {
            match piece {
                Piece::Text(text) => out.write_all(text.as_bytes())?,
                Piece::Time(ns) => write_micros(ns + shift, out)?,
                Piece::LastTime(ns) | Piece::WholeDuration(ns) => write_micros(ns + whole, out)?,
                Piece::Id(id) => write!(out, "{}", id + self.id_period * copy as u64)?,
            }
        }
        Ok(())
    }
}

/// As Kineto writes it: microseconds with three decimals.
fn write_micros(ns: i64, out: &mut impl Write) -> Result<()> {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    Ok(write!(out, "{sign}{}.{:03}", ns / 1000, ns % 1000)?)
}

/// Decimal microseconds with at most three decimals, as ns.
fn parse_micros(text: &str) -> Result<i64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 {
        bail!("more than three decimals: {text}");
    }
    format!("{whole}{decimals:0<3}").parse().with_context(|| format!("not a time: {text}"))
}

/// Takes one event apart.
fn read_event(text: &str) -> Result<Event> {
    let top = members(text, 0)?;
    let value = |key: &str| {
        top.iter().find(|member| member.key == key).map_or("", |member| &text[member.value.clone()])
    };
    let phase = value("ph");
    let is_span = value("cat") == "\"Trace\"";
    let is_window_end = phase == "\"i\"" && value("name").contains("End");
    let is_flow = ["\"s\"", "\"t\"", "\"f\""].contains(&phase);
    let repeated = phase != "\"M\"" && phase != "\"i\"" && !is_span;

    let mut event = Event { pieces: Vec::new(), repeated, start_ns: 0, duration_ns: 0 };
    let mut at = 0;
    for member in &top {
        let value = &text[member.value.clone()];
        let replacement = match member.key {
            "ts" => {
                event.start_ns = parse_micros(value)?;
                let time = if is_window_end { Piece::LastTime } else { Piece::Time };
                vec![time(event.start_ns)]
            }
            "dur" => {
                event.duration_ns = parse_micros(value)?;
                if !is_span {
                    continue;
                }
                vec![Piece::WholeDuration(event.duration_ns)]
            }
            "id" if is_flow => {
                vec![Piece::Id(value.parse().with_context(|| format!("flow id {value}"))?)]
            }
            "args" if repeated => read_args(value)?,
            _ => continue,
        };
        event.pieces.push(Piece::Text(text[at..member.value.start].into()));
        event.pieces.extend(replacement);
        at = member.value.end;
    }
    event.pieces.push(Piece::Text(text[at..].into()));
    Ok(event)
}

/// The arguments that are kept.
fn read_args(text: &str) -> Result<Vec<Piece>> {
    let mut pieces = vec![Piece::Text("{\n      ".into())];
    let mut separator = "";
    let args = members(text, 0)?;
    for member in args.iter().filter(|member| !LEFT_OUT.contains(&member.key)) {
        pieces.push(Piece::Text(format!("{separator}\"{}\": ", member.key)));
        separator = ", ";
        let value = &text[member.value.clone()];
        pieces.push(match value.parse() {
            Ok(id) if IDS.contains(&member.key) => Piece::Id(id),
            _ => Piece::Text(value.into()),
        });
    }
    pieces.push(Piece::Text("\n    }".into()));
    Ok(pieces)
}

/// The members of the JSON object that begins at `open`.
fn members(json: &str, open: usize) -> Result<Vec<Member<'_>>> {
    let bytes = json.as_bytes();
    let skip = |mut at: usize| {
        while bytes.get(at).is_some_and(|byte| byte.is_ascii_whitespace() || *byte == b',') {
            at += 1;
        }
        at
    };
    let mut members = Vec::new();
    let mut at = skip(open + 1);
    while bytes.get(at) == Some(&b'"') {
        let start = at;
        let key_end = value_end(json, start)?;
        let colon = json[key_end..].find(':').context("a key without a value")? + key_end;
        let value_start = skip(colon + 1);
        at = value_end(json, value_start)?;
        members.push(Member { key: &json[start + 1..key_end - 1], value: value_start..at });
        at = skip(at);
    }
    Ok(members)
}

/// Where the JSON value that begins at `start` ends.
fn value_end(json: &str, start: usize) -> Result<usize> {
    let mut depth = 0usize;
    let mut in_string = false;
    let mut escaped = false;
    for (offset, byte) in json.as_bytes()[start..].iter().enumerate() {
        let at = start + offset;
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    in_string = false;
                    if depth == 0 {
                        return Ok(at + 1);
                    }
                }
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return Ok(at),
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Ok(at + 1);
                }
            }
            b',' | b' ' | b'\n' if depth == 0 => return Ok(at),
            _ => {}
        }
    }
    bail!("the text ends within a value")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const SMALL: &str = r#"{
  "distributedInfo": {"rank": 3},
  "traceEvents": [
  {
    "ph": "X", "cat": "cuda_runtime", "name": "a}\"]", "pid": 1, "tid": 2,
    "ts": 10.500, "dur": 2.250,
    "args": {
      "External id": 4,"cbid": 7, "correlation": 9, "Ev Idx": 3
    }
  },
  {
    "ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7,
    "ts": 20, "dur": 5,
    "args": {
      "queued": 0, "blocks per SM": 1.5
    }
  },
  {
    "ph": "s", "id": 9, "pid": 1, "tid": 2, "ts": 10.500, "cat": "ac2g", "name": "ac2g"
  },
  {
    "name": "process_name", "ph": "M", "ts": 1.000, "pid": 1, "tid": 0, "args": {"name": "p"}
  },
  {
    "ph": "X", "cat": "Trace", "ts": 1.000, "dur": 30.000, "pid": "Spans", "tid": "x", "name": "P"
  },
  {
    "name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 40.000
  }
  ],
  "traceName": "x"
}"#;

    #[test]
    fn copies_are_shifted_and_have_their_own_ids() {
        let template = Template::new(SMALL).unwrap();
        // Repeated: 3 events, from 10.5 to 25 us; a copy every 14.5 + 1 us. The largest id is 9.
        assert_eq!(template.copies_for(8), 2);
        assert_eq!(template.copies_for(9), 2);
        assert_eq!(template.copies_for(10), 3);
        assert_eq!(template.event_count(2), 9);
        let mut out = Vec::new();
        template.write(2, &mut out).unwrap();
        let json: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["distributedInfo"]["rank"], 3);
        assert_eq!(json["traceName"], "x");
        let events = json["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 9);
        assert_eq!(events[0]["name"], "a}\"]");
        assert_eq!(events[0]["args"], json!({"External id": 4, "correlation": 9}));
        assert_eq!(events[3]["args"], json!({"External id": 14, "correlation": 19}));
        assert_eq!(events[1]["args"], json!({}));
        assert_eq!((&events[0]["ts"], &events[3]["ts"]), (&json!(10.5), &json!(26.0)));
        assert_eq!((&events[1]["ts"], &events[4]["ts"]), (&json!(20.0), &json!(35.5)));
        assert_eq!(events[3]["dur"], 2.25);
        assert_eq!((&events[2]["id"], &events[5]["id"]), (&json!(9), &json!(19)));
        assert_eq!(events[6]["name"], "process_name");
        assert_eq!(events[7]["dur"], 45.5);
        assert_eq!(events[8]["ts"], 55.5);
    }

    #[test]
    fn a_trace_that_cannot_be_repeated_is_an_error() {
        let error = |text: &str| Template::new(text).err().map(|error| error.to_string());
        assert_eq!(error("[]").as_deref(), Some("no object"));
        assert_eq!(error("{\"a\": 1}").as_deref(), Some("no traceEvents"));
        assert_eq!(error("{\"traceEvents\": []}").as_deref(), Some("no event to repeat"));
        assert_eq!(error("{\"traceEvents\": [{").as_deref(), Some("the text ends within a value"));
    }
}
