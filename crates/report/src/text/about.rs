//! What was read, how good it is, and what to do next.

use std::path::Path;

use steptally_analyze::results::{Analysis, CheckStatus, LedgerScope, Quality};

use super::style::{TerminalStyle, Tone, printable};
use super::table::{Fit, Table};
use super::units::{TimeUnit, bytes, count, counted};
use super::{gpu_names, rank_name, title};
use crate::{Input, Report, Severity};

/// Issues that are shown; the rest is counted.
const TOP_ISSUES: usize = 12;

/// The first line: what was read.
pub(super) fn opening_line(
    input: &Input,
    ranks: &str,
    gpus: &str,
    style: &TerminalStyle,
) -> String {
    let used: Vec<_> = input.files.iter().filter(|file| file.left_out.is_none()).collect();
    let what = match used.as_slice() {
        [file] => format!("{} ({}, {})", file_name(&file.path), file.format, bytes(file.bytes)),
        [] => "no trace".to_owned(),
        [first, ..] => {
            let folder = first.path.rsplit_once(['/', '\\']).map_or("", |(folder, _)| folder);
            let folder = if folder.is_empty() { "." } else { folder };
            let total = used.iter().map(|file| file.bytes).sum();
            format!(
                "{folder}: {} ({}, {})",
                counted(used.len() as u64, "file"),
                first.format,
                bytes(total)
            )
        }
    };
    let mut line = printable(&what);
    for more in [ranks, gpus].into_iter().filter(|more| !more.is_empty()) {
        line.push_str(&format!(", {more}"));
    }
    let left_out = input.files.len() - used.len();
    if left_out > 0 {
        line.push_str(&format!("; {} left out", counted(left_out as u64, "file")));
    }
    format!("{}\n", style.paint(Tone::Faint, &style.wrap(&line, 0)))
}

pub(super) fn opening(report: &Report, style: &TerminalStyle) -> String {
    let ranks = &report.analysis.ranks;
    let numbers: Vec<String> = ranks.iter().map(|rank| rank_name(rank.rank)).collect();
    let ranks_text = match numbers.as_slice() {
        [] => String::new(),
        [only] if only == "?" => String::new(),
        [only] => format!("rank {only}"),
        [..] if numbers.len() > 8 => counted(numbers.len() as u64, "rank"),
        [..] => format!("ranks {}", numbers.join(" ")),
    };
    opening_line(&report.input, &ranks_text, &gpu_names(ranks), style)
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// The banner that no reader should miss; empty when everything was read.
pub(super) fn partial_banner(input: &Input, partial: bool, style: &TerminalStyle) -> String {
    if !partial {
        return String::new();
    }
    let files: Vec<String> = input
        .files
        .iter()
        .filter(|file| file.partial)
        .map(|file| printable(file_name(&file.path)))
        .collect();
    let of = if files.is_empty() { "the input".to_owned() } else { files.join(", ") };
    let text = format!("part of {of} could not be read; every number below is about the rest.");
    format!("{}  {}\n", style.paint(Tone::Alarm, "PARTIAL"), style.wrap(&text, 9))
}

/// Step periods by rank, when there are several.
pub(super) fn ranks(analysis: &Analysis, style: &TerminalStyle) -> String {
    let ranks = &analysis.steps.ranks;
    if ranks.len() < 2 || analysis.ledger.scope != LedgerScope::Steps {
        return String::new();
    }
    let largest = ranks.iter().map(|rank| rank.period_ns.p90).fold(0.0, f64::max);
    let unit = TimeUnit::for_largest(largest);
    let mut table = Table::default()
        .column("rank", Fit::Number)
        .column("device", Fit::Number)
        .column("steps", Fit::Number)
        .column(format!("period {}", unit.name), Fit::Number)
        .column("p90", Fit::Number)
        .column("GPU busy", Fit::Number)
        .column("p90", Fit::Number);
    for rank in ranks {
        table.row(
            Tone::Plain,
            vec![
                rank_name(rank.rank),
                rank_name(rank.device),
                count(rank.period_ns.n),
                unit.format(rank.period_ns.median),
                unit.format(rank.period_ns.p90),
                unit.format(rank.gpu_busy_ns.median),
                unit.format(rank.gpu_busy_ns.p90),
            ],
        );
    }
    format!("{}{}", title(style, "RANKS", "medians over the rank's steps"), table.render(style))
}

/// GPU use by device over the whole trace.
pub(super) fn devices(analysis: &Analysis, style: &TerminalStyle) -> String {
    let devices = &analysis.devices;
    if devices.is_empty() {
        return String::new();
    }
    let lengths = devices.iter().flat_map(|d| [d.gpu_span_ns, d.opaque_graph_sum_ns]);
    let largest = lengths.max().unwrap_or(0);
    let unit = TimeUnit::for_largest(largest as f64);
    let format = |ns: i64| unit.format(ns as f64);
    let opaque = devices.iter().any(|device| device.opaque_graph_count > 0);
    let mut table = Table::default()
        .column("rank", Fit::Number)
        .column("device", Fit::Number)
        .column("kernels", Fit::Number)
        .column("copies", Fit::Number)
        .column(format!("span {}", unit.name), Fit::Number)
        .column("GPU busy", Fit::Number)
        .column("kernels busy", Fit::Number)
        .column("kernel sum", Fit::Number);
    if opaque {
        table = table.column("whole graphs", Fit::Number).column("their sum", Fit::Number);
    }
    table = table.column("events left out later", Fit::Number);
    for device in devices {
        let left_out = device.left_out.zero_time_count + device.left_out.stray_count;
        let mut cells = vec![
            rank_name(device.rank),
            rank_name(device.device),
            count(device.kernel_count),
            count(device.copy_count),
            format(device.gpu_span_ns),
            format(device.gpu_busy_ns),
            format(device.kernel_busy_ns),
            format(device.kernel_sum_ns),
        ];
        if opaque {
            cells.extend([count(device.opaque_graph_count), format(device.opaque_graph_sum_ns)]);
        }
        cells.push(count(left_out));
        table.row(Tone::Plain, cells);
    }
    format!("{}{}", title(style, "DEVICES", "the whole trace, as recorded"), table.render(style))
}

/// Checks that found something.
pub(super) fn quality(quality: &Quality, style: &TerminalStyle) -> String {
    let mut out = String::new();
    for check in &quality.checks {
        let (tone, label) = match check.status {
            CheckStatus::Warn => (Tone::Warning, "warn"),
            CheckStatus::Note => (Tone::Plain, "note"),
            CheckStatus::Pass | CheckStatus::NotApplicable => continue,
        };
        let count = match (check.count, check.of) {
            (0, _) => String::new(),
            (n, Some(of)) => format!(" {} of {}.", count(n), count(of)),
            (n, None) => format!(" {}.", count(n)),
        };
        let text = format!("{}:{count} {}", printable(&check.code), printable(&check.effect));
        out.push_str(&format!("  {}  {}\n", style.paint(tone, label), style.wrap(&text, 8)));
    }
    let names = |status| {
        let names: Vec<&str> = quality
            .checks
            .iter()
            .filter(|check| check.status == status)
            .map(|check| check.code.as_str())
            .collect();
        printable(&names.join(", "))
    };
    let passed = quality.checks.iter().filter(|check| check.status == CheckStatus::Pass).count();
    let mut note = format!("{:?}; {} passed", quality.grade, counted(passed as u64, "check"));
    let not_applicable = names(CheckStatus::NotApplicable);
    if !not_applicable.is_empty() {
        note.push_str(&format!("; not applicable: {not_applicable}"));
    }
    title(style, "QUALITY", &note) + &out
}

/// Defects of the input, gravest first, and files that took no part.
pub(super) fn issues(input: &Input, style: &TerminalStyle) -> String {
    let left_out: Vec<_> = input.files.iter().filter(|file| file.left_out.is_some()).collect();
    if input.issues.is_empty() && left_out.is_empty() {
        return String::new();
    }
    let several = input.files.len() > 1;
    let mut issues: Vec<_> = input.issues.iter().collect();
    issues.sort_by_key(|issue| std::cmp::Reverse(issue.severity));
    let mut out = title(
        style,
        "INPUT",
        &match issues.len() {
            0 => String::new(),
            n => counted(n as u64, "kind of issue").replace("kind of issues", "kinds of issue"),
        },
    );
    for issue in issues.iter().take(TOP_ISSUES) {
        let (tone, label) = match issue.severity {
            Severity::Error => (Tone::Alarm, "error"),
            Severity::Warning => (Tone::Warning, "warn"),
            Severity::Info => (Tone::Plain, "info"),
        };
        let at = issue.example.byte_offset.map_or_else(String::new, |at| format!(" at byte {at}"));
        let file = if several { format!(" in {}", file_name(&issue.file)) } else { String::new() };
        let text = format!(
            "{}: {}{file}; first{at}: {}",
            issue.code,
            count(issue.count),
            issue.example.text
        );
        out.push_str(&format!(
            "  {}  {}\n",
            style.paint(tone, &format!("{label:5}")),
            style.wrap(&printable(&text), 9)
        ));
    }
    if issues.len() > TOP_ISSUES {
        out.push_str(&format!("  and {} more; see --format json\n", issues.len() - TOP_ISSUES));
    }
    for file in left_out {
        let why = file.left_out.as_deref().unwrap_or_default();
        let text = format!("{}: left out, {why}", file_name(&file.path));
        out.push_str(&format!("  info   {}\n", style.wrap(&printable(&text), 9)));
    }
    out
}

/// What was given to read, as a shell takes it: the file, or the folder of the files.
fn given_path(input: &Input) -> String {
    let mut files = input.files.iter().map(|file| {
        // A member of an archive is written behind it.
        Path::new(file.path.split_once('!').map_or(file.path.as_str(), |(archive, _)| archive))
    });
    let Some(first) = files.next() else { return "PATH".to_owned() };
    let mut given = first;
    for file in files {
        while !file.starts_with(given) {
            given = given.parent().unwrap_or(Path::new(""));
        }
    }
    let text = if given.as_os_str().is_empty() { ".".into() } else { given.to_string_lossy() };
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", printable(&text).replace('\'', "'\\''"))
    }
}

/// What to run next.
pub(super) fn next(report: &Report, style: &TerminalStyle) -> String {
    let steps = &report.analysis.steps;
    let selected = steps.selected.as_ref().map(|selected| selected.kind.as_str());
    let path = given_path(&report.input);
    let mut next = Vec::new();
    if let Some((kind, _)) = steps
        .kinds
        .iter()
        .filter(|(kind, n)| Some(kind.as_str()) != selected && **n > 0)
        .max_by_key(|(_, n)| **n)
    {
        let kind = printable(kind);
        let quoted = if kind.contains(' ') { format!("'{kind}'") } else { kind };
        next.push(format!("steptally analyze {path} --kind {quoted}"));
    }
    if let Some(finding) = report.analysis.findings.findings.first() {
        next.push(format!("steptally explain {}", finding.code));
    }
    next.push(format!("steptally analyze {path} --format json"));
    next.push(format!("steptally inspect {path}"));
    format!("{} {}\n", style.paint(Tone::Faint, "next:"), next.join("\n      "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InputFile;

    #[test]
    fn what_to_run_next_names_what_was_given() {
        let given = |paths: &[&str]| {
            let file = |path: &&str| InputFile {
                path: (*path).to_owned(),
                bytes: 1,
                format: String::new(),
                partial: false,
                left_out: None,
            };
            given_path(&Input { files: paths.iter().map(file).collect(), issues: Vec::new() })
        };
        assert_eq!(given(&["a/x.json.gz"]), "a/x.json.gz");
        assert_eq!(given(&["a/r/x-TP-0.json", "a/r/x-TP-1.json"]), "a/r");
        assert_eq!(given(&["a/r/0/x.json", "a/r/1/x.json", "a/b.json"]), "a");
        assert_eq!(given(&["x.json", "y.json"]), ".");
        assert_eq!(given(&["run.zip!a.json", "run.zip!b.json"]), "run.zip");
        assert_eq!(given(&["it's mine.json"]), r"'it'\''s mine.json'");
        assert_eq!(given(&[]), "PATH");
    }
}
