//! Which ranges were open at a moment on a thread, outermost to innermost, in one pass.
//!
//! Push/pop ranges nest; start/end ranges of one thread may overlap in any way. A range is put on
//! its thread's stack when it opens. One that has ended below another that is still open stays in
//! the chain until something opens, so whoever walks a chain checks the ends.

use steptally_trace_model::interval::Interval;
use steptally_trace_model::{ThreadId, Timestamp};

/// Something that is open on a thread for a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NestItem {
    pub(crate) interval: Interval,
    pub(crate) thread: ThreadId,
}

/// Chains of open items.
#[derive(Debug, Default)]
pub(crate) struct Nest {
    /// Item, and the link to the one around it.
    links: Vec<(u32, u32)>,
}

/// No item is open.
pub(crate) const NO_LINK: u32 = u32::MAX;

impl Nest {
    /// The chains at each of `moments`. Items and moments are sorted by time; an item that opens at
    /// a moment is open then.
    pub(crate) fn new(
        items: &[NestItem],
        threads: usize,
        moments: impl IntoIterator<Item = (Timestamp, ThreadId)>,
    ) -> (Self, Vec<u32>) {
        let mut nest = Self::default();
        let mut stacks: Vec<Vec<(u32, u32)>> = vec![Vec::new(); threads];
        let mut next = 0;
        let links = moments
            .into_iter()
            .map(|(at, thread)| {
                while let Some(item) = items.get(next).filter(|item| item.interval.start <= at) {
                    nest.open(items, &mut stacks[item.thread.index()], next as u32);
                    next += 1;
                }
                let Some(stack) = stacks.get_mut(thread.index()) else { return NO_LINK };
                while stack.pop_if(|(item, _)| items[*item as usize].interval.end <= at).is_some() {
                }
                stack.last().map_or(NO_LINK, |(_, link)| *link)
            })
            .collect();
        (nest, links)
    }

    fn open(&mut self, items: &[NestItem], stack: &mut Vec<(u32, u32)>, item: u32) {
        let at = items[item as usize].interval.start;
        let ended = |(item, _): &(u32, u32)| items[*item as usize].interval.end <= at;
        if stack.iter().any(ended) {
            // Rebuild what lies above the first that has ended.
            let keep = stack.iter().position(ended).unwrap_or(0);
            let above = stack.split_off(keep);
            for (item, _) in above.into_iter().filter(|entry| !ended(entry)) {
                self.push(stack, item);
            }
        }
        self.push(stack, item);
    }

    fn push(&mut self, stack: &mut Vec<(u32, u32)>, item: u32) {
        let around = stack.last().map_or(NO_LINK, |(_, link)| *link);
        self.links.push((item, around));
        stack.push((item, (self.links.len() - 1) as u32));
    }

    /// The items of a chain, innermost first.
    pub(crate) fn chain(&self, link: u32) -> impl Iterator<Item = usize> + '_ {
        let mut link = link;
        std::iter::from_fn(move || {
            let &(item, around) = self.links.get(link as usize)?;
            link = around;
            Some(item as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chains(items: &[(i64, i64)], moments: &[i64]) -> Vec<Vec<usize>> {
        let at = Timestamp::from_ns;
        let items: Vec<_> = items
            .iter()
            .map(|&(start, end)| NestItem {
                interval: Interval { start: at(start), end: at(end) },
                thread: ThreadId(0),
            })
            .collect();
        let (nest, links) =
            Nest::new(&items, 1, moments.iter().map(|&moment| (at(moment), ThreadId(0))));
        links.into_iter().map(|link| nest.chain(link).collect()).collect()
    }

    #[test]
    fn nested_items_are_innermost_first() {
        let found = chains(&[(0, 100), (10, 50), (20, 30)], &[5, 20, 30, 50, 100]);
        assert_eq!(found, [vec![0], vec![2, 1, 0], vec![1, 0], vec![0], vec![]]);
    }

    #[test]
    fn overlapping_items_do_not_pile_up() {
        // 0: 0-10, 1: 5-15, 2: 12-22. When 2 opens, 0 has ended below 1 and is dropped.
        let found = chains(&[(0, 10), (5, 15), (12, 22)], &[6, 13, 16]);
        assert_eq!(found, [vec![1, 0], vec![2, 1], vec![2, 1]]);
    }
}
