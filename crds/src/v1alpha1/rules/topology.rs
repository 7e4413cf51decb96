//! Rules of one `Topology`.

use kube::core::Rule;

use super::rule;

pub(crate) fn has_levels_or_a_preset() -> Rule {
    rule(
        "has(self.preset) || has(self.levels) && size(self.levels) > 0",
        "spec.levels is empty: name at least one level, or a preset",
        &[],
        ".levels",
    )
}

pub(crate) fn levels_or_preset_not_both() -> Rule {
    rule(
        "!has(self.preset) || !has(self.levels) || size(self.levels) == 0",
        "spec.preset is %s and spec.levels is given too: keep one of the two",
        &["self.preset"],
        ".preset",
    )
}

pub(crate) fn level_names_are_unique() -> Rule {
    let single = "self.levels.exists_one(o, o.name == l.name)";
    rule(
        format!("!has(self.levels) || self.levels.all(l, {single})"),
        "spec.levels: the name \"%s\" is used twice: give each level its own",
        &[&format!("self.levels.filter(l, !{single})[0].name")],
        ".levels",
    )
}

pub(crate) fn no_level_is_named_node() -> Rule {
    rule(
        "!has(self.levels) || self.levels.all(l, l.name != 'node')",
        "spec.levels: the name \"node\" is reserved for the implicit narrowest level: choose another",
        &[],
        ".levels",
    )
}

pub(crate) fn labels_are_unique() -> Rule {
    let single = "self.levels.map(o, o.labels.filter(x, x == k).size()).sum() == 1";
    rule(
        format!("!has(self.levels) || self.levels.all(l, l.labels.all(k, {single}))"),
        "spec.levels: a label of level \"%s\" is used twice: a label can name one level only",
        &[&format!("self.levels.filter(l, !l.labels.all(k, {single}))[0].name")],
        ".levels",
    )
}

pub(crate) fn bandwidth_is_positive() -> Rule {
    rule(
        "!has(self.gigabytesPerSecond) || self.gigabytesPerSecond > 0.0",
        "gigabytesPerSecond of level \"%s\" is %s: it must be above 0; leave it out if unknown",
        &["self.name", "string(self.gigabytesPerSecond)"],
        ".gigabytesPerSecond",
    )
}

pub(crate) fn nodes_at_most_is_positive() -> Rule {
    rule(
        "!has(self.maxNodes) || self.maxNodes >= 1",
        "maxNodes of level \"%s\" is %d: it must be at least 1; leave it out if unknown",
        &["self.name", "self.maxNodes"],
        ".maxNodes",
    )
}

pub(crate) fn percent_is_a_percentage() -> Rule {
    rule(
        "self.holdAbovePercent >= 1 && self.holdAbovePercent <= 100",
        "drift.holdAbovePercent is %d: it must be from 1 to 100",
        &["self.holdAbovePercent"],
        ".holdAbovePercent",
    )
}

pub(crate) fn flaps_not_negative() -> Rule {
    rule(
        "self.flapsPerHour >= 0",
        "drift.flapsPerHour is %d: it must be 0 or more",
        &["self.flapsPerHour"],
        ".flapsPerHour",
    )
}
