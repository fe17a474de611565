//! Typed small ids: positions in a trace's pools, and ids that the recorder assigned.

use std::fmt;

macro_rules! pool_id {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The position in the pool.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<u32> for $name {
            fn from(index: u32) -> Self {
                Self(index)
            }
        }

        impl From<$name> for u32 {
            fn from(id: $name) -> u32 {
                id.0
            }
        }
    )*};
}

pool_id! {
    /// A string of a trace's [`Strings`](crate::Strings). Id 0 is always the empty string.
    StringId;
    /// A [`Process`](crate::Process) of the trace.
    ProcessId;
    /// A host [`Thread`](crate::Thread) of the trace.
    ThreadId;
    /// A [`Stream`](crate::Stream): one queue of one context of one device of one process.
    StreamId;
    /// A [`LaunchConfig`](crate::LaunchConfig). Id 0 is always "not recorded".
    LaunchConfigId;
    /// An [`OpInputs`](crate::OpInputs). Id 0 is always "not recorded".
    InputsId;
    /// A [`Collective`](crate::Collective). Id 0 is always "not a collective, or not recorded".
    CollectiveId;
}

/// An id that the recorder assigned (correlation id, external id, graph node id, ...), or none.
///
/// Full 64 bits, never through floating point. `u64::MAX` stands for "none" so that a column takes
/// eight bytes a row; use [`OptionalId::value`] to look inside.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OptionalId(u64);

impl OptionalId {
    /// No id was recorded.
    pub const NONE: Self = Self(u64::MAX);

    /// An id that was recorded.
    #[must_use]
    pub const fn some(id: u64) -> Self {
        Self(id)
    }

    /// The id, if one was recorded.
    #[must_use]
    pub const fn value(self) -> Option<u64> {
        if self.0 == u64::MAX { None } else { Some(self.0) }
    }

    /// Whether an id was recorded.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 != u64::MAX
    }
}

impl Default for OptionalId {
    fn default() -> Self {
        Self::NONE
    }
}

impl From<Option<u64>> for OptionalId {
    fn from(id: Option<u64>) -> Self {
        id.map_or(Self::NONE, Self)
    }
}

impl fmt::Debug for OptionalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}
