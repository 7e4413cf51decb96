//! Rules of one `Topology`.

use kube::core::Rule;

use super::rule;

pub(crate) fn has_levels_or_a_preset() -> Rule {
    rule(
        "has(self.preset) || has(self.levels) && size(self.levels) > 0",
        "'spec.levels is empty: name at least one level, or a preset'",
        ".levels",
    )
}

pub(crate) fn levels_or_preset_not_both() -> Rule {
    rule(
        "!has(self.preset) || !has(self.levels) || size(self.levels) == 0",
        "'spec.preset is ' + self.preset + ' and spec.levels is given too: keep one of the two'",
        ".preset",
    )
}

pub(crate) fn level_names_are_unique() -> Rule {
    let single = "self.levels.exists_one(o, o.name == l.name)";
    rule(
        format!("!has(self.levels) || self.levels.all(l, {single})"),
        format!(
            "'spec.levels: the name \"' + self.levels.filter(l, !{single})[0].name + '\" is used twice: give each level its own'"
        ),
        ".levels",
    )
}

pub(crate) fn no_level_is_named_node() -> Rule {
    rule(
        "!has(self.levels) || self.levels.all(l, l.name != 'node')",
        "'spec.levels: the name \"node\" is reserved for the implicit narrowest level: choose another'",
        ".levels",
    )
}

pub(crate) fn labels_are_unique() -> Rule {
    let single = "self.levels.map(o, o.labels.filter(x, x == k).size()).sum() == 1";
    rule(
        format!("!has(self.levels) || self.levels.all(l, l.labels.all(k, {single}))"),
        format!(
            "'spec.levels: a label of level \"' + self.levels.filter(l, !l.labels.all(k, {single}))[0].name + '\" is used twice: a label can name one level only'"
        ),
        ".levels",
    )
}

pub(crate) fn bandwidth_is_positive() -> Rule {
    rule(
        "!has(self.gigabytesPerSecond) || self.gigabytesPerSecond > 0.0",
        "'gigabytesPerSecond of level \"' + self.name + '\" is ' + string(self.gigabytesPerSecond) + ': it must be above 0; leave it out if unknown'",
        ".gigabytesPerSecond",
    )
}

pub(crate) fn nodes_at_most_is_positive() -> Rule {
    rule(
        "!has(self.maxNodes) || self.maxNodes >= 1",
        "'maxNodes of level \"' + self.name + '\" is ' + string(self.maxNodes) + ': it must be at least 1; leave it out if unknown'",
        ".maxNodes",
    )
}

pub(crate) fn percent_is_a_percentage() -> Rule {
    rule(
        "self.holdAbovePercent >= 1 && self.holdAbovePercent <= 100",
        "'drift.holdAbovePercent is ' + string(self.holdAbovePercent) + ': it must be from 1 to 100'",
        ".holdAbovePercent",
    )
}

pub(crate) fn flaps_not_negative() -> Rule {
    rule(
        "self.flapsPerHour >= 0",
        "'drift.flapsPerHour is ' + string(self.flapsPerHour) + ': it must be 0 or more'",
        ".flapsPerHour",
    )
}
