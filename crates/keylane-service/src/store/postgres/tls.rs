//! TLS to a database: the check of the server's certificate, as libpq's `sslmode` asks for it.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

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
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let authority = match (verification, root) {
        (Verification::None, _) => None,
        (_, Some(path)) => Some(verifier(path, &provider)?),
        (_, None) => {
            return Err("sslmode=verify-ca and verify-full need the file of the authority: add \
                        `sslrootcert=FILE`"
                .into());
        }
    };
    let checks_host = verification == Verification::Full;
    let check = Arc::new(CertificateCheck { authority, checks_host, provider });
    let config = builder.dangerous().with_custom_certificate_verifier(check).with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn verifier(
    path: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, String> {
    let shown = path.display();
    let cannot = |error: &dyn std::fmt::Display| format!("sslrootcert {shown}: {error}");
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| cannot(&error))? {
        let certificate = certificate.map_err(|error| cannot(&error))?;
        roots.add(certificate).map_err(|error| cannot(&error))?;
    }
    let provider = Arc::clone(provider);
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| cannot(&error))
}

/// Check of a certificate to the extent of an `sslmode`.
#[derive(Debug)]
struct CertificateCheck {
    /// Known authorities, if the certificate must be of one.
    authority: Option<Arc<WebPkiServerVerifier>>,
    checks_host: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CertificateCheck {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
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
        match authority.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(error) if !self.checks_host && is_of_name(&error) => {
                Ok(ServerCertVerified::assertion())
            }
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
