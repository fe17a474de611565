//! Versions of engines, for what changed from one to the next.

use std::fmt;

/// The leading numbers of a version: `0.4.6.post5` is 0.4.6 with a fourth number 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major, minor, patch, post-release.
    pub parts: [u32; 4],
}

impl Version {
    /// From its first three numbers.
    #[must_use]
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { parts: [major, minor, patch, 0] }
    }

    /// Reads `0.5.16`, `0.4.6.post5`, `0.16.0rc1+cu130`; what follows the numbers does not count.
    /// `None` when there are none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = [0; 4];
        let text = text.trim().trim_start_matches('v');
        let text = text.split(['+', '-', ' ']).next().unwrap_or_default();
        for (index, piece) in text.split('.').take(4).enumerate() {
            let piece = if index == 3 { piece.trim_start_matches("post") } else { piece };
            let digits = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
            match piece[..digits].parse() {
                Ok(number) => parts[index] = number,
                Err(_) if index == 0 => return None,
                Err(_) => break,
            }
            if digits < piece.len() {
                break;
            }
        }
        Some(Self { parts })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch, post] = self.parts;
        write!(f, "{major}.{minor}.{patch}")?;
        if post > 0 { write!(f, ".post{post}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, parts) in [
            ("0.5.16", [0, 5, 16, 0]),
            ("0.4.6.post5", [0, 4, 6, 5]),
            ("v0.16.0rc1+cu130", [0, 16, 0, 0]),
            ("0.5.16.dev12+g1", [0, 5, 16, 0]),
            ("1", [1, 0, 0, 0]),
        ] {
            assert_eq!(Version::parse(text).map(|version| version.parts), Some(parts), "{text}");
        }
        assert_eq!(Version::parse("dev"), None);
        assert_eq!(Version::parse(""), None);
        assert!(Version::parse("0.4.6.post5") > Version::parse("0.4.6"));
        assert!(Version::parse("0.5.9") < Version::parse("0.5.14"));
        assert_eq!(Version::parse("0.4.6.post5").unwrap().to_string(), "0.4.6.post5");
    }
}
