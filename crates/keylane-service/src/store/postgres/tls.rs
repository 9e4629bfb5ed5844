//! TLS to a database: the check of the server's certificate, as libpq's `sslmode` asks for it.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, Error, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::certificate_check::{self, CertificateCheck};

/// Extent of the check of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verification {
    /// None: only listeners are kept out.
    None,
    /// A known authority has signed it, for any host.
    Authority,
    /// A known authority has signed it for this host.
    Full,
}

/// Returns the connector for these settings.
///
/// # Errors
/// Returns the reason if the authorities cannot be read.
pub(super) fn connector(
    verification: Verification,
    root: Option<&Path>,
) -> Result<MakeRustlsConnect, String> {
    let authority = match (verification, root) {
        (Verification::None, _) => None,
        (_, Some(path)) => Some(verifier(path)?),
        (_, None) => {
            return Err("sslmode=verify-ca and verify-full need the file of the authority: add \
                        `sslrootcert=FILE`"
                .into());
        }
    };
    let checks_host = verification == Verification::Full;
    let config = certificate_check::client_config(DatabaseCertificate { authority, checks_host });
    Ok(MakeRustlsConnect::new(config))
}

fn verifier(path: &Path) -> Result<Arc<WebPkiServerVerifier>, String> {
    let shown = path.display();
    let cannot = |error: &dyn std::fmt::Display| format!("sslrootcert {shown}: {error}");
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| cannot(&error))? {
        let certificate = certificate.map_err(|error| cannot(&error))?;
        roots.add(certificate).map_err(|error| cannot(&error))?;
    }
    let provider = Arc::new(ring::default_provider());
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| cannot(&error))
}

/// Check of a certificate to the extent of an `sslmode`.
#[derive(Debug)]
struct DatabaseCertificate {
    /// Known authorities, if the certificate must be of one.
    authority: Option<Arc<WebPkiServerVerifier>>,
    checks_host: bool,
}

impl CertificateCheck for DatabaseCertificate {
    fn check(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let Some(authority) = &self.authority else { return Ok(()) };
        // The name is checked last, so this error says that the rest is right.
        let is_of_name = |error: &Error| {
            matches!(
                error,
                Error::InvalidCertificate(
                    CertificateError::NotValidForName
                        | CertificateError::NotValidForNameContext { .. }
                )
            )
        };
        match authority.verify_server_cert(certificate, intermediates, name, &[], now) {
            Err(error) if !self.checks_host && is_of_name(&error) => Ok(()),
            checked => checked.map(drop),
        }
    }
}
