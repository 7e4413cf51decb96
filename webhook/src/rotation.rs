//! When certificates are renewed, as steps without I/O, so that no moment exists at which the API server trusts a CA
//! that does not sign what we serve.
//!
//! A CA near its end gets a successor: first both are trusted, then the successor signs, then the old one is dropped.
//! Each step is one write of the Secret, which only one of several webhooks can win; the others read and follow.

use crate::certs::{CertError, Signed, new_ca, new_server};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// A CA with less than this left gets a successor.
const CA_RENEWED_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 120);
/// A server certificate with less than this left is renewed.
const SERVER_RENEWED_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 30);
/// A successor is trusted for this long before it signs, and the old CA for this long after: longer than any webhook
/// takes to write what it trusts into the configuration.
const OVERLAP: SignedDuration = SignedDuration::from_hours(1);

/// Everything that is kept in the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Material {
    /// The CA that signs.
    pub ca: Signed,
    /// When it was made.
    pub ca_made: Timestamp,
    /// Another CA that is trusted: the successor, before it signs, or the predecessor, after.
    pub other: Option<Other>,
    /// What we serve with.
    pub server: Signed,
    /// The names that it is for.
    pub names: Vec<String>,
}

/// A second CA that is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// The CA.
    pub ca: Signed,
    /// When it was made.
    pub made: Timestamp,
    /// Since when it has had its present part.
    pub since: Timestamp,
    /// It has not signed yet.
    pub successor: bool,
}

impl Material {
    /// New material for these names.
    ///
    /// # Errors
    /// If no certificate can be made.
    pub fn new(names: &[String], now: Timestamp) -> Result<Self, CertError> {
        let ca = new_ca(now)?;
        let server = new_server(&ca, now, names, now)?;
        Ok(Self { ca, ca_made: now, other: None, server, names: names.to_vec() })
    }

    /// Every CA that must be trusted, in PEM.
    #[must_use]
    pub fn bundle(&self) -> String {
        let other = self.other.as_ref().map_or("", |o| o.ca.cert.as_str());
        format!("{}{other}", self.ca.cert)
    }

    /// The next step that is due, if one is.
    ///
    /// # Errors
    /// If no certificate can be made.
    pub fn step(&self, names: &[String], now: Timestamp) -> Result<Option<Self>, CertError> {
        // Whatever was kept too long to be saved is made anew at once.
        if now >= self.ca.ends {
            return Self::new(names, now).map(Some);
        }
        let mut next = self.clone();
        match &self.other {
            None if left(&self.ca, now) < CA_RENEWED_BEFORE => {
                next.other = Some(Other { ca: new_ca(now)?, made: now, since: now, successor: true });
            }
            Some(other) if other.successor && now >= due(other.since) => {
                next.ca = other.ca.clone();
                next.ca_made = other.made;
                next.other = Some(Other { ca: self.ca.clone(), made: self.ca_made, since: now, successor: false });
                next.server = new_server(&next.ca, next.ca_made, names, now)?;
                next.names = names.to_vec();
            }
            Some(other) if !other.successor && now >= due(other.since) => next.other = None,
            _ if left(&self.server, now) < SERVER_RENEWED_BEFORE || !covers(&self.names, names) => {
                next.server = new_server(&self.ca, self.ca_made, names, now)?;
                next.names = names.to_vec();
            }
            _ => return Ok(None),
        }
        Ok(Some(next))
    }
}

fn left(signed: &Signed, now: Timestamp) -> SignedDuration {
    signed.ends.duration_since(now)
}

fn due(since: Timestamp) -> Timestamp {
    since.checked_add(OVERLAP).unwrap_or(Timestamp::MAX)
}

fn covers(have: &[String], want: &[String]) -> bool {
    want.iter().all(|name| have.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(1_796_064_000 + hours * 3600).expect("a moment")
    }

    fn names() -> Vec<String> {
        vec!["berth-webhook.berth-system.svc".to_owned()]
    }

    /// The material after every step that is due until then, looked at every hour.
    fn until(hours: i64) -> Vec<(i64, Material)> {
        let mut seen = vec![(0, Material::new(&names(), at(0)).expect("makes"))];
        for hour in 1..hours {
            let last = seen.last().expect("never empty").1.clone();
            if let Some(next) = last.step(&names(), at(hour)).expect("makes") {
                seen.push((hour, next));
            }
        }
        seen
    }

    #[test]
    fn what_is_served_is_trusted_before_during_and_after_a_rotation() {
        let seen = until(24 * 800);
        assert!(seen.len() > 8, "server certificates and CAs were renewed");
        for pair in seen.windows(2) {
            let (hour, before, after) = (pair[1].0, &pair[0].1, &pair[1].1);
            assert!(after.server.ends > at(hour) && after.ca.ends > at(hour), "nothing that ended is served");
            // Configurations may still hold what was trusted before this step.
            assert!(before.bundle().contains(&after.ca.cert), "hour {hour}: the signer was trusted already");
            assert!(after.bundle().contains(&before.ca.cert), "hour {hour}: the former signer is still trusted");
        }
        let signers: std::collections::BTreeSet<&str> = seen.iter().map(|(_, m)| m.ca.cert.as_str()).collect();
        assert!(signers.len() >= 3, "{}", signers.len());
    }

    #[test]
    fn nothing_is_renewed_without_need() {
        assert_eq!(until(24 * 50).len(), 1);
    }

    #[test]
    fn a_new_name_is_certified_at_once_and_an_old_one_stays() {
        let material = Material::new(&names(), at(0)).expect("makes");
        let more = [names(), vec!["127.0.0.1".to_owned()]].concat();
        let next = material.step(&more, at(1)).expect("makes").expect("is due");
        assert_eq!((next.names.len(), &next.ca), (2, &material.ca));
        assert_eq!(next.step(&names(), at(2)).expect("makes"), None, "fewer names need nothing new");
    }

    #[test]
    fn material_that_was_left_lying_is_made_anew() {
        let material = Material::new(&names(), at(0)).expect("makes");
        let next = material.step(&names(), at(24 * 400)).expect("makes").expect("is due");
        assert_ne!(next.ca, material.ca);
    }
}
