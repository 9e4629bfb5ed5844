//! TLS by rustls, with the operator's certificate.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::pinned_certificate;
use super::write_timeout::WriteTimeoutStream;

/// Certificate chain with its private key.
#[derive(Clone)]
pub struct TlsIdentity {
    acceptor: TlsAcceptor,
    /// SHA-256 of the first certificate.
    pub(super) certificate: [u8; 32],
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// Error of a certificate or its key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or contains no PEM.
    #[error("cannot read {}: {why}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        why: String,
    },
    /// The certificate and the key do not match, or their type is not supported.
    #[error("the certificate cannot be used")]
    Unfit(#[source] rustls::Error),
}

impl TlsIdentity {
    /// Reads a certificate chain and a private key, both in PEM.
    ///
    /// # Errors
    /// If a file cannot be read, or the two do not match.
    pub fn read(certificates: &Path, key: &Path) -> Result<Self, TlsError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error: rustls::pki_types::pem::Error| TlsError::File {
                path,
                why: error.to_string(),
            }
        };
        let chain = CertificateDer::pem_file_iter(certificates).map_err(failed(certificates))?;
        let chain = chain.collect::<Result<Vec<_>, _>>().map_err(failed(certificates))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(failed(key))?;
        let certificate = chain.first().map(pinned_certificate::hash).unwrap_or_default();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unfit)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(TlsError::Unfit)?;
        Ok(TlsIdentity { acceptor: TlsAcceptor::from(Arc::new(config)), certificate })
    }

    pub(super) async fn accept(
        &self,
        stream: WriteTimeoutStream<TcpStream>,
    ) -> io::Result<TlsStream<WriteTimeoutStream<TcpStream>>> {
        self.acceptor.accept(stream).await
    }
}
