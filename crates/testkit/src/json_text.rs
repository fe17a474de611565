//! JSON text as Kineto writes it, taken apart without losing a digit of its times.

use std::io::{self, Write};
use std::ops::Range;

/// One member of a JSON object: its key, and where its value is.
pub(crate) struct Member<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: Range<usize>,
}

/// The text of a member's value; empty when there is none.
pub(crate) fn member<'a>(json: &'a str, members: &[Member<'_>], key: &str) -> &'a str {
    let found = members.iter().find(|member| member.key == key);
    found.map_or("", |member| &json[member.value.clone()])
}

/// A text that is not what it should be.
pub(crate) fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// As Kineto writes it: microseconds with three decimals.
pub(crate) fn write_micros(ns: i64, out: &mut impl Write) -> io::Result<()> {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    write!(out, "{sign}{}.{:03}", ns / 1000, ns % 1000)
}

/// Decimal microseconds with at most three decimals, as ns.
pub(crate) fn parse_micros(text: &str) -> io::Result<i64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 {
        return Err(invalid(format!("more than three decimals: {text}")));
    }
    format!("{whole}{decimals:0<3}").parse().map_err(|_| invalid(format!("not a time: {text}")))
}

/// The members of the JSON object that begins at `open`.
pub(crate) fn members(json: &str, open: usize) -> io::Result<Vec<Member<'_>>> {
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
        let colon = json[key_end..].find(':').ok_or_else(|| invalid("a key without a value"))?;
        let colon = colon + key_end;
        let value_start = skip(colon + 1);
        at = value_end(json, value_start)?;
        members.push(Member { key: &json[start + 1..key_end - 1], value: value_start..at });
        at = skip(at);
    }
    Ok(members)
}

/// Where the JSON value that begins at `start` ends.
pub(crate) fn value_end(json: &str, start: usize) -> io::Result<usize> {
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
    Err(invalid("the text ends within a value"))
}
