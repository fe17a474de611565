//! Events without a duration: metadata, counter samples, instants.

use steptally_trace_model::{CounterRow, Nanos, OptionalId, Severity};

use super::event::{Event, Time};
use super::number;
use super::scan::Text;
use super::store::{Store, for_each_arg};
use super::text::intern;

/// Names of processes and threads.
pub(super) fn metadata<'t>(store: &mut Store<'t>, event: &mut Event<'t>) {
    let (is_process, is_thread) =
        (event.name.bytes == b"process_name", event.name.bytes == b"thread_name");
    if !(is_process || is_thread) || !event.has_args {
        return;
    }
    let base = store.base;
    let Some((part, issues)) = store.part(event) else {
        return;
    };
    let name = intern(&mut part.builder.strings, issues, event.args.name, base);
    if is_process {
        let process = part.builder.process(&String::from_utf8_lossy(event.pid.bytes));
        part.builder.process_names.insert(process, name);
    } else {
        let thread = part.thread(event);
        part.builder.thread_names.insert(thread, name);
    }
}

/// The numeric series of a counter sample.
pub(super) fn counter<'t>(store: &mut Store<'t>, event: &mut Event<'t>) {
    let Some(start) = store.start(event) else {
        return;
    };
    if !event.has_args {
        return;
    }
    let base = store.base;
    let device = if event.args.device.is_some() {
        event.args.device
    } else {
        OptionalId::from(number::unsigned(event.pid.bytes))
    };
    let Some((part, issues)) = store.part(event) else {
        return;
    };
    for_each_arg(event.args.raw, |series, value| {
        let Some(number) = series_value(value) else {
            return;
        };
        let mut full = String::from_utf8_lossy(event.name.bytes).into_owned();
        if series != b"value" && series != event.name.bytes {
            full.push_str(if full.is_empty() { "" } else { " " });
            full.push_str(&String::from_utf8_lossy(series));
        }
        let text = Text { bytes: full.as_bytes(), ..event.name };
        let name = intern(&mut part.builder.strings, issues, text, base);
        let row = CounterRow { start, duration: Nanos::ZERO, name, value: number, device };
        part.builder.counters.push(row);
    });
}

/// The number of a series: not a number where it is not finite, `None` where it is no number.
fn series_value(value: Text<'_>) -> Option<f64> {
    let text = std::str::from_utf8(value.bytes).ok()?;
    let number: f64 = text.parse().ok()?;
    Some(if number.is_finite() { number } else { f64::NAN })
}

/// The marks of the recorded window; other instants (allocations) are of no use here.
pub(super) fn instant<'t>(store: &mut Store<'t>, event: &mut Event<'t>) {
    let at = match event.start {
        Time::At(ns) => steptally_trace_model::Timestamp::from_ns(ns),
        Time::Missing | Time::Bad => {
            store.note("bad_time", Severity::Info, event, || "instant without a time".into());
            return;
        }
    };
    if matches!(event.name.bytes.first(), Some(b'I' | b'R'))
        && let Some((part, _)) = store.part(event)
    {
        part.window.instant(event.name.bytes, at);
    }
}
