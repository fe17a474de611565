//! The repeat within a step: prologue, layers, epilogue.
//!
//! ```text
//!   p p p  a b c d  A b c d  A b c d  A b c d  A e e       a, A: first norm, fused norm
//!          |<--- longest run of one period -->|
//!   |<-->| layer 0  layer 1  layer 2  layer 3 |<-->|
//! ```
//!
//! The run of the period with most kernels in it is found by names; at its edges kernels of the
//! same category count as alike, for a first layer often differs in one kernel. Layers then are all
//! places where that period occurs; what is left between them, and what begins as a layer does
//! before them, are layers that are odd.

use hashbrown::HashMap;

use crate::categories::UNCATEGORISED;

/// Longer periods are not looked for.
const LONGEST_PERIOD: usize = 2048;
/// So many periods are looked into.
const CANDIDATES: usize = 32;
/// Layers must hold this share of a step's kernels.
const COVERAGE: f64 = 0.5;

/// Kernel names of all ranks as small numbers, with what matters about them.
#[derive(Default)]
pub(super) struct Alphabet<'a> {
    numbers: HashMap<&'a str, u32>,
    pub(super) symbols: Vec<Symbol<'a>>,
}

/// A kernel name.
#[derive(Clone, Copy)]
pub(super) struct Symbol<'a> {
    pub(super) name: &'a str,
    pub(super) category: &'a str,
    /// The category, all norms being one.
    role: &'a str,
}

impl<'a> Alphabet<'a> {
    pub(super) fn number(&mut self, name: &'a str, category: &'a str) -> u32 {
        let symbols = &mut self.symbols;
        *self.numbers.entry(name).or_insert_with(|| {
            let role = if category.contains("norm") { "norm" } else { category };
            symbols.push(Symbol { name, category, role });
            (symbols.len() - 1) as u32
        })
    }

    fn alike(&self, a: u32, b: u32) -> bool {
        let role = |number: u32| self.symbols[number as usize].role;
        a == b || (role(a) == role(b) && role(a) != UNCATEGORISED)
    }

    /// Whether a layer may begin with it.
    fn begins(&self, number: u32) -> bool {
        let role = self.symbols[number as usize].role;
        role == "norm" || ["gemm", "attn", "moe"].iter().any(|group| role.starts_with(group))
    }
}

/// Where the layers of one sequence are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segments {
    /// First kernel of each layer, and whether the layer is odd.
    pub(super) layers: Vec<(usize, bool)>,
    /// First kernel after the last layer.
    pub(super) end: usize,
}

impl Segments {
    /// From the first kernel of layer `index` to the first one after it.
    pub(super) fn layer(&self, index: usize) -> std::ops::Range<usize> {
        let end = self.layers.get(index + 1).map_or(self.end, |(start, _)| *start);
        self.layers[index].0..end
    }

    fn covered(&self) -> usize {
        self.layers.first().map_or(0, |(start, _)| self.end - start)
    }
}

/// A stretch in which every kernel is the same as the one a period before.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: usize,
    end: usize,
    period: usize,
}

impl Run {
    fn covered(self) -> usize {
        (self.end - self.start) / self.period * self.period
    }
}

/// The kernels of a layer, and where they repeat in `sequence`. With an expected number of layers
/// a period that gives it is preferred.
pub(super) fn find(
    sequence: &[u32],
    alphabet: &Alphabet<'_>,
    expected: Option<u32>,
) -> Option<(Vec<u32>, Segments)> {
    let mut runs = longest_runs(sequence);
    // Most kernels first, the shorter period first among equals.
    runs.sort_by_key(|run| (std::cmp::Reverse(run.covered()), run.period));
    let most = runs.first()?.covered();
    let candidates = runs.into_iter().take_while(|run| run.covered() * 2 >= most).take(CANDIDATES);
    let mut fits = candidates.filter_map(|run| {
        let word = layer_word(sequence, alphabet, run);
        let segments = segment(sequence, &word, alphabet)?;
        let enough = segments.covered() as f64 >= COVERAGE * sequence.len() as f64;
        enough.then_some((word, segments))
    });
    let first = fits.next()?;
    let Some(expected) = expected.map(|count| count as usize) else { return Some(first) };
    if first.1.layers.len() == expected {
        return Some(first);
    }
    Some(fits.find(|(_, segments)| segments.layers.len() == expected).unwrap_or(first))
}

/// For each period its longest run of at least two repeats.
fn longest_runs(sequence: &[u32]) -> Vec<Run> {
    let n = sequence.len();
    let longest = |period: usize| {
        let mut best: Option<Run> = None;
        let mut same = 0;
        for end in period..=n {
            if end < n && sequence[end] == sequence[end - period] {
                same += 1;
                continue;
            }
            let longer = best.is_none_or(|run| same + period > run.end - run.start);
            if same >= period && longer {
                best = Some(Run { start: end - same - period, end, period });
            }
            same = 0;
        }
        best
    };
    (2..=(n / 2).min(LONGEST_PERIOD)).filter_map(longest).collect()
}

/// The kernels of one layer of a run, beginning where the first layer begins.
fn layer_word(sequence: &[u32], alphabet: &Alphabet<'_>, run: Run) -> Vec<u32> {
    let Run { mut start, mut end, period } = run;
    while start > 0 && alphabet.alike(sequence[start - 1], sequence[start - 1 + period]) {
        start -= 1;
    }
    while end < sequence.len() && alphabet.alike(sequence[end], sequence[end - period]) {
        end += 1;
    }
    // What is left over lets the layers begin later: at the first norm or product.
    let slack = (end - start) % period;
    let shift = (0..=slack).find(|shift| alphabet.begins(sequence[start + shift])).unwrap_or(0);
    // The first repeat that is within the run of equal names: one before may be odd.
    let first = start + shift;
    let from = first + run.start.saturating_sub(first).div_ceil(period) * period;
    sequence[from..from + period].to_vec()
}

/// Finds the layers of `sequence` that consist of `word`. `None` when there are fewer than two.
pub(super) fn segment(sequence: &[u32], word: &[u32], alphabet: &Alphabet<'_>) -> Option<Segments> {
    let finder = Finder { sequence, word, alphabet };
    let mut groups: Vec<Vec<(usize, usize)>> = vec![Vec::new()];
    let mut at = 0;
    while at + word.len() <= sequence.len() {
        if !finder.is_layer(at) {
            at += 1;
            continue;
        }
        if let Some(group) = groups.last_mut()
            && !finder.bridge(group, at)
        {
            groups.push(Vec::new());
        }
        if let Some(group) = groups.last_mut() {
            group.push((at, at + word.len()));
        }
        at += word.len();
    }
    let mut layers = groups.into_iter().rev().max_by_key(Vec::len)?;
    if layers.len() < 2 {
        return None;
    }
    finder.add_before(&mut layers);
    finder.add_after(&mut layers);
    let end = layers.last()?.1;
    let is_odd = |&(start, end): &(usize, usize)| sequence[start..end] != *word;
    Some(Segments { layers: layers.iter().map(|layer| (layer.0, is_odd(layer))).collect(), end })
}

struct Finder<'s, 'a> {
    sequence: &'s [u32],
    word: &'s [u32],
    alphabet: &'s Alphabet<'a>,
}

impl Finder<'_, '_> {
    /// Whether a whole layer begins at `at`; a few kernels may have another name.
    fn is_layer(&self, at: usize) -> bool {
        let period = self.word.len();
        let mut renamed = if period < 4 { 0 } else { 1 + period / 8 };
        self.sequence[at..at + period].iter().zip(self.word).all(|(&found, &wanted)| {
            if found == wanted {
                return true;
            }
            let tolerated = renamed > 0 && self.alphabet.alike(found, wanted);
            renamed = renamed.saturating_sub(1);
            tolerated
        })
    }

    /// How many kernels from `at` on are like the first ones of a layer.
    fn prefix(&self, at: usize) -> usize {
        let pairs = self.sequence[at..].iter().zip(self.word);
        pairs.take_while(|&(&found, &wanted)| self.alphabet.alike(found, wanted)).count()
    }

    /// Whether what begins at `at`, up to `end`, begins as a layer does.
    fn begins_layer(&self, at: usize, end: usize) -> bool {
        let period = self.word.len();
        let enough = (period / 4).max(4);
        period >= 8 && self.prefix(at).min(end - at) >= enough
    }

    /// Makes the kernels between the last layer of `group` and `next` part of the group, if they
    /// can be.
    fn bridge(&self, group: &mut Vec<(usize, usize)>, next: usize) -> bool {
        let period = self.word.len();
        let Some(last) = group.last_mut() else { return true };
        let gap = next - last.1;
        if gap * 2 <= period {
            last.1 = next;
            return true;
        }
        let from = last.1;
        let starts: Vec<usize> = (from..next).filter(|&at| self.begins_layer(at, next)).collect();
        let whole = starts.first() == Some(&from);
        if whole || gap <= 2 * period {
            let starts = if whole { starts } else { vec![from] };
            for (index, &start) in starts.iter().enumerate() {
                group.push((start, starts.get(index + 1).copied().unwrap_or(next)));
            }
            return true;
        }
        false
    }

    /// Odd layers before the first: what begins as a layer does, not further away than two layers.
    fn add_before(&self, layers: &mut Vec<(usize, usize)>) {
        let reach = 2 * self.word.len();
        loop {
            let first = layers[0].0;
            let range = first.saturating_sub(reach)..first;
            let Some(at) = range.rev().find(|&at| self.begins_layer(at, first)) else { break };
            layers.insert(0, (at, first));
        }
    }

    /// A last layer that lacks its trailing part. Norm and head alone are none.
    fn add_after(&self, layers: &mut Vec<(usize, usize)>) {
        let end = layers.last().map_or(0, |layer| layer.1);
        let there = self.prefix(end);
        if there >= 4 && there * 2 >= self.word.len() {
            layers.push((end, end + there));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters: n N norms, g G gemms, a attention, c communication, e embedding, others unknown.
    fn layers(text: &str, expected: Option<u32>) -> Option<(Vec<(usize, bool)>, usize)> {
        let mut alphabet = Alphabet::default();
        let names: Vec<&str> = (0..text.len()).map(|at| &text[at..=at]).collect();
        let sequence: Vec<u32> = names
            .iter()
            .map(|name| {
                let category = match *name {
                    "n" | "N" => "norm",
                    "g" | "G" => "gemm.bf16",
                    "a" => "attn.flash",
                    "c" => "comm.allreduce.custom",
                    "e" => "embedding",
                    _ => UNCATEGORISED,
                };
                alphabet.number(name, category)
            })
            .collect();
        find(&sequence, &alphabet, expected).map(|(_, found)| (found.layers, found.end))
    }

    #[test]
    fn the_first_norm_may_be_another() {
        // e, then nga.g first with n, then three with N, final norm N and head G.
        let found = layers("engaxgNgaxgNgaxgNgaxgNG", None).unwrap();
        assert_eq!(found, (vec![(1, true), (6, false), (11, false), (16, false)], 21));
    }

    #[test]
    fn an_all_reduce_after_the_embedding_does_not_shift_the_layers() {
        // e c, layers n g a x g c: each ends with its own all-reduce.
        let found = layers("ecngaxgcNgaxgcNgaxgcNG", None).unwrap();
        assert_eq!(found, (vec![(2, true), (8, false), (14, false)], 20));
    }

    #[test]
    fn dense_layers_before_expert_layers_are_layers() {
        // Attention `Ngaxyz`; dense `Gs`, experts `rtmu`; 2 dense, 3 expert layers of 10 kernels.
        let text = ["e", "NgaxyzGs", "NgaxyzGs", &"Ngaxyzrtmu".repeat(3), "NG"].concat();
        let found = layers(&text, None).unwrap();
        assert_eq!(found, (vec![(1, true), (9, true), (17, false), (27, false), (37, false)], 47));
    }

    #[test]
    fn a_last_layer_may_lack_its_end() {
        let found = layers("eNgaxgcNgaxgcNgaxgcNgaxpq", None).unwrap();
        assert_eq!(found, (vec![(1, false), (7, false), (13, false), (19, true)], 23));
    }

    #[test]
    fn extra_kernels_in_one_layer_are_part_of_it() {
        // An auxiliary copy `k` after the second of five layers.
        let found = layers("eNgaxgcNgaxgckNgaxgcNgaxgcNgaxgcNG", None).unwrap();
        let starts = vec![(1, false), (7, true), (14, false), (20, false), (26, false)];
        assert_eq!(found, (starts, 32));
    }

    #[test]
    fn the_expected_count_decides_between_periods() {
        // Layers of two halves with the same names: 6 repeats of 3, or 3 layers of 6.
        let text = "eNgsNgsNgsNgsNgsNgsp";
        assert_eq!(layers(text, None).unwrap().0.len(), 6);
        assert_eq!(layers(text, Some(3)).unwrap().0.len(), 3);
        assert_eq!(layers(text, Some(7)).unwrap().0.len(), 6);
    }

    #[test]
    fn no_repeat_is_no_layers() {
        assert_eq!(layers("engaxyzpq", None), None);
        assert_eq!(layers("", None), None);
        // A repeat of a small part of the step is not its layers.
        assert_eq!(layers("abababcdefghijklmnopqrs", None), None);
    }
}
