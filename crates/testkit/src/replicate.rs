//! Makes a large torch.profiler trace by repeating the events of a small one.
//!
//! Each copy is shifted in time and gets ids of its own, so the result is what a longer capture of
//! the same server would be: valid JSON, one header, one rank, no id used twice. Metadata events
//! are written once; the recorder's own span is stretched over all copies.
//!
//! Arguments that no analysis reads are left out. That makes the text denser in events, at about
//! 230 bytes each, which is harder on a reader than the fixture itself.

use std::io::{self, Write};

use crate::json_text::{invalid, member, members, parse_micros, value_end, write_micros};

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

/// A torch.profiler trace, taken apart into what is repeated and what is not.
pub struct Template {
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

impl Template {
    /// Takes the text of a trace in object form apart.
    ///
    /// # Errors
    ///
    /// When the text is not such a trace, or has no event to repeat.
    pub fn new(json: &str) -> io::Result<Self> {
        let open = json.find('{').ok_or_else(|| invalid("no object"))?;
        let members = members(json, open)?;
        let events = members.iter().find(|member| member.key == "traceEvents");
        let events = events.ok_or_else(|| invalid("no traceEvents"))?.value.clone();
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
            return Err(invalid("no event to repeat"));
        }
        // One microsecond between copies.
        template.period_ns = last - first + 1_000;
        Ok(template)
    }

    /// How far each copy is shifted, in ns.
    #[must_use]
    pub fn period_ns(&self) -> i64 {
        self.period_ns
    }

    /// Shifts each copy by `period_ns` instead: ranks of one run are repeated in step.
    #[must_use]
    pub fn every_ns(self, period_ns: i64) -> Self {
        Self { period_ns, ..self }
    }

    /// The least number of copies that has at least `events` events.
    #[must_use]
    pub fn copies_for(&self, events: usize) -> usize {
        events.saturating_sub(self.once.len()).div_ceil(self.repeated.len()).max(1)
    }

    /// Events of the trace with this many copies.
    #[must_use]
    pub fn event_count(&self, copies: usize) -> usize {
        self.once.len() + copies * self.repeated.len()
    }

    /// The least number of copies that has at least `bytes` bytes.
    ///
    /// # Errors
    ///
    /// None that is expected: nothing is written to a file.
    pub fn copies_for_bytes(&self, bytes: u64) -> io::Result<usize> {
        let mut sizes = [0u64; 2];
        for (copies, size) in sizes.iter_mut().enumerate() {
            let mut text = Vec::new();
            self.write(copies + 1, &mut text)?;
            *size = text.len() as u64;
        }
        let copy = (sizes[1] - sizes[0]).max(1);
        Ok(1 + bytes.saturating_sub(sizes[0]).div_ceil(copy) as usize)
    }

    /// Writes the trace.
    ///
    /// # Errors
    ///
    /// What writing to `out` gives.
    pub fn write(&self, copies: usize, out: &mut impl Write) -> io::Result<()> {
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
    ) -> io::Result<()> {
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

/// Takes one event apart.
fn read_event(text: &str) -> io::Result<Event> {
    let top = members(text, 0)?;
    let value = |key: &str| member(text, &top, key);
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
                let id = value.parse().map_err(|_| invalid(format!("flow id {value}")));
                vec![Piece::Id(id?)]
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
fn read_args(text: &str) -> io::Result<Vec<Piece>> {
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
        assert_eq!(template.period_ns(), 15_500);
        let mut twice = Vec::new();
        template.write(2, &mut twice).unwrap();
        assert_eq!(template.copies_for_bytes(twice.len() as u64).unwrap(), 2);
        assert_eq!(template.copies_for_bytes(twice.len() as u64 + 1).unwrap(), 3);
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
