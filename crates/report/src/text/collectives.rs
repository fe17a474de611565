//! Communication: who waits for whom, and what each kind of collective takes.

use steptally_analyze::results::{
    Analysis, CollectivePlace, CollectiveSize, Collectives, CrossRank, LateRank, RankArrival,
    WindowStart,
};

use super::headline::mean_window;
use super::style::{TerminalStyle, Tone, printable};
use super::table::{Fit, Table};
use super::units::{TimeUnit, bytes, calls, count, counted, duration, percent, three_digits};
use super::{per, rank_name, title};

/// Lateness below this share of the step is not worth a sentence of its own.
const SMALL: f64 = 0.01;

pub(super) fn collectives(analysis: &Analysis, style: &TerminalStyle) -> String {
    let found = &analysis.collectives;
    if found.count == 0 {
        return String::new();
    }
    let mut out = title(style, "COLLECTIVES", &note(analysis));
    let mut sentences = vec![headline(analysis)];
    sentences.extend(found.window_starts.iter().map(window_start));
    sentences.extend(found.cross_rank.as_ref().and_then(doubts));
    for sentence in sentences {
        out.push_str(&format!("  {}\n", style.wrap(&printable(&sentence), 2)));
    }
    out.push_str(&ranks(analysis, style));
    out.push_str(&sizes(found, per(analysis), style));
    out
}

fn note(analysis: &Analysis) -> String {
    let found = &analysis.collectives;
    let mut note = counted(found.count, "kernel");
    if found.left_out_count > 0 {
        note.push_str(&format!(", {} of them left out", count(found.left_out_count)));
    }
    match &found.cross_rank {
        Some(cross) => note.push_str(&format!(
            "; {} matched over {}, clocks aligned to {}",
            counted(cross.matched_count, "collective"),
            counted(cross.ranks.len() as u64, "rank"),
            duration(cross.uncertainty_ns as f64),
        )),
        None => note.push_str("; durations include waiting for other ranks"),
    }
    note
}

/// Who waits for whom, in one sentence.
fn headline(analysis: &Analysis) -> String {
    let found = &analysis.collectives;
    let Some(cross) = &found.cross_rank else {
        let reason = found.no_cross_rank.as_deref().unwrap_or("ranks were not compared");
        return format!("Who waits for whom is not known: {reason}.");
    };
    let worst =
        cross.ranks.iter().max_by(|a, b| a.lateness_ns_per_step.total_cmp(&b.lateness_ns_per_step));
    let per = per(analysis);
    match worst.and_then(|worst| Some((worst, worst.lateness_ns?))) {
        Some((worst, late_by)) if worst.lateness_ns_per_step >= SMALL * mean_window(analysis) => {
            let rank = rank_name(worst.rank);
            let mut text = format!(
                "Rank {rank} arrives last at {} of its collectives, by {} on average: the others \
                 wait {} per {per} for it",
                percent(worst.last_ratio),
                duration(late_by),
                duration(worst.lateness_ns_per_step),
            );
            let same = |late: &&LateRank| (late.rank, late.device) == (worst.rank, worst.device);
            if let Some(reason) = cross.late.iter().find(same).and_then(reason) {
                text.push_str(&format!("; {reason}"));
            }
            text.push('.');
            text
        }
        Some((worst, _)) => format!(
            "No rank is late by much: the others wait {} per {per} for rank {}, most of all.",
            duration(worst.lateness_ns_per_step),
            rank_name(worst.rank),
        ),
        None => "All ranks arrive together, as far as the clocks can tell.".to_owned(),
    }
}

/// Whether host or GPU makes a rank late, and what the host does.
fn reason(late: &LateRank) -> Option<String> {
    let known = late.host_late_ns + late.gpu_late_ns;
    if known <= late.unknown_ns {
        return None;
    }
    if late.host_late_ns < late.gpu_late_ns {
        return Some("its GPU takes longer before them".to_owned());
    }
    let share = percent(late.host_late_ns as f64 / known as f64);
    let doing: Vec<String> = late
        .host_activity
        .iter()
        .filter(|activity| !activity.name.is_empty())
        .take(2)
        .map(|activity| match activity.within.as_str() {
            "" => activity.name.clone(),
            within if within == activity.name => activity.name.clone(),
            within => format!("{} in {within}", activity.name),
        })
        .collect();
    let doing = if doing.is_empty() { String::new() } else { format!(" ({})", doing.join(", ")) };
    Some(format!("{share} of that is its host's, which launches later{doing}"))
}

fn window_start(start: &WindowStart) -> String {
    let rank = rank_name(start.rank);
    let wait = duration(start.window_start_wait_ns as f64);
    let later = duration(start.steady_ns);
    let left_out = match start.step {
        Some(step) => format!("step {step} is left out"),
        None => "it is left out of this section".to_owned(),
    };
    match start.late_rank {
        Some(late) => format!(
            "Rank {rank}'s first collective waits {wait} for rank {late} (later ones {later}): \
             their recordings began at different times; {left_out}."
        ),
        None => format!(
            "Rank {rank}'s first collective takes {wait} (later ones {later}): its recording \
             probably began before another rank's; {left_out}."
        ),
    }
}

/// What a reader should know about the matching.
fn doubts(cross: &CrossRank) -> Option<String> {
    let mut doubts = Vec::new();
    if cross.unmatched_count > 0 {
        doubts.push(format!("{} without a partner", counted(cross.unmatched_count, "kernel")));
    }
    if let Some(first) = cross.mismatches.first() {
        let counts: Vec<String> = first
            .counts
            .iter()
            .map(|(rank, n)| format!("rank {}: {n}", rank_name(*rank)))
            .collect();
        let step = first.step.map_or_else(String::new, |step| format!(" in step {step}"));
        let more = match cross.mismatch_count {
            0 | 1 => String::new(),
            n => format!(", and {} more", count(n - 1)),
        };
        doubts.push(format!(
            "numbers of {} differ{step} ({}){more}: not matched there",
            first.category,
            counts.join(", ")
        ));
    }
    for clock in &cross.clocks {
        if let Some(reason) = &clock.not_aligned {
            doubts.push(format!("rank {} is not compared: {reason}", rank_name(clock.rank)));
        }
    }
    (!doubts.is_empty()).then(|| format!("Not all could be compared: {}.", doubts.join("; ")))
}

fn ranks(analysis: &Analysis, style: &TerminalStyle) -> String {
    let found = &analysis.collectives;
    let largest = found.ranks.iter().map(|rank| rank.ns_per_step).fold(0.0, f64::max);
    let unit = TimeUnit::for_largest(largest);
    let per = per(analysis);
    let mut table = Table::default()
        .column("rank", Fit::Number)
        .column(format!("{}/{per}", unit.name), Fit::Number)
        .column("exposed", Fit::Number)
        .column(format!("calls/{per}"), Fit::Number);
    if found.cross_rank.is_some() {
        table = table
            .column("waiting", Fit::Number)
            .column("transfer", Fit::Number)
            .column("last at", Fit::Number)
            .column("late by us", Fit::Number);
    }
    for rank in &found.ranks {
        let mut row = vec![
            rank_name(rank.rank),
            unit.format(rank.ns_per_step),
            unit.format(rank.exposed_ns_per_step),
            calls(rank.count_per_step),
        ];
        let same =
            |arrival: &&RankArrival| (arrival.rank, arrival.device) == (rank.rank, rank.device);
        if let Some(arrival) = found.cross_rank.as_ref().and_then(|c| c.ranks.iter().find(same)) {
            row.extend([
                unit.format(arrival.wait_ns_per_step),
                unit.format(arrival.transfer_ns_per_step),
                percent(arrival.last_ratio),
                arrival.lateness_ns.map_or_else(String::new, |ns| TimeUnit::CALL.format(ns)),
            ]);
        }
        table.row(Tone::Plain, row);
    }
    table.render(style)
}

fn sizes(found: &Collectives, per: &str, style: &TerminalStyle) -> String {
    let matched = found.sizes.iter().any(|size| size.transfer_ns.is_some());
    let steps: u64 = found.ranks.iter().map(|rank| rank.n).sum();
    let mut table = Table::default()
        .column("collective", Fit::Flexible(22))
        .column("size", Fit::Number)
        .column(format!("calls/{per}"), Fit::Number)
        .column("us/call", Fit::Number)
        .column("p99", Fit::Number)
        // Alone, the shortest call comes nearest to a transfer.
        .column(if matched { "transfer" } else { "min" }, Fit::Number)
        .column("bus GB/s", Fit::Number);
    for size in &found.sizes {
        let least = if matched {
            size.transfer_ns.map(|transfer| transfer.median)
        } else {
            Some(size.duration_ns.min)
        };
        let row = vec![
            printable(&format!("{}{}", size.category, place(size.place))),
            size.bytes.map_or_else(|| "?".to_owned(), bytes),
            calls(size.duration_ns.n as f64 / steps.max(1) as f64),
            TimeUnit::CALL.format(size.duration_ns.median),
            TimeUnit::CALL.format(size.duration_ns.p99),
            least.map_or_else(String::new, |ns| TimeUnit::CALL.format(ns)),
            bandwidth(size),
        ];
        table.row(Tone::Plain, row);
    }
    table.render(style)
}

fn bandwidth(size: &CollectiveSize) -> String {
    size.busbw_bytes_per_s.map_or_else(|| "?".to_owned(), |busbw| three_digits(busbw / 1e9))
}

fn place(place: CollectivePlace) -> &'static str {
    match place {
        CollectivePlace::FirstOfStep => ", first of step",
        CollectivePlace::Steady => "",
    }
}
