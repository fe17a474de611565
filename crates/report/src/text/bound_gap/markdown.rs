//! The gap as GitHub-flavoured Markdown.

use std::fmt::Write as _;

use super::super::markdown::{capitalised, code, folded, text};
use super::super::units::{TimeUnit, three_digits};
use super::{
    allowed, alone_line, component_cells, copy_line, layer_groups, measured, note, proof,
    waterfall, waterfall_titles,
};
use crate::GapReport;

/// The gap as Markdown: verdict and waterfall in sight, the rest folded away.
#[must_use]
pub fn gap_markdown(report: &GapReport) -> String {
    let gap = &report.gap;
    let mut out = format!(
        "### steptally gap: {}\n\n{}\n\n",
        code(&report.trace),
        text(&format!("{} {}", measured(gap), allowed(gap)))
    );
    for caution in &gap.cautions {
        let _ = write!(out, "> **Caution:** {}.\n\n", text(caution));
    }
    if report.partial {
        out.push_str("> **Partial:** part of the trace could not be read.\n\n");
    }
    let unit = TimeUnit::for_largest(gap.captured_ns_per_step);
    let titles = waterfall_titles(gap, unit);
    out.push_str(&table(&titles, 2, waterfall(gap, unit)));
    out.push('\n');
    let _ =
        write!(out, "{}. {}.\n\n", text(&capitalised(&proof(gap))), text(&capitalised(&note(gap))));
    for copy in &gap.copies {
        let _ = writeln!(out, "- {}", text(&copy_line(copy, gap.roofline.memory_bytes_per_s)));
    }
    let us = |ns: f64| TimeUnit::CALL.format(ns);
    let rows = gap.components.iter().map(component_cells);
    let titles = ["component", "us/step", "bound us", "times", "alone us"].map(str::to_owned);
    folded(&mut out, "Components", &table(&titles, 1, rows.collect()));
    match &gap.layers.not_compared {
        Some(reason) => {
            let _ = write!(out, "Layers are not compared: {}.\n\n", text(reason));
        }
        None => {
            let rows = layer_groups(gap).into_iter().map(|group| {
                let times = three_digits(group.times_bound);
                vec![group.name, us(group.ns_per_step), us(group.bound_ns as f64), times]
            });
            let titles = ["part", "GPU us", "bound us", "times"].map(str::to_owned);
            folded(&mut out, "Layers", &table(&titles, 1, rows.collect()));
        }
    }
    if let Some(line) = alone_line(gap) {
        let _ = write!(out, "Measured alone: {}.\n\n", text(&line));
    }
    let lines = gap.roofline.assumptions.iter().map(|line| format!("- {}\n", text(line)));
    folded(&mut out, "Assumptions of the bound", &lines.collect::<String>());
    out
}

/// A table whose first `left` columns are text and the others numbers.
fn table(titles: &[String], left: usize, rows: Vec<Vec<String>>) -> String {
    let rules = (0..titles.len()).map(|at| if at < left { "---" } else { "---:" });
    let rules: Vec<String> = rules.map(str::to_owned).collect();
    let cells = |row: &Vec<String>| row.iter().map(|cell| text(cell)).collect();
    let lines = [titles.to_vec(), rules].into_iter().chain(rows.iter().map(cells));
    lines.map(|cells: Vec<String>| format!("| {} |\n", cells.join(" | "))).collect()
}
