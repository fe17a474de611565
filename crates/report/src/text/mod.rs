//! The report for a terminal: headline first, then tables, then what qualifies them.

mod about;
mod bench;
mod capture;
mod collectives;
mod copies;
mod diff;
mod findings;
mod headline;
mod inspection;
mod layers;
mod ledger;
mod roofline;
mod shapes;
mod style;
mod table;
mod units;
mod work;

pub use bench::{BenchComparison, BenchRow, BenchTable, bench_text};
pub use capture::capture_text;
pub use diff::{diff_markdown, diff_text, gate_line};
pub use inspection::inspection_text;
pub use roofline::roofline_text;
pub use style::TerminalStyle;

use steptally_analyze::results::{LedgerScope, RankSummary};

use crate::Report;
use style::Tone;

/// The report as text for a terminal, a pipe or a file.
#[must_use]
pub fn terminal(report: &Report, style: &TerminalStyle) -> String {
    let analysis = &report.analysis;
    let mut sections = vec![about::opening(report, style)];
    sections.push(about::partial_banner(&report.input, report.partial, style));
    sections.push(headline::headline(report, style));
    if analysis.quality.refused.is_none() {
        sections.push(findings::findings(analysis, style));
        sections.push(ledger::ledger(analysis, style));
        sections.push(about::ranks(analysis, style));
        sections.push(collectives::collectives(analysis, style));
    }
    let whole_trace = analysis.ledger.scope != LedgerScope::Steps
        || analysis.quality.refused.is_some()
        || analysis.devices.len() > 1;
    if whole_trace {
        sections.push(about::devices(analysis, style));
    }
    sections.push(work::kernels(analysis, style));
    if analysis.quality.refused.is_none() {
        sections.push(layers::layers(analysis, style));
    }
    sections.push(copies::copies(analysis, style));
    sections.push(work::operators(analysis, style));
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
