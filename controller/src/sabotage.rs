//! The protocol broken on purpose, one way at a time, so that tests show each invariant able to fail. Only with the
//! feature `sabotage`, which tests alone turn on; without it every question here is answered no by the compiler.

/// A way to break it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Pods are made without their Berth.
    SkipJournal,
    /// One pod is never told to go.
    StopHalf,
    /// Room is given back as soon as its pods were told to go.
    ReleaseEarly,
    /// What others hold on nodes is not counted.
    BlindToOthers,
    /// What stands already is taken for past.
    NoAdoption,
    /// Deletions go by name alone.
    NoUid,
    /// Leadership is believed in for ever.
    NoFence,
    /// Promises move without a cause.
    NoCause,
    /// Statuses are written whether they differ or not.
    StatusEveryTurn,
}

/// All of them.
pub const SABOTAGES: [Sabotage; 9] = [
    Sabotage::SkipJournal,
    Sabotage::StopHalf,
    Sabotage::ReleaseEarly,
    Sabotage::BlindToOthers,
    Sabotage::NoAdoption,
    Sabotage::NoUid,
    Sabotage::NoFence,
    Sabotage::NoCause,
    Sabotage::StatusEveryTurn,
];

#[cfg(feature = "sabotage")]
std::thread_local! {
    static CHOSEN: std::cell::Cell<Option<Sabotage>> = const { std::cell::Cell::new(None) };
}

/// Breaks the protocol on this thread, or mends it.
#[cfg(feature = "sabotage")]
pub fn set(chosen: Option<Sabotage>) {
    CHOSEN.with(|cell| cell.set(chosen));
}

/// Whether the protocol is broken this way.
#[cfg(feature = "sabotage")]
pub(crate) fn is(way: Sabotage) -> bool {
    CHOSEN.with(|cell| cell.get() == Some(way))
}

/// Never.
#[cfg(not(feature = "sabotage"))]
pub(crate) const fn is(_: Sabotage) -> bool {
    false
}
