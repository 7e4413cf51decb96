//! Lists of quantities as the planner's integer amounts.

use crate::error::{Fault, FieldFault};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use planner::resources::{Amounts, ResourceTable, Rounding, parse_quantity, unit_scale};
use std::collections::BTreeMap;

/// Amounts by name of the resource, in the planner's units.
pub type Named = BTreeMap<String, i64>;

/// One quantity in the planner's unit of the resource.
///
/// # Errors
/// If it is no quantity, too large or negative.
pub fn parse(resource: &str, quantity: &Quantity, rounding: Rounding) -> Result<i64, Fault> {
    let amount = parse_quantity(&quantity.0, unit_scale(resource), rounding)?;
    if amount < 0 { Err(Fault::Negative(quantity.0.clone())) } else { Ok(amount) }
}

/// A list of quantities.
///
/// # Errors
/// The first entry that is wrong, by its name as `[name]`.
pub fn named(list: &BTreeMap<String, Quantity>, rounding: Rounding) -> Result<Named, FieldFault> {
    list.iter()
        .map(|(name, quantity)| match parse(name, quantity, rounding) {
            Ok(amount) => Ok((name.clone(), amount)),
            Err(fault) => Err(FieldFault::new(format!("[{name}]"), fault)),
        })
        .collect()
}

/// Named amounts as rows of a table, which grows by the names it lacks.
pub fn rows(named: &Named, table: &mut ResourceTable) -> Amounts {
    let mut amounts = Amounts::default();
    for (name, &amount) in named {
        amounts.set(table.intern(name), amount);
    }
    amounts
}

/// Adds one list to another.
pub fn add(to: &mut Named, from: &Named) {
    for (name, amount) in from {
        let sum = to.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

/// Raises each entry to the other list's.
pub fn raise(to: &mut Named, from: &Named) {
    for (name, amount) in from {
        let most = to.entry(name.clone()).or_default();
        *most = (*most).max(*amount);
    }
}

/// An amount as a quantity.
#[must_use]
pub fn quantity(resource: &str, amount: i64) -> Quantity {
    let scale = i64::from(unit_scale(resource));
    if amount % scale == 0 { Quantity((amount / scale).to_string()) } else { Quantity(format!("{amount}m")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_round_up_and_capacities_down() {
        let half = Quantity("1500u".into());
        assert_eq!(parse("cpu", &half, Rounding::Request), Ok(2));
        assert_eq!(parse("cpu", &half, Rounding::Capacity), Ok(1));
        assert_eq!(parse("memory", &Quantity("1.5Gi".into()), Rounding::Request), Ok(1_610_612_736));
    }

    #[test]
    fn a_wrong_entry_is_named() {
        let list = BTreeMap::from([("cpu".to_owned(), Quantity("4 cores".into()))]);
        let fault = named(&list, Rounding::Request).expect_err("no quantity");
        assert_eq!(fault.field, "[cpu]");
        assert!(fault.fault.to_string().contains("\"4 cores\" is not a quantity"), "{}", fault.fault);
        let below = BTreeMap::from([("cpu".to_owned(), Quantity("-1".into()))]);
        assert_eq!(named(&below, Rounding::Request).expect_err("below zero").fault, Fault::Negative("-1".into()));
    }

    #[test]
    fn amounts_are_written_in_the_resource_s_own_unit() {
        assert_eq!(quantity("cpu", 1500).0, "1500m");
        assert_eq!(quantity("cpu", 2000).0, "2");
        assert_eq!(quantity("nvidia.com/gpu", 8).0, "8");
    }
}
