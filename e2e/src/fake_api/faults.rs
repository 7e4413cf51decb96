//! What goes wrong with one call, chosen by the call's number or by chance.

use super::rng::Rng;
use std::collections::BTreeMap;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The process dies before the server sees the call.
    CrashBefore,
    /// The process dies after the call was done.
    CrashAfter,
    /// Done, but the answer never comes.
    Lost,
    /// 409: somebody else's write came between (for a creation: a quota's own conflict; not done).
    Conflict,
    /// 410; not done.
    Gone,
    /// 422, as a webhook refuses; not done.
    Invalid,
    /// 429 with Retry-After; not done.
    Busy,
    /// 500; not done.
    Internal,
    /// 504, although it was done.
    Timeout,
    /// The connection breaks before the server sees the call.
    Reset,
    /// Done much later than anybody waits.
    Slow,
    /// Done and answered, some seconds later: others overtake it.
    Late,
}

/// Those of the sweep's table, in its order.
pub const FAULTS: [Fault; 11] = [
    Fault::CrashBefore,
    Fault::CrashAfter,
    Fault::Lost,
    Fault::Conflict,
    Fault::Gone,
    Fault::Invalid,
    Fault::Busy,
    Fault::Internal,
    Fault::Timeout,
    Fault::Reset,
    Fault::Slow,
];

impl Fault {
    /// Name for tables and stories.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CrashBefore => "crash before",
            Self::CrashAfter => "crash after",
            Self::Lost => "answer lost",
            Self::Conflict => "409",
            Self::Gone => "410",
            Self::Invalid => "422",
            Self::Busy => "429",
            Self::Internal => "500",
            Self::Timeout => "504",
            Self::Reset => "reset",
            Self::Slow => "slow",
            Self::Late => "late",
        }
    }
}

/// Which calls go wrong, and how.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// By the number of the call since [`Faults::arm`].
    at: BTreeMap<u64, Fault>,
    /// So many of 1,000 calls, each with one of these.
    chance: (u64, Vec<Fault>),
    armed: bool,
    calls: u64,
    hit: u64,
}

impl Faults {
    /// Faults at these calls.
    #[must_use]
    pub fn at(all: impl IntoIterator<Item = (u64, Fault)>) -> Self {
        Self { at: all.into_iter().collect(), ..Self::default() }
    }

    /// Faults by chance.
    #[must_use]
    pub fn by_chance(per_mille: u64, among: Vec<Fault>) -> Self {
        Self { chance: (per_mille, among), ..Self::default() }
    }

    /// Counting, and trouble, begin now.
    pub fn arm(&mut self) {
        self.armed = true;
        self.calls = 0;
    }

    /// Trouble ends.
    pub fn disarm(&mut self) {
        self.armed = false;
    }

    /// Calls counted so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Faults that came true.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hit
    }

    /// The fault of the next call.
    pub fn next(&mut self, rng: &mut Rng) -> Option<Fault> {
        if !self.armed {
            return None;
        }
        let at = self.calls;
        self.calls += 1;
        let (per_mille, among) = &self.chance;
        let by_chance = *per_mille > 0 && rng.chance(*per_mille);
        let fault = self.at.get(&at).copied().or_else(|| by_chance.then(|| rng.pick(among).copied())?);
        self.hit += u64::from(fault.is_some());
        fault
    }
}
