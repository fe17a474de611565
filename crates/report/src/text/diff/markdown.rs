//! A diff as GitHub-flavoured Markdown, for a comment on a pull request.

use std::fmt::Write as _;

use steptally_analyze::results::{KernelSide, Waterfall};

use super::super::markdown::{capitalised, code, folded, text};
use super::super::units::{TimeUnit, calls, duration};
use super::terminal::fold_small;
use super::{
    bound, changed_kernels, comparability, deciding, fate, gate_line, kernel_fate, measures, side,
    signed, verdict,
};
use crate::{DiffReport, short_kernel_name};

/// The diff as Markdown: verdict and measures in sight, tables of `top` rows folded away.
#[must_use]
pub fn diff_markdown(report: &DiffReport, top: usize) -> String {
    let diff = &report.diff;
    let mut out = format!("### steptally diff: {}\n\n", verdict(diff.verdict));
    let mut why = deciding(diff).map_or_else(String::new, |text| format!("**{text}**. "));
    let reasons: Vec<&str> = diff.reasons.iter().map(|reason| reason.text.as_str()).collect();
    why.push_str(&capitalised(&reasons.join("; ")));
    paragraph(&mut out, &format!("{}.", text(&why)));
    for caution in &diff.cautions {
        paragraph(&mut out, &format!("> **Caution:** {}.", text(&caution.text)));
    }
    if report.partial {
        paragraph(&mut out, "> **Partial:** part of the input could not be read.");
    }
    for gate in &report.gates {
        let mark = if gate.holds { ":x:" } else { ":white_check_mark:" };
        let _ = writeln!(out, "- {mark} gate {}", code_before_colon(&gate_line(gate)));
    }
    if !report.gates.is_empty() {
        out.push('\n');
    }
    let rows = measures(diff);
    if !rows.is_empty() {
        out.push_str("| median of a step | A | B | change | 95 % interval | noise |\n");
        out.push_str("| --- | ---: | ---: | ---: | ---: | ---: |\n");
        for row in rows {
            let _ = writeln!(out, "| {} |", row.map(|cell| text(&cell)).join(" | "));
        }
        out.push('\n');
    }
    let sides = [("A", &report.source_a, &diff.a), ("B", &report.source_b, &diff.b)];
    for (name, source, of) in sides {
        let facts = format!("{}; bound by {}", side(of), bound(of));
        let _ = writeln!(out, "- **{name}**: {} {}", code(&source.path), text(&facts));
    }
    out.push('\n');
    if let Some(of) = &diff.waterfall {
        folded(&mut out, "Where the change is", &waterfall(of, top));
    }
    let kernels = kernels(report, top);
    if !kernels.is_empty() {
        folded(&mut out, "Kernels that changed", &kernels);
    }
    let name = if diff.comparability.comparable { "Comparable" } else { "Not comparable" };
    let lines: Vec<String> =
        comparability(diff).iter().map(|line| format!("- {}\n", text(line))).collect();
    folded(&mut out, name, &lines.concat());
    out
}

fn paragraph(out: &mut String, line: &str) {
    let _ = write!(out, "{line}\n\n");
}

fn waterfall(of: &Waterfall, top: usize) -> String {
    let mean = |total: i64, n: u64| total as f64 / n as f64;
    let (a, b) = (mean(of.a_sum_ns, of.a_n), mean(of.b_sum_ns, of.b_n));
    let unit = TimeUnit::for_largest(a.max(b));
    let mut out = format!(
        "| account | change ns/step | A {0} | B {0} | |\n| --- | ---: | ---: | ---: | --- |\n",
        unit.name
    );
    let mut row = |name: &str, change: i64, a: f64, b: f64, what: &str| {
        let (a, b) = (unit.format(a), unit.format(b));
        let _ = writeln!(out, "| {name} | {change:+} | {a} | {b} | {what} |");
    };
    let (rows, small) = fold_small(&of.rows, top.max(12));
    for of_account in rows {
        let (of_a, of_b) =
            (mean(of_account.a_total_ns, of.a_n), mean(of_account.b_total_ns, of.b_n));
        row(&code(&of_account.account), of_account.change_ns, of_a, of_b, fate(of_account.fate));
    }
    if !small.is_empty() {
        let change = small.iter().map(|row| row.change_ns).sum();
        let of_a = mean(small.iter().map(|row| row.a_total_ns).sum(), of.a_n);
        let of_b = mean(small.iter().map(|row| row.b_total_ns).sum(), of.b_n);
        row(&format!("{} more", small.len()), change, of_a, of_b, "");
    }
    row("**mean period**", of.change_ns, a, b, "");
    out
}

fn kernels(report: &DiffReport, top: usize) -> String {
    let all = changed_kernels(&report.diff);
    if all.is_empty() || top == 0 {
        return String::new();
    }
    let mut out = String::from(
        "| kernel | change/step | A | B | calls | |\n| --- | ---: | ---: | ---: | ---: | --- |\n",
    );
    for row in all.iter().take(top) {
        let Some(named) = row.b.as_ref().or(row.a.as_ref()) else { continue };
        let cell = |of: &Option<KernelSide>, text: fn(&KernelSide) -> String| {
            of.as_ref().map_or_else(|| "-".to_owned(), text)
        };
        let time = |of: &Option<KernelSide>| cell(of, |of| duration(of.ns_per_step));
        let count = |of: &Option<KernelSide>| cell(of, |of| calls(of.calls_per_step));
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} -> {} | {} |",
            code(&short_kernel_name(&named.name)),
            signed(row.change_ns_per_step),
            time(&row.a),
            time(&row.b),
            count(&row.a),
            count(&row.b),
            text(&kernel_fate(row)),
        );
    }
    if all.len() > top {
        let _ = writeln!(out, "\n{} more.", all.len() - top);
    }
    out
}

/// The gate as code, the rest as text.
fn code_before_colon(line: &str) -> String {
    match line.split_once(": ") {
        Some((gate, rest)) => format!("{}: {}", code(gate), text(rest)),
        None => text(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_stays_outside_the_code() {
        assert_eq!(code_before_colon("a>1us: passed, 2 us"), "`a>1us`: passed, 2 us");
    }
}
