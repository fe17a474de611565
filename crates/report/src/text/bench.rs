//! The text of `steptally bench`.

use super::style::{TerminalStyle, Tone, printable};
use super::table::{Fit, Table};
use super::title;
use super::units::{TimeUnit, counted, duration, percent, three_digits};

/// What was measured, as rows to show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BenchTable {
    /// Device, driver and model, one line.
    pub about: String,
    /// The measurements, those of a group together.
    pub rows: Vec<BenchRow>,
    /// What could not be measured: its name and why.
    pub skipped: Vec<(String, String)>,
    /// The same things measured by others: name, our time, theirs, theirs by ours.
    pub comparisons: Vec<BenchComparison>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchRow {
    /// Its group's name.
    pub group: String,
    /// What it is.
    pub name: String,
    /// In which shape.
    pub shape: String,
    /// Median time.
    pub median_ns: f64,
    /// A tenth of the samples is below.
    pub p10_ns: f64,
    /// A tenth of the samples is above.
    pub p90_ns: f64,
    /// Bytes a second of device memory, if that is what counts.
    pub bytes_per_s: Option<f64>,
    /// FLOP a second, if that is what counts.
    pub flops_per_s: Option<f64>,
    /// The least time that the hardware allows, by the median.
    pub limit_ratio: Option<f64>,
    /// Elements that agreed with a reference.
    pub checked: u64,
}

/// One thing that others measured too.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchComparison {
    /// What it is.
    pub name: String,
    /// Our time.
    pub time_ns: f64,
    /// Theirs.
    pub reference_ns: f64,
    /// Theirs by ours.
    pub speed_ratio: f64,
}

/// The measurements as text: a table for each group, what was skipped, the comparison.
#[must_use]
pub fn bench_text(table: &BenchTable, style: &TerminalStyle) -> String {
    let about = style.wrap(&printable(&table.about), 0);
    let mut sections = vec![format!("{}\n", style.paint(Tone::Faint, &about))];
    let mut groups: Vec<&str> = table.rows.iter().map(|row| row.group.as_str()).collect();
    groups.dedup();
    for group in groups {
        let rows: Vec<&BenchRow> = table.rows.iter().filter(|row| row.group == group).collect();
        sections.push(one_group(group, &rows, style));
    }
    sections.push(skipped(table, style));
    sections.push(comparisons(table, style));
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

fn one_group(group: &str, rows: &[&BenchRow], style: &TerminalStyle) -> String {
    let mut table = Table::default()
        .column("what", Fit::Flexible(14))
        .column("us", Fit::Number)
        .column("of limit", Fit::Number)
        .column("rate", Fit::Number)
        .column("p10", Fit::Number)
        .column("p90", Fit::Number)
        .column("shape", Fit::Flexible(12))
        .column("checked", Fit::Number);
    for row in rows {
        let checked = if row.checked == 0 { "-".to_owned() } else { row.checked.to_string() };
        table.row(
            Tone::Plain,
            vec![
                printable(&row.name),
                TimeUnit::CALL.format(row.median_ns),
                row.limit_ratio.map_or_else(|| "-".to_owned(), percent),
                rate(row),
                TimeUnit::CALL.format(row.p10_ns),
                TimeUnit::CALL.format(row.p90_ns),
                printable(&row.shape),
                checked,
            ],
        );
    }
    let note = "median of one, share of the data sheet's limit, spread; elements checked";
    title(style, &group.to_uppercase().replace('-', " "), note) + &table.render(style)
}

/// Memory bandwidth or, where the product is large enough for it to count, FLOP rate.
fn rate(row: &BenchRow) -> String {
    let flops = row.flops_per_s.filter(|flops| *flops >= 100e12 || row.bytes_per_s.is_none());
    match (flops, row.bytes_per_s) {
        (Some(flops), _) => format!("{} TFLOPS", three_digits(flops / 1e12)),
        (None, Some(bytes)) => format!("{} GB/s", three_digits(bytes / 1e9)),
        (None, None) => "-".to_owned(),
    }
}

fn skipped(table: &BenchTable, style: &TerminalStyle) -> String {
    if table.skipped.is_empty() {
        return String::new();
    }
    let mut out = title(style, "SKIPPED", &counted(table.skipped.len() as u64, "benchmark"));
    for (name, reason) in &table.skipped {
        let line = format!("{name}: {reason}");
        out.push_str(&format!("  - {}\n", style.wrap(&printable(&line), 4)));
    }
    out
}

fn comparisons(table: &BenchTable, style: &TerminalStyle) -> String {
    if table.comparisons.is_empty() {
        return String::new();
    }
    let mut shown = Table::default()
        .column("what", Fit::Flexible(20))
        .column("speed", Fit::Number)
        .column("ours", Fit::Number)
        .column("theirs", Fit::Number);
    for row in &table.comparisons {
        shown.row(
            Tone::Plain,
            vec![
                printable(&row.name),
                percent(row.speed_ratio),
                duration(row.time_ns),
                duration(row.reference_ns),
            ],
        );
    }
    let note = "against the reference: above 100 % ours is faster";
    title(style, "COMPARISON", note) + &shown.render(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: TerminalStyle = TerminalStyle { width: 120, color: false, bars: false, top: 0 };

    fn row(group: &str, name: &str) -> BenchRow {
        BenchRow {
            group: group.to_owned(),
            name: name.to_owned(),
            shape: "1024 MiB".to_owned(),
            median_ns: 500_000.0,
            p10_ns: 499_000.0,
            p90_ns: 510_000.0,
            bytes_per_s: Some(4.295e12),
            flops_per_s: None,
            limit_ratio: Some(0.8948),
            checked: 12_288,
        }
    }

    #[test]
    fn a_table_for_each_group() {
        let flops = BenchRow {
            flops_per_s: Some(788e12),
            checked: 0,
            limit_ratio: None,
            ..row("gemm", "square bf16")
        };
        let table = BenchTable {
            about: "NVIDIA H200".to_owned(),
            rows: vec![row("copy", "copy kernel"), flops],
            skipped: vec![("gemm nvfp4".to_owned(), "not supported: nvfp4 on sm_90".to_owned())],
            comparisons: vec![BenchComparison {
                name: "copy".to_owned(),
                time_ns: 250_000.0,
                reference_ns: 240_000.0,
                speed_ratio: 0.96,
            }],
        };
        let text = bench_text(&table, &STYLE);
        let lines: Vec<String> =
            text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "NVIDIA H200",
            "copy kernel 500.00 89.5 % 4295 GB/s 499.00 510.00 1024 MiB 12288",
            "square bf16 500.00 - 788 TFLOPS 499.00 510.00 1024 MiB -",
            "SKIPPED 1 benchmark",
            "- gemm nvfp4: not supported: nvfp4 on sm_90",
            "copy 96.0 % 250 us 240 us",
        ] {
            assert!(lines.iter().any(|l| l == line), "{line}\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn a_small_product_shows_its_bandwidth() {
        let small = BenchRow { flops_per_s: Some(4e12), ..row("gemm", "o_proj bf16") };
        assert_eq!(rate(&small), "4295 GB/s");
        let neither = BenchRow { bytes_per_s: None, ..row("launch", "empty") };
        assert_eq!(rate(&neither), "-");
    }
}
