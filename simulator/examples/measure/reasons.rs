//! Why a figure misses its mark and what was tried: shown in the table beside it, and only while it misses.

/// Part of a figure's name, and what is to be said.
const WHY: [(&str, &str); 7] = [
    (
        "SJF + EASY",
        "the reference forgets the head's date when a shorter job arrives; a promise of ours stands, and a shorter job may \
         only move it with a cause",
    ),
    ("EASY: excess leaves by node-hours", "no patience there, and standing reservations hold nodes"),
    ("at most 30 min: excess leaves by node-hours", "long gangs give up on a better place after half an hour"),
    ("excess leaves by node-hours", "standing reservations hold nodes"),
    ("mean leaves of gangs", "standing reservations hold nodes: waits a fifth shorter, leaves 1 to 2 % more"),
    (
        "Helios, 194 days, pooled: whole replay",
        "every plan is checked and every event goes through the whole planner; the profile is flat (checker 13 %, the \
         contest of queues 6 %, allocation 20 %)",
    ),
    ("work lost to stops", "victims are stopped for a private start that is due, cheapest domain first"),
];

/// What is to be said of a missed figure.
pub(crate) fn why(name: &str) -> Option<&'static str> {
    WHY.iter().find(|(part, _)| name.contains(part)).map(|(_, why)| *why)
}
