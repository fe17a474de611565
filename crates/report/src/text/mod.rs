//! The report for a terminal: headline first, then tables, then what qualifies them.

mod about;
mod bench;
mod bound_gap;
mod capture;
mod collectives;
mod copies;
mod diff;
mod findings;
mod gaps;
mod headline;
mod inspection;
mod launches;
mod layers;
mod ledger;
mod markdown;
mod ranges;
mod replays;
mod roofline;
mod shapes;
mod style;
mod table;
mod units;
mod work;

pub use bench::{BenchComparison, BenchRow, BenchTable, bench_text};
pub use bound_gap::{gap_markdown, gap_text};
pub use capture::capture_text;
pub use diff::{diff_markdown, diff_text, gate_line};
pub use inspection::inspection_text;
pub use roofline::roofline_text;
pub use style::TerminalStyle;
pub use units::bytes;

use steptally_analyze::Section;
use steptally_analyze::results::{Analysis, LedgerScope, RankSummary};

use crate::Report;
use style::Tone;

/// The report as text for a terminal, a pipe or a file.
#[must_use]
pub fn terminal(report: &Report, style: &TerminalStyle) -> String {
    let analysis = &report.analysis;
    let shown = analysis.sections;
    let mut sections = vec![about::opening(report, style)];
    sections.push(about::partial_banner(&report.input, report.partial, style));
    let mut headline = headline::headline(report, style);
    if let Some(gap) = &report.bound_gap {
        headline.push_str(&bound_gap::headline(gap, style));
    }
    sections.push(headline);
    let has_verdict = analysis.quality.refused.is_none();
    let whole_trace = analysis.ledger.scope != LedgerScope::Steps
        || !has_verdict
        || analysis.devices.len() > 1
        || shown.names(Section::Devices);
    type Text = fn(&Analysis, &TerminalStyle) -> String;
    let parts: [(Section, bool, Text); 13] = [
        (Section::Findings, has_verdict, findings::findings),
        (Section::Ledger, has_verdict, ledger::ledger),
        (Section::Gaps, has_verdict, gaps::gaps),
        (Section::Launches, has_verdict, launches::launches),
        (Section::Replays, has_verdict, replays::replays),
        (Section::Steps, has_verdict, about::ranks),
        (Section::Collectives, has_verdict, collectives::collectives),
        (Section::Devices, whole_trace, about::devices),
        (Section::Kernels, true, work::kernels),
        (Section::Layers, has_verdict, layers::layers),
        (Section::Copies, true, copies::copies),
        (Section::Ops, true, work::operators),
        (Section::Ranges, shown.names(Section::Ranges), ranges::ranges),
    ];
    for (section, applies, text) in parts {
        if applies && shown.has(section) {
            sections.push(text(analysis, style));
        }
    }
    if let Some(gap) = &report.bound_gap {
        sections.extend(bound_gap::sections(gap, style));
    }
    sections.push(about::quality(&analysis.quality, style));
    sections.push(about::issues(&report.input, style));
    sections.push(about::next(report, style));
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

/// A section's title: what it is, and what its numbers are.
fn title(style: &TerminalStyle, name: &str, note: &str) -> String {
    let indent = name.chars().count() + 2;
    format!("{}  {}\n", style.paint(Tone::Title, name), style.wrap(note, indent))
}

/// What per-step figures are about.
fn per(analysis: &Analysis) -> &'static str {
    if analysis.ledger.scope == LedgerScope::Steps { "step" } else { "window" }
}

/// The rank's number, or `?`.
fn rank_name(rank: Option<u32>) -> String {
    rank.map_or_else(|| "?".to_owned(), |rank| rank.to_string())
}

/// The products that the ranks run on, each once: `NVIDIA H200`.
fn gpu_names(ranks: &[RankSummary]) -> String {
    let mut names: Vec<&str> = ranks.iter().filter_map(|rank| rank.gpu_name.as_deref()).collect();
    names.dedup();
    style::printable(&names.join(", "))
}
