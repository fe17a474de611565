//! How a report looks: width, colour, bars; and text that is safe to print.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalStyle {
    /// Columns. Tables drop columns from the right until they fit; 60 is the least that works.
    pub width: usize,
    /// Whether to use colours. Nothing is said by colour alone.
    pub color: bool,
    /// Whether to draw bars.
    pub bars: bool,
    /// How many kernels and operators to list.
    pub top: usize,
}

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Strong,
    Faint,
    Title,
    Warning,
    Alarm,
}

impl TerminalStyle {
    /// The width to lay out for.
    pub(crate) fn columns(&self) -> usize {
        self.width.max(60)
    }

    /// `text` in the colours of `tone`.
    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            _ if !self.color || text.is_empty() => return text.to_owned(),
            Tone::Strong => "1",
            Tone::Faint => "2",
            Tone::Title => "1;36",
            Tone::Warning => "33",
            Tone::Alarm => "1;31",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// `text` broken at spaces to fit, every line after the first indented by `indent`; the first
    /// has `indent` already used up by what stands before it.
    #[must_use]
    pub fn wrap(&self, text: &str, indent: usize) -> String {
        let room = self.columns().saturating_sub(indent).max(20);
        let mut out = String::new();
        let mut used = 0;
        for word in text.split_whitespace() {
            let width = word.width();
            if used > 0 && used + 1 + width > room {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent));
                used = 0;
            } else if used > 0 {
                out.push(' ');
                used += 1;
            }
            out.push_str(word);
            used += width;
        }
        out
    }
}

/// `text` without characters that would move the cursor or colour the screen.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Cuts `text` to `width` columns, the last being an ellipsis if anything was cut.
pub(crate) fn cut_columns(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut used = 0;
    let mut cut = String::new();
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if used + columns + 1 > width {
            break;
        }
        used += columns;
        cut.push(c);
    }
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: TerminalStyle = TerminalStyle { width: 80, color: false, bars: false, top: 10 };

    #[test]
    fn colour_is_left_out_when_not_wanted() {
        assert_eq!(PLAIN.paint(Tone::Alarm, "PARTIAL"), "PARTIAL");
        let color = TerminalStyle { color: true, ..PLAIN };
        assert_eq!(color.paint(Tone::Alarm, "PARTIAL"), "\u{1b}[1;31mPARTIAL\u{1b}[0m");
    }

    #[test]
    fn long_text_wraps_with_its_indent() {
        let narrow = TerminalStyle { width: 60, ..PLAIN };
        let text = "one two three four five six seven eight nine ten eleven twelve thirteen";
        assert_eq!(
            narrow.wrap(text, 4),
            "one two three four five six seven eight nine ten eleven\n    twelve thirteen"
        );
    }

    #[test]
    fn control_characters_cannot_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[31m\nb"), "a\u{fffd}[31m\u{fffd}b");
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(cut_columns("日本語", 5), "日本…");
        assert_eq!(cut_columns("日本語", 6), "日本語");
    }
}
