//! Explanations of TLS errors, with remedies.

use std::error::Error;
use std::io;

use rustls::CertificateError;

/// Explanation of a TLS error, if the error is one.
pub(super) fn explained(error: &(dyn Error + 'static)) -> Option<String> {
    let error = inside(error)?;
    Some(match error {
        rustls::Error::InvalidCertificate(why) => of_certificate(why),
        rustls::Error::InvalidMessage(_) => {
            "it does not speak TLS there; is its address http:// instead of https://?".to_owned()
        }
        other => format!("there is no encryption that both sides know ({other})"),
    })
}

/// The error of TLS in an error, however often that was wrapped as one of input and output.
fn inside<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let wrapped = || error.downcast_ref::<io::Error>()?.get_ref();
    error.downcast_ref::<rustls::Error>().or_else(|| inside(wrapped()?))
}

fn of_certificate(why: &CertificateError) -> String {
    let trust = "name a file with the certificate of its authority in SSL_CERT_FILE";
    match why {
        CertificateError::UnknownIssuer => {
            format!("no authority that this machine trusts has signed its certificate; {trust}")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired, or the clock of this machine is wrong".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet, or the clock of this machine is wrong".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name; ask it by the name in the certificate".to_owned()
        }
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => format!(
            "its certificate is that of an authority, and no server may have one (`CA:TRUE`); make one for the server, \
             signed by that authority, and {trust}"
        ),
        other => format!("its certificate is refused ({other}); {trust}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has the name of the error of webpki, which is no type of rustls.
    #[derive(Debug, thiserror::Error)]
    #[error("CaUsedAsEndEntity")]
    struct CaUsedAsEndEntity;

    #[test]
    fn certificate_errors_have_a_remedy() {
        let said = |why: CertificateError| {
            let error = io::Error::other(rustls::Error::InvalidCertificate(why));
            // Each layer of the client wraps it once more.
            explained(&io::Error::other(error)).unwrap()
        };
        assert!(said(CertificateError::UnknownIssuer).contains("SSL_CERT_FILE"));
        assert!(said(CertificateError::NotValidForName).contains("another name"));
        assert!(said(CertificateError::Expired).contains("clock"));
        // The reason of webpki that rustls passes on: a server with the certificate of an authority.
        let authority = rustls::OtherError(std::sync::Arc::new(CaUsedAsEndEntity));
        let authority = said(CertificateError::Other(authority));
        assert!(
            authority.contains("CA:TRUE") && authority.contains("SSL_CERT_FILE"),
            "{authority}"
        );
        let plain = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert!(explained(&plain).unwrap().contains("http://"));
        assert_eq!(explained(&io::Error::other("else")), None);
    }
}
