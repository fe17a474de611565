//! A pool of small values that repeat over many rows: each distinct value is stored once.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

/// Distinct values of type `T`, addressed by a typed id.
#[derive(Clone, Debug)]
pub struct Pool<Id, T> {
    values: Vec<T>,
    index: HashTable<u32>,
    hasher: FixedState,
    last: Option<u32>,
    id: PhantomData<Id>,
}

impl<Id, T> Default for Pool<Id, T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            index: HashTable::new(),
            hasher: FixedState::with_seed(0x9001),
            last: None,
            id: PhantomData,
        }
    }
}

impl<Id: From<u32> + Into<u32> + Copy, T: Hash + Eq> Pool<Id, T> {
    /// The id of `value`, stored on first sight.
    pub fn intern(&mut self, value: T) -> Id {
        if let Some(last) = self.last.filter(|&last| self.values[last as usize] == value) {
            return Id::from(last);
        }
        let hash = self.hasher.hash_one(&value);
        let values = &self.values;
        let id = match self.index.find(hash, |&id| values[id as usize] == value) {
            Some(&id) => id,
            None => {
                let id = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
                self.values.push(value);
                let (values, hasher) = (&self.values, &self.hasher);
                self.index.insert_unique(hash, id, |&id| hasher.hash_one(&values[id as usize]));
                id
            }
        };
        self.last = Some(id);
        Id::from(id)
    }

    /// The value of an id, `None` when the id is not of this pool.
    #[must_use]
    pub fn get(&self, id: Id) -> Option<&T> {
        let index: u32 = id.into();
        self.values.get(index as usize)
    }

    /// How many distinct values are stored.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether no value is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// All values in order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.values.iter().enumerate().map(|(index, value)| (Id::from(index as u32), value))
    }
}

impl<Id: Into<u32>, T> std::ops::Index<Id> for Pool<Id, T> {
    type Output = T;
    fn index(&self, id: Id) -> &T {
        let index: u32 = id.into();
        &self.values[index as usize]
    }
}
