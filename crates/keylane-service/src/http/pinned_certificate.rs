//! TLS to a node whose certificate is known by its hash, which the node has written to the database.
//!
//! So nodes need no authority and no names in their certificates.

use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, Error};
use sha2::{Digest, Sha256};

use crate::certificate_check::{self, CertificateCheck};

/// Returns the settings of a client that accepts only the certificate with this SHA-256, or none at all.
pub(super) fn client_config(certificate: Option<[u8; 32]>) -> ClientConfig {
    certificate_check::client_config(PinnedCertificate(certificate))
}

/// Returns the SHA-256 of a certificate.
pub(super) fn hash(certificate: &CertificateDer<'_>) -> [u8; 32] {
    Sha256::digest(certificate).into()
}

#[derive(Debug)]
struct PinnedCertificate(Option<[u8; 32]>);

impl CertificateCheck for PinnedCertificate {
    fn check(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: UnixTime,
    ) -> Result<(), Error> {
        match self.0 == Some(hash(certificate)) {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }
}
