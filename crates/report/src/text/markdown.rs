//! What Markdown is made of, for comments on pull requests (GitHub-flavoured).

use std::fmt::Write as _;

use super::style::printable;

/// A part that is folded away under its summary.
pub(super) fn folded(out: &mut String, summary: &str, content: &str) {
    let _ = write!(
        out,
        "<details><summary>{summary}</summary>\n\n{}\n\n</details>\n\n",
        content.trim_end()
    );
}

/// With a capital letter, but for `TPOT`, which has some already.
pub(super) fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) if text.starts_with("TPOT") => format!("{first}{}", chars.as_str()),
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// Text that cannot be taken for Markdown, HTML, a mention, or the end of a table's cell.
pub(super) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '@' => out.push_str("&#64;"),
            '|' | '_' | '`' | '[' | ']' | '\\' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

/// A code span; `|` would end a table's cell even there.
pub(super) fn code(text: &str) -> String {
    format!("`{}`", printable(text).replace('`', "'").replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_the_comment() {
        assert_eq!(text("a<b>|c_d @me"), "a&lt;b&gt;\\|c\\_d &#64;me");
        assert_eq!(code("x`y|z\n"), "`x'y\\|z\u{fffd}`");
    }
}
