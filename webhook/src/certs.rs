//! Certificates: a CA of our own and a server certificate by it. No I/O and no clock.

use k8s_openapi::jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use thiserror::Error;

/// Days that a CA is valid.
const CA_DAYS: i32 = 365;
/// Days that a server certificate is valid.
const SERVER_DAYS: i32 = 90;

/// Why a certificate could not be made.
#[derive(Debug, Error)]
pub enum CertError {
    /// The library refused.
    #[error("failed to make a certificate")]
    Rcgen(#[from] rcgen::Error),
    /// A moment that no calendar has.
    #[error("the clock is out of range")]
    Clock(#[from] k8s_openapi::jiff::Error),
}

/// A certificate with its key, in PEM, and when it ends.
#[derive(Clone, PartialEq, Eq)]
pub struct Signed {
    /// The certificate.
    pub cert: String,
    /// Its private key.
    pub key: String,
    /// When it ends.
    pub ends: Timestamp,
}

impl std::fmt::Debug for Signed {
    /// Never the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signed").field("ends", &self.ends).finish_non_exhaustive()
    }
}

/// A new CA. Its name tells when it was made, so that two of them are never taken for each other.
///
/// # Errors
/// If the library refuses.
pub fn new_ca(now: Timestamp) -> Result<Signed, CertError> {
    let key = KeyPair::generate()?;
    let name = ca_name(now);
    let (params, ends) = ca_params(&name, now)?;
    let cert = params.self_signed(&key)?;
    Ok(Signed { cert: cert.pem(), key: key.serialize_pem(), ends })
}

fn ca_name(now: Timestamp) -> String {
    format!("berth-webhook-ca-{}", now.as_second())
}

fn ca_params(name: &str, now: Timestamp) -> Result<(CertificateParams, Timestamp), CertError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ends = valid_for(&mut params, now, CA_DAYS)?;
    Ok((params, ends))
}

/// Whole days, from yesterday on: clocks differ.
fn valid_for(params: &mut CertificateParams, now: Timestamp, days: i32) -> Result<Timestamp, CertError> {
    let today = now.to_zoned(TimeZone::UTC).date();
    let (first, last) = (today.checked_sub(1.day())?, today.checked_add(days.days())?);
    // The library's own type of moment has no name here; it is made from whole days.
    let part = |number: i8| u8::try_from(number).unwrap_or(1);
    let midnight = |d: Date| date_time_ymd(i32::from(d.year()), part(d.month()), part(d.day()));
    params.not_before = midnight(first);
    params.not_after = midnight(last);
    Ok(last.to_zoned(TimeZone::UTC)?.timestamp())
}

/// A server certificate for these names and addresses.
///
/// # Errors
/// If the library refuses, or the CA cannot be read.
pub fn new_server(ca: &Signed, ca_made: Timestamp, names: &[String], now: Timestamp) -> Result<Signed, CertError> {
    let ca_key = KeyPair::from_pem(&ca.key)?;
    // An issuer is its name and its key; both are the CA's.
    let (issuer, _) = ca_params(&ca_name(ca_made), ca_made)?;
    let issuer = Issuer::new(issuer, ca_key);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "berth-webhook");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let ends = valid_for(&mut params, now, SERVER_DAYS)?.min(ca.ends);
    let cert = params.signed_by(&key, &issuer)?;
    Ok(Signed { cert: cert.pem(), key: key.serialize_pem(), ends })
}
