//! Tables of aligned columns that give up columns from the right when there is no room.

use unicode_width::UnicodeWidthStr;

use super::style::{TerminalStyle, Tone, cut_columns};
use crate::kernel_name::fit_names;

/// How a column takes its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// As wide as its widest cell, aligned right.
    Number,
    /// As wide as its widest cell, aligned left.
    Text,
    /// Aligned left; between this width and its widest cell.
    Flexible(usize),
    /// As `Flexible`, for names that must stay distinguishable when cut.
    Names(usize),
}

#[derive(Debug)]
struct Column {
    title: String,
    fit: Fit,
}

/// A table in the making.
#[derive(Debug, Default)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<(Tone, Vec<String>)>,
}

const INDENT: usize = 2;
const SPACE: usize = 2;

impl Table {
    /// Adds a column.
    pub(crate) fn column(mut self, title: impl Into<String>, fit: Fit) -> Self {
        self.columns.push(Column { title: title.into(), fit });
        self
    }

    /// Adds a row; cells that are missing are empty.
    pub(crate) fn row(&mut self, tone: Tone, cells: Vec<String>) {
        self.rows.push((tone, cells));
    }

    fn cell(&self, row: usize, column: usize) -> &str {
        self.rows[row].1.get(column).map_or("", String::as_str)
    }

    fn widest(&self, column: usize) -> usize {
        (0..self.rows.len())
            .map(|row| self.cell(row, column).width())
            .chain([self.columns[column].title.width()])
            .max()
            .unwrap_or(0)
    }

    /// Widths of the columns that are kept.
    fn widths(&self, room: usize) -> Vec<usize> {
        let wanted: Vec<usize> =
            (0..self.columns.len()).map(|column| self.widest(column)).collect();
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .zip(&wanted)
            .map(|(column, &wanted)| match column.fit {
                Fit::Number | Fit::Text => wanted,
                Fit::Flexible(least) | Fit::Names(least) => least.min(wanted),
            })
            .collect();
        let total = |widths: &[usize]| {
            INDENT + widths.iter().sum::<usize>() + SPACE * widths.len().saturating_sub(1)
        };
        while widths.len() > 1 && total(&widths) > room {
            widths.pop();
        }
        // What is left goes to the flexible columns, a column at a time so that all grow alike.
        let mut left = room.saturating_sub(total(&widths));
        while left > 0 {
            let hungry: Vec<usize> =
                (0..widths.len()).filter(|&column| widths[column] < wanted[column]).collect();
            if hungry.is_empty() {
                break;
            }
            for column in hungry.into_iter().take(left) {
                widths[column] += 1;
                left -= 1;
            }
        }
        widths
    }

    /// The table as lines, each ending in a line end.
    pub(crate) fn render(&self, style: &TerminalStyle) -> String {
        let widths = self.widths(style.columns());
        let mut out = String::new();
        let titles = self.columns.iter().map(|column| column.title.clone()).collect();
        self.line(&mut out, style, Tone::Faint, &widths, titles);
        let mut cells: Vec<Vec<String>> =
            widths.iter().enumerate().map(|(column, &width)| self.fitted(column, width)).collect();
        for (row, (tone, _)) in self.rows.iter().enumerate() {
            let line = cells.iter_mut().map(|column| std::mem::take(&mut column[row])).collect();
            self.line(&mut out, style, *tone, &widths, line);
        }
        out
    }

    /// The cells of a column, cut to `width`.
    fn fitted(&self, column: usize, width: usize) -> Vec<String> {
        let cells = (0..self.rows.len()).map(|row| self.cell(row, column).to_owned());
        let cells: Vec<String> = match self.columns[column].fit {
            Fit::Names(_) => fit_names(&cells.collect::<Vec<_>>(), width),
            _ => cells.collect(),
        };
        cells.iter().map(|cell| cut_columns(cell, width)).collect()
    }

    fn line(
        &self,
        out: &mut String,
        style: &TerminalStyle,
        tone: Tone,
        widths: &[usize],
        cells: Vec<String>,
    ) {
        let mut line = " ".repeat(INDENT);
        for (index, ((cell, &width), column)) in
            cells.iter().zip(widths).zip(&self.columns).enumerate()
        {
            if index > 0 {
                line.push_str(&" ".repeat(SPACE));
            }
            let pad = " ".repeat(width.saturating_sub(cell.width()));
            match column.fit {
                Fit::Number => line.extend([pad.as_str(), cell]),
                _ => line.extend([cell.as_str(), &pad]),
            }
        }
        out.push_str(&style.paint(tone, line.trim_end()));
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::default()
            .column("name", Fit::Names(10))
            .column("us/step", Fit::Number)
            .column("shapes", Fit::Flexible(20));
        table.row(
            Tone::Plain,
            vec!["a_very_long_kernel_name<int>".into(), "1.5".into(), "x".repeat(40)],
        );
        table.row(Tone::Plain, vec!["short".into(), "10.0".into()]);
        table
    }

    fn check(width: usize, expected: &str) {
        let style = TerminalStyle { width, color: false, bars: false, top: 10 };
        assert_eq!(table().render(&style), expected);
    }

    #[test]
    fn everything_is_shown_when_there_is_room() {
        check(
            100,
            "  name                          us/step  shapes\n  a_very_long_kernel_name<int>      1.5  \
             xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n  short                            10.0\n",
        );
    }

    #[test]
    fn flexible_columns_share_the_room() {
        // 60 - indent 2 - spaces 4 - number 7 - least 10 and 20 = 17 left, shared 9 and 8.
        check(
            60,
            "  name                 us/step  shapes\n  a_very_long_kernel…      1.5  \
             xxxxxxxxxxxxxxxxxxxxxxxxxxx…\n  short                   10.0\n",
        );
    }

    #[test]
    fn columns_go_from_the_right() {
        let mut table = table();
        table.columns[2].fit = Fit::Flexible(45);
        let style = TerminalStyle { width: 60, color: false, bars: false, top: 10 };
        let text = table.render(&style);
        assert!(!text.contains("shapes") && !text.contains('x'), "{text}");
        assert!(text.contains("a_very_long_kernel_name<int>"), "{text}");
    }
}
