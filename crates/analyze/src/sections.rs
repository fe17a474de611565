//! The parts of an analysis by name, so that a caller can ask for some of them only.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use thiserror::Error;

/// One part of an [`Analysis`](crate::results::Analysis), by its key in the JSON report.
///
/// Quality and ranks are no sections: every report has them, as every number depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields of `Analysis` say what each is
pub enum Section {
    Devices,
    Steps,
    Findings,
    Ledger,
    Gaps,
    Launches,
    Replays,
    Kernels,
    Collectives,
    Layers,
    Copies,
    Ranges,
    Ops,
}

/// Each section with its key, in the order of the JSON report.
const SECTIONS: [(Section, &str); 13] = [
    (Section::Devices, "devices"),
    (Section::Steps, "steps"),
    (Section::Findings, "findings"),
    (Section::Ledger, "ledger"),
    (Section::Gaps, "gaps"),
    (Section::Launches, "launches"),
    (Section::Replays, "replays"),
    (Section::Kernels, "kernels"),
    (Section::Collectives, "collectives"),
    (Section::Layers, "layers"),
    (Section::Copies, "copies"),
    (Section::Ranges, "ranges"),
    (Section::Ops, "ops"),
];

impl Section {
    /// Every section, in the order of the JSON report.
    pub fn all() -> impl Iterator<Item = Self> {
        SECTIONS.iter().map(|(section, _)| *section)
    }

    /// Its key in the JSON report.
    #[must_use]
    pub fn name(self) -> &'static str {
        SECTIONS[self as usize].1
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no section's.
#[derive(Debug, Error)]
#[error("there is no section {0:?}")]
pub struct UnknownSection(String);

impl FromStr for Section {
    type Err = UnknownSection;

    fn from_str(name: &str) -> Result<Self, UnknownSection> {
        let found = SECTIONS.iter().find(|(_, known)| *known == name);
        found.map(|(section, _)| *section).ok_or_else(|| UnknownSection(name.to_owned()))
    }
}

/// Which sections a report shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sections {
    shown: [bool; SECTIONS.len()],
    by_name: bool,
}

impl Default for Sections {
    /// All of them.
    fn default() -> Self {
        Self { shown: [true; SECTIONS.len()], by_name: false }
    }
}

impl Sections {
    /// These and no others.
    #[must_use]
    pub fn only(sections: &[Section]) -> Self {
        let mut shown = [false; SECTIONS.len()];
        for section in sections {
            shown[*section as usize] = true;
        }
        Self { shown, by_name: true }
    }

    /// All but these.
    #[must_use]
    pub fn without(sections: &[Section]) -> Self {
        let mut all = Self::default();
        for section in sections {
            all.shown[*section as usize] = false;
        }
        all
    }

    /// Whether the report shows this section.
    #[must_use]
    pub fn has(self, section: Section) -> bool {
        self.shown[section as usize]
    }

    /// Whether this section was asked for by its name: then it is shown at length.
    #[must_use]
    pub fn names(self, section: Section) -> bool {
        self.by_name && self.has(section)
    }

    /// Whether a section has to be worked out: it is shown, or findings, which look at nearly
    /// everything, are.
    pub(crate) fn needs(self, section: Section) -> bool {
        let finding_looks_at_it =
            !matches!(section, Section::Ranges | Section::Ops | Section::Replays);
        self.has(section) || (finding_looks_at_it && self.has(Section::Findings))
    }
}

impl Serialize for Sections {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_seq(Section::all().filter(|section| self.has(*section)).map(Section::name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sections_are_one_to_one() {
        for (place, section) in Section::all().enumerate() {
            assert_eq!(section as usize, place);
            assert_eq!(section.name().parse::<Section>().unwrap(), section);
        }
        let error = "kernel".parse::<Section>().unwrap_err();
        assert_eq!(error.to_string(), "there is no section \"kernel\"");
    }

    #[test]
    fn a_choice_shows_and_works_out_what_it_must() {
        let findings = Sections::only(&[Section::Findings]);
        assert!(findings.names(Section::Findings) && !findings.has(Section::Copies));
        assert!(findings.needs(Section::Copies) && !findings.needs(Section::Ops));

        let fewer = Sections::without(&[Section::Findings, Section::Copies]);
        assert!(!fewer.needs(Section::Copies) && fewer.needs(Section::Ops));
        assert!(fewer.has(Section::Ops) && !fewer.names(Section::Ops));
        assert!(Section::all().all(|section| Sections::default().has(section)));
    }
}
