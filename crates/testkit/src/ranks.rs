//! A run of many ranks from a captured one of few: synthetic, but with the events of a real server.
//!
//! Rank r is captured rank r modulo the number captured, with numbers, names, devices, process
//! groups and header of its own. Each rank has an origin of its clock and an error of its clock, so
//! that no two are the same recording and a reader has something to align:
//!
//! ```text
//!   captured 0  |##coll####|          made 0 |##coll####|
//!   captured 1    |coll####|          made 1   |coll####|        1 us of clock error a rank
//!                                     made 2  |##coll####|       what captured rank 0 did
//!                                     made 3    |coll####|
//! ```
//!
//! A slowed rank has its GPU's last work before every collective stretched, as a kernel that runs
//! beside it would do; the others wait in the collective for as long:
//!
//! ```text
//!   as captured   ##|coll|##          slowed         ##dddd|coll|##
//!                 ##|coll|##          the others     ##|ddddcoll|##
//! ```
//!
//! What stays as captured: sizes of messages and shards, and the time that a collective of fewer
//! ranks takes.

use std::io::{self, Read};
use std::path::Path;

use serde_json::{Value, json};

use crate::json_text::{invalid, member, members, parse_micros, value_end, write_micros};

/// The rank to slow, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowRank {
    /// Which.
    pub rank: u32,
    /// By how many ns its GPU is later at every collective than it was when captured.
    pub delay_ns: i64,
}

/// How much later the origin of a rank's clock is than rank 0's, in ns: stated in its header, so
/// that it changes no point in time.
#[must_use]
pub fn base_shift_ns(rank: u32) -> i64 {
    i64::from(rank) * 5_000_000
}

/// How far a rank's clock goes wrong, in ns: later than rank 0's, and stated nowhere.
#[must_use]
pub fn clock_error_ns(rank: u32) -> i64 {
    i64::from(rank) * 1_000
}

/// The texts of the traces `..-TP-0.trace.json.gz`, `..-TP-1..` of a folder, in rank order.
///
/// # Errors
///
/// When a file cannot be read, or the folder has no trace of rank 0.
pub fn read_captured(folder: &Path) -> io::Result<Vec<String>> {
    let mut texts = Vec::new();
    loop {
        let ending = format!("-TP-{}.trace.json.gz", texts.len());
        let mut of_rank = None;
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(&ending) {
                of_rank = Some(path);
            }
        }
        let Some(path) = of_rank else { break };
        let mut text = String::new();
        flate2::read::MultiGzDecoder::new(std::fs::File::open(path)?).read_to_string(&mut text)?;
        texts.push(text);
    }
    if texts.is_empty() {
        return Err(invalid(format!("{}: no trace of rank 0", folder.display())));
    }
    Ok(texts)
}

/// The texts of a run's traces, in rank order, from those of a run of fewer ranks.
///
/// # Errors
///
/// When the texts are not Kineto traces of ranks 0, 1, .. of one run whose ranks took part in the
/// same collectives.
pub fn many_ranks(
    captured: &[String],
    ranks: u32,
    slow: Option<SlowRank>,
) -> io::Result<Vec<String>> {
    let sources = captured.iter().map(|text| Source::new(text)).collect::<io::Result<Vec<_>>>()?;
    let count = sources.first().map_or(0, |source| source.collectives.len());
    if count == 0 || sources.iter().any(|source| source.collectives.len() != count) {
        return Err(invalid("the ranks took part in different collectives, or in none"));
    }
    let made = (0..ranks).map(|rank| {
        let source = &sources[rank as usize % sources.len()];
        let delays = match slow {
            Some(slow) if slow.rank == rank => source.before_collectives(slow.delay_ns),
            Some(slow) => source.in_collectives(slow.delay_ns),
            None => Vec::new(),
        };
        Made { source, of: sources.len() as u32, rank, ranks, delays }.text()
    });
    made.collect()
}

/// Whether a kernel is one in which ranks meet.
fn is_collective(name: &str) -> bool {
    name.contains("ncclDevKernel") || name.contains("cross_device_reduce")
}

/// One captured rank.
struct Source<'a> {
    /// The header and footer, with no events.
    about: Value,
    events: Vec<&'a str>,
    rank: u32,
    device: u32,
    /// The process of the host, as its text.
    process: String,
    /// Start and end of each collective, in order.
    collectives: Vec<(i64, i64)>,
    /// Starts and ends of the other kernels.
    kernels: Vec<(i64, i64)>,
}

impl<'a> Source<'a> {
    fn new(text: &'a str) -> io::Result<Self> {
        let open = text.find('{').ok_or_else(|| invalid("no object"))?;
        let top = members(text, open)?;
        let events = top.iter().find(|member| member.key == "traceEvents");
        let events = events.ok_or_else(|| invalid("no traceEvents"))?.value.clone();
        let about = format!("{}{}", &text[..=events.start], &text[events.end - 1..]);
        let about: Value = serde_json::from_str(&about)?;
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let rank = number(&about["distributedInfo"]["rank"]);
        let mut source = Self {
            rank: rank.ok_or_else(|| invalid("no distributedInfo.rank"))?,
            about,
            events: Vec::new(),
            device: 0,
            process: String::new(),
            collectives: Vec::new(),
            kernels: Vec::new(),
        };
        let mut at = events.start + 1;
        while let Some(start) = text[at..events.end].find('{').map(|offset| at + offset) {
            at = value_end(text, start)?;
            source.note(&text[start..at])?;
        }
        source.collectives.sort_unstable();
        source.kernels.sort_unstable();
        Ok(source)
    }

    fn note(&mut self, event: &'a str) -> io::Result<()> {
        self.events.push(event);
        let top = members(event, 0)?;
        let value = |key: &str| member(event, &top, key);
        match value("cat") {
            "\"kernel\"" => {
                let start = parse_micros(value("ts"))?;
                let time = (start, start + parse_micros(value("dur"))?);
                let kind = match is_collective(value("name")) {
                    true => &mut self.collectives,
                    false => &mut self.kernels,
                };
                kind.push(time);
                let device = value("pid").parse();
                self.device = device.map_err(|_| invalid("a kernel without a device"))?;
            }
            "\"cuda_runtime\"" => value("pid").clone_into(&mut self.process),
            _ => {}
        }
        Ok(())
    }

    /// A delay at the end of the last kernel before each collective, or at its start where there is
    /// none since the collective before: so that kernel, or what comes before it, is longer.
    fn before_collectives(&self, delay_ns: i64) -> Vec<(i64, i64)> {
        let mut since = i64::MIN;
        let mut delays = Vec::new();
        for &(start, end) in &self.collectives {
            let ends = self.kernels.iter().map(|(_, end)| *end);
            let last = ends.filter(|end| (since..=start).contains(end)).max();
            delays.push((last.filter(|last| *last > since).unwrap_or(start), delay_ns));
            since = end;
        }
        delays
    }

    /// A delay at the end of each collective: so it is longer.
    fn in_collectives(&self, delay_ns: i64) -> Vec<(i64, i64)> {
        self.collectives.iter().map(|(_, end)| (*end, delay_ns)).collect()
    }
}

/// One rank to write.
struct Made<'a> {
    source: &'a Source<'a>,
    /// How many ranks were captured.
    of: u32,
    rank: u32,
    ranks: u32,
    /// (point in time, delay of everything from there on), in ns, in order.
    delays: Vec<(i64, i64)>,
}

impl Made<'_> {
    fn text(&self) -> io::Result<String> {
        let about = serde_json::to_string(&self.about())?;
        let empty = "\"traceEvents\":[";
        let at = about.find(empty).ok_or_else(|| invalid("no traceEvents"))? + empty.len();
        let events: Vec<String> =
            self.source.events.iter().map(|event| self.event(event)).collect::<io::Result<_>>()?;
        Ok(format!("{}\n  {}\n  {}\n", &about[..at], events.join(",\n  "), &about[at..]))
    }

    fn about(&self) -> Value {
        let mut about = self.source.about.clone();
        let all: Vec<u32> = (0..self.ranks).collect();
        let device = about["deviceProperties"][0].clone();
        about["deviceProperties"] = all
            .iter()
            .map(|id| {
                let mut device = device.clone();
                device["id"] = json!(id);
                device
            })
            .collect();
        let info = &mut about["distributedInfo"];
        info["rank"] = json!(self.rank);
        info["world_size"] = json!(self.ranks);
        for group in info["pg_config"].as_array_mut().into_iter().flatten() {
            if group["pg_size"] == json!(self.of) {
                group["pg_size"] = json!(self.ranks);
                group["ranks"] = json!(all);
            } else {
                group["ranks"] = json!([self.rank]);
            }
        }
        let base = about["baseTimeNanoseconds"].as_i64().unwrap_or(0);
        about["baseTimeNanoseconds"] = json!(base + base_shift_ns(self.rank));
        about["traceName"] = json!(format!(
            "SYNTHETIC: rank {} of {}, made from captured rank {} of {}",
            self.rank, self.ranks, self.source.rank, self.of
        ));
        about
    }

    /// Where a captured point in time goes.
    fn time(&self, ns: i64) -> i64 {
        let passed = self.delays.partition_point(|(at, _)| *at <= ns);
        let delay: i64 = self.delays[..passed].iter().map(|(_, delay)| delay).sum();
        ns + delay + clock_error_ns(self.rank) - base_shift_ns(self.rank)
    }

    fn event(&self, event: &str) -> io::Result<String> {
        let top = members(event, 0)?;
        let of = |key: &str| member(event, &top, key);
        let start = parse_micros(of("ts"))?;
        let duration = match of("dur") {
            "" => 0,
            duration => parse_micros(duration)?,
        };
        let is_about_process = of("ph") == "\"M\"" && of("name").contains("process_");
        edited(event, &mut |key, value| {
            Ok(Some(match key {
                "ts" => micros(self.time(start))?,
                "dur" => micros(self.time(start + duration) - self.time(start))?,
                "pid" if is_about_process && value != self.source.process => return Ok(None),
                "pid" | "tid" => match self.place(key, value) {
                    Some(place) => place,
                    None => return Ok(None),
                },
                "name" => self.name(value),
                "args" => edited(value, &mut |key, value| Ok(self.argument(key, value)))?,
                _ => return Ok(None),
            }))
        })
    }

    /// Processes and devices of the rank. Threads keep their numbers, but for the main one.
    fn place(&self, key: &str, value: &str) -> Option<String> {
        if value == self.source.process {
            let process: u32 = value.parse().ok()?;
            return Some((process + self.rank - self.source.rank).to_string());
        }
        (key == "pid" && value == self.source.device.to_string()).then(|| self.rank.to_string())
    }

    fn name(&self, value: &str) -> String {
        let groups = |ranks: u32| format!("__nv_bfloat16, {ranks}>");
        value
            .replace(&format!("_TP{}", self.source.rank), &format!("_TP{}", self.rank))
            .replace(&groups(self.of), &groups(self.ranks))
    }

    fn argument(&self, key: &str, value: &str) -> Option<String> {
        let all = |ranks: u32| format!("\"{:?}\"", (0..ranks).collect::<Vec<u32>>());
        match key {
            "device" | "Rank" => Some(self.rank.to_string()),
            "Group size" if value == self.of.to_string() => Some(self.ranks.to_string()),
            "Process Group Ranks" if value == all(self.of) => Some(all(self.ranks)),
            "name" => Some(self.name(value)),
            _ => None,
        }
    }
}

fn micros(ns: i64) -> io::Result<String> {
    let mut text = Vec::new();
    write_micros(ns, &mut text)?;
    String::from_utf8(text).map_err(|error| invalid(error.to_string()))
}

/// The JSON object `json` with those values replaced for which `change`, given key and value, has
/// another text.
fn edited(
    json: &str,
    change: &mut impl FnMut(&str, &str) -> io::Result<Option<String>>,
) -> io::Result<String> {
    let mut out = String::with_capacity(json.len());
    let mut at = 0;
    for member in members(json, 0)? {
        if let Some(value) = change(member.key, &json[member.value.clone()])? {
            out.push_str(&json[at..member.value.start]);
            out.push_str(&value);
            at = member.value.end;
        }
    }
    out.push_str(&json[at..]);
    Ok(out)
}
