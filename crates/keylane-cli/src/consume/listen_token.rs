//! Bearer token for the commands of `--listen`.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Minimum length of a token, in bytes.
const MIN_LENGTH: usize = 16;

/// SHA-256 of a token. It is never displayed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ListenToken([u8; 32]);

impl ListenToken {
    /// Reads the token in the first line of a file, which only its owner may access.
    ///
    /// # Errors
    /// If the file cannot be read, is accessible to others, or has no token that is long enough. The
    /// text has the remedy, and never the token.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let failed = |error| format!("cannot read {name}: {error}; check the name");
        let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(format!("other users can read or change {name}; run `chmod 600` on it"));
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        let token = text.lines().next().unwrap_or_default().trim();
        if token.len() < MIN_LENGTH {
            return Err(format!(
                "the first line of {name} has fewer than {MIN_LENGTH} characters; write a random \
                 token, such as that of `openssl rand -hex 32`"
            ));
        }
        Ok(ListenToken(Sha256::digest(token).into()))
    }

    /// Returns whether this is the token, in a time that does not depend on where they differ.
    pub(super) fn is(&self, token: &[u8]) -> bool {
        self.0.as_slice().ct_eq(Sha256::digest(token).as_slice()).into()
    }
}

impl fmt::Debug for ListenToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ListenToken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, mode: u32) -> Result<ListenToken, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        ListenToken::read(&path)
    }

    #[test]
    fn a_token_is_in_the_first_line_of_a_file_of_its_owner_alone() {
        let token = read("correct horse battery \nother\n", 0o600).unwrap();
        assert!(token.is(b"correct horse battery"));
        assert!(!token.is(b"correct horse batterz") && !token.is(b""));
        assert_eq!(format!("{token:?}"), "ListenToken");
        let error = read("correct horse battery\n", 0o640).unwrap_err();
        assert!(error.contains("chmod 600"), "{error}");
        let error = read("\ncorrect horse battery\n", 0o600).unwrap_err();
        assert!(error.contains("fewer than 16"), "{error}");
        assert!(!read("secret", 0o600).unwrap_err().contains("secret"));
        assert!(
            ListenToken::read(Path::new("/nowhere/token")).unwrap_err().contains("cannot read")
        );
    }
}
