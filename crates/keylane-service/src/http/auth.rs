//! Who may do what: bearer tokens with roles.
//!
//! A token is known by its SHA-256 only, and compared without its bytes deciding how long that takes.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// To look.
    Read,
    /// To submit jobs, and to look.
    Submit,
    /// To take leases, and to end them.
    Worker,
    /// To cancel, pause, resume, retry and purge, and to submit and look.
    Operate,
    /// Everything.
    Admin,
}

impl Role {
    const ALL: [(&'static str, Role); 5] = [
        ("read", Role::Read),
        ("submit", Role::Submit),
        ("worker", Role::Worker),
        ("operate", Role::Operate),
        ("admin", Role::Admin),
    ];

    /// Whether who has this role may do what needs the other.
    #[must_use]
    pub fn allows(self, needed: Role) -> bool {
        match self {
            Role::Admin => true,
            Role::Operate => matches!(needed, Role::Read | Role::Submit | Role::Operate),
            Role::Submit => matches!(needed, Role::Read | Role::Submit),
            Role::Worker => needed == Role::Worker,
            Role::Read => needed == Role::Read,
        }
    }

    fn parse(word: &str) -> Option<Role> {
        Role::ALL.iter().find(|(name, _)| *name == word).map(|(_, role)| *role)
    }
}

/// Who has sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// What the token is called; `anyone` where none is needed.
    pub name: String,
    roles: BTreeSet<Role>,
    /// The token itself, so that another one of the same name is another.
    token: TokenHash,
}

/// SHA-256 of a token. It is shown nowhere.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct TokenHash([u8; 32]);

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

impl Caller {
    /// Who comes where no token is needed: they may do everything.
    #[must_use]
    pub fn anyone() -> Self {
        Caller { name: "anyone".into(), roles: [Role::Admin].into(), token: TokenHash::default() }
    }

    /// Whether they may do what needs this role.
    #[must_use]
    pub fn may(&self, needed: Role) -> bool {
        self.roles.iter().any(|role| role.allows(needed))
    }
}

/// The tokens of a server.
#[derive(Clone, Default)]
pub struct Tokens {
    known: Arc<Vec<([u8; 32], Caller)>>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.known.iter().map(|(_, caller)| &caller.name);
        f.debug_list().entries(names).finish()
    }
}

/// Something that is replaced while others read it.
#[derive(Clone, Debug, Default)]
pub(super) struct Current<T>(Arc<RwLock<T>>);

impl<T: Clone> Current<T> {
    pub(super) fn new(value: T) -> Self {
        Current(Arc::new(RwLock::new(value)))
    }

    pub(super) fn get(&self) -> T {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

/// A file of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Others than its owner can read or change it.
    #[error("{} can be read by others; say `chmod 600` of it", path.display())]
    Exposed {
        /// Which.
        path: PathBuf,
    },
    /// A line of it makes no sense.
    #[error("line {line} of the tokens: {why}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

impl Tokens {
    /// Reads a file of tokens, which must be its owner's alone.
    ///
    /// # Errors
    /// If it cannot be read, is open to others, or has a line that makes no sense.
    pub fn read(path: &Path) -> Result<Self, TokensError> {
        use std::os::unix::fs::PermissionsExt;
        let io = |source| TokensError::Io { path: path.to_owned(), source };
        let mode = std::fs::metadata(path).map_err(io)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(TokensError::Exposed { path: path.to_owned() });
        }
        Tokens::parse(&std::fs::read_to_string(path).map_err(io)?)
    }

    /// Reads lines of a name, its roles with commas between, and the SHA-256 of the token in hexadecimal
    /// digits, or `plain:` and the token. Empty lines and those that begin with `#` are left out.
    ///
    /// ```
    /// use keylane_service::http::{Role, Tokens};
    ///
    /// let tokens = Tokens::parse("ci submit plain:this-is-a-long-enough-token\n")?;
    /// let caller = tokens.caller("this-is-a-long-enough-token").unwrap();
    /// assert!(caller.may(Role::Submit) && !caller.may(Role::Operate));
    /// assert!(tokens.caller("this-is-a-long-enough-tokem").is_none());
    /// # Ok::<(), keylane_service::http::TokensError>(())
    /// ```
    ///
    /// # Errors
    /// If a line makes no sense.
    pub fn parse(text: &str) -> Result<Self, TokensError> {
        let mut known = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let token = parse_line(line)
                .map_err(|why| TokensError::Line { line: index + 1, why: why.to_owned() })?;
            known.push(token);
        }
        Ok(Tokens { known: Arc::new(known) })
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether this caller's token still is one; all are where none is needed.
    pub(super) fn has(&self, caller: &Caller) -> bool {
        self.is_empty() || self.known.iter().any(|(_, known)| known == caller)
    }

    /// Whose token it is.
    #[must_use]
    pub fn caller(&self, token: &str) -> Option<Caller> {
        let digest = Sha256::digest(token.as_bytes());
        // All are compared, so that the time does not say which was nearly right.
        let mut found = None;
        for (known, caller) in &*self.known {
            if bool::from(known.as_slice().ct_eq(digest.as_slice())) {
                found = Some(caller);
            }
        }
        found.cloned()
    }
}

fn parse_line(line: &str) -> Result<([u8; 32], Caller), &'static str> {
    let mut words = line.split_whitespace();
    let (Some(name), Some(roles), Some(secret), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("expected a name, its roles, and the token's SHA-256");
    };
    let roles = roles.split(',').map(Role::parse).collect::<Option<BTreeSet<_>>>();
    let roles = roles.ok_or("the roles are read, submit, worker, operate and admin")?;
    let digest = match secret.strip_prefix("plain:") {
        Some(token) if token.len() < 16 => return Err("a token has 16 characters at least"),
        Some(token) => Sha256::digest(token.as_bytes()).into(),
        None => hexadecimal(secret).ok_or("a SHA-256 has 64 hexadecimal digits")?,
    };
    Ok((digest, Caller { name: name.to_owned(), roles, token: TokenHash(digest) }))
}

fn hexadecimal(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_hash() {
        let digest = Sha256::digest(b"correct horse battery");
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let tokens = Tokens::parse(&format!("# who\n\nops operate,worker {digest}\n")).unwrap();
        let caller = tokens.caller("correct horse battery").unwrap();
        assert_eq!(caller.name, "ops");
        assert!(caller.may(Role::Read) && caller.may(Role::Worker) && !caller.may(Role::Admin));
        assert_eq!(tokens.caller("correct horse"), None);
        assert!(!format!("{tokens:?}").contains(&digest));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let why = |text: &str| Tokens::parse(text).unwrap_err().to_string();
        assert!(why("a read\n").starts_with("line 1"));
        assert!(why("\na boss plain:0123456789abcdef").contains("the roles are"));
        assert!(why("a read plain:short").contains("16 characters"));
        assert!(why("a read 12").contains("64"));
    }

    #[test]
    fn a_worker_cannot_look() {
        assert!(Role::Worker.allows(Role::Worker) && !Role::Worker.allows(Role::Read));
        assert!(!Role::Submit.allows(Role::Operate) && !Role::Read.allows(Role::Submit));
    }
}
