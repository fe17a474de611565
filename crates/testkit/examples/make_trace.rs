//! Makes traces for measurements, all synthetic:
//!
//! ```text
//! make_trace repeat FIXTURE EVENTS FILE.json        one long trace from a small one
//! make_trace ranks FOLDER RANKS BYTES OUT_FOLDER [SLOW_RANK DELAY_NS]
//!                                                   a run of many ranks, each of so many bytes
//! ```
//!
//! `BYTES` 0 keeps the captured length, and packs the traces as a server does. A slow rank is so many
//! ns later at every collective.

#![allow(clippy::print_stdout, reason = "its output is for people")]

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use flate2::{Compression, write::GzEncoder};
use steptally_testkit::{SlowRank, Template, many_ranks, read_captured};

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().map_err(|_| usage());
    match words[..] {
        ["repeat", fixture, events, file] => {
            let events = number(events)? as usize;
            repeat(Path::new(fixture), events, Path::new(file))
        }
        ["ranks", captured, ranks, bytes, folder, ref slow @ ..] => {
            let ranks = number(ranks)? as u32;
            let slow = match slow {
                [] => None,
                [rank, delay] => {
                    Some(SlowRank { rank: number(rank)? as u32, delay_ns: number(delay)? as i64 })
                }
                _ => return Err(usage()),
            };
            let texts = many_ranks(&read_captured(Path::new(captured))?, ranks, slow)?;
            write_ranks(&texts, number(bytes)?, Path::new(folder))
        }
        _ => Err(usage()),
    }
}

fn usage() -> io::Error {
    io::Error::other(
        "make_trace repeat FIXTURE EVENTS FILE | make_trace ranks FOLDER RANKS BYTES OUT_FOLDER \
         [SLOW_RANK DELAY_NS]",
    )
}

fn repeat(fixture: &Path, events: usize, path: &Path) -> io::Result<()> {
    let mut text = String::new();
    let mut file = File::open(fixture)?;
    if fixture.extension().is_some_and(|extension| extension == "gz") {
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text)?;
    } else {
        file.read_to_string(&mut text)?;
    }
    let template = Template::new(&text)?;
    write(&template, template.copies_for(events), path)
}

fn write_ranks(texts: &[String], bytes: u64, folder: &Path) -> io::Result<()> {
    let name = |rank: usize| folder.join(format!("synthetic-TP-{rank}.trace.json"));
    if bytes == 0 {
        for (rank, text) in texts.iter().enumerate() {
            let file = File::create(name(rank).with_extension("json.gz"))?;
            let mut packed = GzEncoder::new(file, Compression::default());
            packed.write_all(text.as_bytes())?;
            packed.finish()?;
        }
        return Ok(());
    }
    let templates = texts.iter().map(|text| Template::new(text)).collect::<io::Result<Vec<_>>>()?;
    let period_ns = templates.iter().map(Template::period_ns).max().unwrap_or(0);
    let copies = templates.first().map_or(Ok(0), |first| first.copies_for_bytes(bytes))?;
    for (rank, template) in templates.into_iter().enumerate() {
        write(&template.every_ns(period_ns), copies, &name(rank))?;
    }
    Ok(())
}

fn write(template: &Template, copies: usize, path: &Path) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    template.write(copies, &mut out)?;
    out.flush()?;
    let (bytes, events) = (std::fs::metadata(path)?.len(), template.event_count(copies));
    println!(
        "{}: {copies} times what was captured, {:.1} MB, {events} events, {} bytes each",
        path.display(),
        bytes as f64 / 1e6,
        bytes / events as u64
    );
    Ok(())
}
