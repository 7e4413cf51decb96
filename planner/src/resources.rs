//! Integer resource vectors over one table of names, and the exact parser of Kubernetes quantities.
//!
//! CPU counts in milli-units, everything else in whole units. Requests round up and capacities round down, so that
//! rounding never makes something fit that does not.

use crate::ids::ResourceIdx;
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// Name of the resource that counts pod slots.
pub const PODS: &str = "pods";
/// Name of the CPU resource, the one that counts in thousandths.
pub const CPU: &str = "cpu";

/// Amounts of every resource of a [`ResourceTable`], by [`ResourceIdx`]. Missing entries at the end are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amounts(pub Vec<i64>);

impl Amounts {
    /// The amount of one resource.
    #[must_use]
    pub fn get(&self, resource: ResourceIdx) -> i64 {
        self.0.get(resource.row()).copied().unwrap_or(0)
    }

    /// Sets the amount of one resource.
    pub fn set(&mut self, resource: ResourceIdx, amount: i64) {
        if self.0.len() <= resource.row() {
            self.0.resize(resource.row() + 1, 0);
        }
        self.0[resource.row()] = amount;
    }

    /// Adds `times` × `other`, saturating.
    pub fn add(&mut self, other: &Self, times: i64) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = mine.saturating_add(theirs.saturating_mul(times));
        }
    }

    /// How many whole pods of these requests the free amounts hold; requests of zero do not bind.
    #[must_use]
    pub fn times_in(&self, free: &[i64]) -> u32 {
        let mut least = i64::from(u32::MAX);
        for (row, &need) in self.0.iter().enumerate() {
            if need > 0 {
                let have = free.get(row).copied().unwrap_or(0);
                least = least.min(if have <= 0 { 0 } else { have / need });
                if least == 0 {
                    return 0;
                }
            }
        }
        u32::try_from(least).unwrap_or(u32::MAX)
    }

    /// Pairs of (resource, amount) that are not zero, in table order.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceIdx, i64)> + '_ {
        self.0.iter().enumerate().filter(|(_, a)| **a != 0).map(|(row, a)| (ResourceIdx::of(row), *a))
    }
}

/// The names behind [`ResourceIdx`]; grows, never shrinks. Row 0 is always [`PODS`].
#[derive(Clone, Debug)]
pub struct ResourceTable {
    names: Vec<Arc<str>>,
    rows: BTreeMap<Arc<str>, ResourceIdx>,
    devices: Vec<ResourceIdx>,
}

/// Whether every node has some of a resource.
fn is_ordinary(name: &str) -> bool {
    matches!(name, PODS | CPU | "memory" | "ephemeral-storage")
        || name.starts_with("hugepages-")
        || name.starts_with("hostport/")
        || name.starts_with("volumes/")
}

impl Default for ResourceTable {
    fn default() -> Self {
        let mut table = Self { names: Vec::new(), rows: BTreeMap::new(), devices: Vec::new() };
        table.intern(PODS);
        table
    }
}

impl ResourceTable {
    /// The row of pod slots.
    pub const PODS: ResourceIdx = ResourceIdx(0);

    /// The index of a name, made if new.
    pub fn intern(&mut self, name: &str) -> ResourceIdx {
        if let Some(&row) = self.rows.get(name) {
            return row;
        }
        let row = ResourceIdx::of(self.names.len());
        let name: Arc<str> = name.into();
        if !is_ordinary(&name) {
            self.devices.push(row);
        }
        self.names.push(name.clone());
        self.rows.insert(name, row);
        row
    }

    /// Resources that are devices (GPUs, network cards): everything but pod slots, CPU, memory, storage, host ports and
    /// attachments of volumes.
    #[must_use]
    pub fn devices(&self) -> &[ResourceIdx] {
        &self.devices
    }

    /// The index of a name, if known.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<ResourceIdx> {
        self.rows.get(name).copied()
    }

    /// The name of a resource.
    #[must_use]
    pub fn name(&self, resource: ResourceIdx) -> &str {
        &self.names[resource.row()]
    }

    /// Number of resources known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Never true: pod slots are always known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// Which way a quantity that is no whole unit is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Up: what a pod asks for.
    Request,
    /// Down: what a node has, what a quota grants.
    Capacity,
}

/// Why a text is no quantity.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum QuantityError {
    /// Not of the form number, then suffix.
    #[error("\"{0}\" is not a quantity; write a number with an optional suffix such as 500m, 64, 1.5Gi or 2e3")]
    Malformed(String),
    /// Does not fit 64 bits in the resource's unit.
    #[error("\"{0}\" is too large for a quantity")]
    TooLarge(String),
}

/// Parses a Kubernetes quantity exactly into `unit_scale`ths of a unit (1000 for CPU, 1 for all else).
///
/// # Errors
/// If the text is no quantity or its value does not fit.
pub fn parse_quantity(text: &str, unit_scale: u32, rounding: Rounding) -> Result<i64, QuantityError> {
    let malformed = || QuantityError::Malformed(text.to_owned());
    let too_large = || QuantityError::TooLarge(text.to_owned());
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let split = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(malformed());
    }
    let fraction = fraction.trim_end_matches('0');
    if whole.trim_start_matches('0').len() + fraction.len() > 30 {
        return Err(too_large());
    }
    let mut mantissa: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        mantissa = mantissa * 10 + i128::from(digit - b'0');
    }
    let mut exponent = -i32::try_from(fraction.len()).map_err(|_| too_large())?;
    let mut binary: u32 = 0;
    match suffix {
        "" => {}
        "n" => exponent -= 9,
        "u" => exponent -= 6,
        "m" => exponent -= 3,
        "k" => exponent += 3,
        "M" => exponent += 6,
        "G" => exponent += 9,
        "T" => exponent += 12,
        "P" => exponent += 15,
        "E" => exponent += 18,
        "Ki" => binary = 10,
        "Mi" => binary = 20,
        "Gi" => binary = 30,
        "Ti" => binary = 40,
        "Pi" => binary = 50,
        "Ei" => binary = 60,
        other => {
            let digits = other.strip_prefix(['e', 'E']).ok_or_else(malformed)?;
            let power: i32 = digits.parse().map_err(|_| malformed())?;
            if !(-60..=60).contains(&power) {
                return Err(too_large());
            }
            exponent += power;
        }
    }
    let mut numerator = mantissa.checked_mul(i128::from(unit_scale)).ok_or_else(too_large)?;
    numerator = numerator.checked_mul(1i128 << binary).ok_or_else(too_large)?;
    let mut denominator: i128 = 1;
    for _ in 0..exponent.max(0) {
        numerator = numerator.checked_mul(10).ok_or_else(too_large)?;
    }
    for _ in 0..(-exponent).max(0) {
        denominator = denominator.checked_mul(10).ok_or_else(too_large)?;
    }
    if negative {
        numerator = -numerator;
    }
    let floor = numerator.div_euclid(denominator);
    let exact = numerator.rem_euclid(denominator) == 0;
    let value = if exact || rounding == Rounding::Capacity { floor } else { floor + 1 };
    i64::try_from(value).map_err(|_| too_large())
}

/// Thousandths for CPU, whole units for everything else.
#[must_use]
pub fn unit_scale(resource: &str) -> u32 {
    if resource == CPU { 1000 } else { 1 }
}
