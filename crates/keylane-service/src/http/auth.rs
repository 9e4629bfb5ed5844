//! Authentication and authorization: bearer tokens with roles.
//!
//! Only a token's SHA-256 is kept. It is compared in constant time.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::tenant::Tenant;
use crate::wire::Timestamp;

/// Permission of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Read everything but the audit log.
    Read,
    /// Submit jobs, and read.
    Submit,
    /// Take leases, and complete them.
    Worker,
    /// Cancel, pause, resume, retry and purge, and submit and read.
    Operate,
    /// All permissions.
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

    /// Returns whether this role includes another one.
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

/// Caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Name of the token; `anyone` on a server without tokens.
    pub name: String,
    roles: BTreeSet<Role>,
    /// Time from which the token is refused.
    expires: Option<Timestamp>,
    /// Tenant of the jobs that it submits.
    tenant: Option<Arc<str>>,
    /// Kinds that it is for; `None` for all.
    kinds: Option<Arc<BTreeSet<String>>>,
    /// Hash of the token, which tells apart two tokens with one name.
    token: TokenHash,
}

/// SHA-256 of a token. It is never displayed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct TokenHash([u8; 32]);

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

impl Caller {
    /// Caller on a server without tokens, with all roles.
    #[must_use]
    pub fn anyone() -> Self {
        let (roles, token) = ([Role::Admin].into(), TokenHash::default());
        Caller { name: "anyone".into(), roles, expires: None, tenant: None, kinds: None, token }
    }

    /// Node of the cluster, or this server itself, which leases jobs.
    pub(super) fn node() -> Self {
        let (roles, token) = ([Role::Worker].into(), TokenHash::default());
        Caller { name: "server".into(), roles, expires: None, tenant: None, kinds: None, token }
    }

    /// Returns whether this is a node of the cluster, or this server itself.
    pub(super) fn is_node(&self) -> bool {
        *self == Caller::node()
    }

    /// Returns the time at which the token expires, if it does.
    #[must_use]
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    /// Returns the tenant of the jobs that the token submits, if it is for one.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// Returns the kinds whose jobs the token submits, leases and changes; `None` for all.
    #[must_use]
    pub fn kinds(&self) -> Option<&Arc<BTreeSet<String>>> {
        self.kinds.as_ref()
    }

    /// Returns whether the token is expired at this time.
    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Returns whether the caller has a role.
    #[must_use]
    pub fn may(&self, needed: Role) -> bool {
        self.roles.iter().any(|role| role.allows(needed))
    }
}

/// Tokens of a server.
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

/// Value that is replaced atomically while others read it.
#[derive(Clone, Debug, Default)]
pub(super) struct Replaceable<T>(Arc<RwLock<T>>);

impl<T: Clone> Replaceable<T> {
    pub(super) fn new(value: T) -> Self {
        Replaceable(Arc::new(RwLock::new(value)))
    }

    pub(super) fn get(&self) -> T {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

/// Error of a token file.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// Users other than the owner can read or change the file.
    #[error("other users can read or change {}; run `chmod 600` on it", path.display())]
    Exposed {
        /// Path of the file.
        path: PathBuf,
    },
    /// A line is invalid.
    #[error("line {line} of the tokens: {why}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Reason.
        why: String,
    },
}

impl Tokens {
    /// Reads a token file, which only its owner may access.
    ///
    /// # Errors
    /// If the file cannot be read, is accessible to others, or has an invalid line.
    pub fn read(path: &Path) -> Result<Self, TokensError> {
        use std::os::unix::fs::PermissionsExt;
        let io = |source| TokensError::Io { path: path.to_owned(), source };
        let mode = std::fs::metadata(path).map_err(io)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(TokensError::Exposed { path: path.to_owned() });
        }
        Tokens::parse(&std::fs::read_to_string(path).map_err(io)?)
    }

    /// Parses lines of a name, its roles separated by commas, and the token's SHA-256 in
    /// hexadecimal, or `plain:` and the token; and, if the token expires, `expires=` and the time, such
    /// as `2027-01-31T00:00:00Z`; if its jobs belong to a tenant, `tenant=` and the name; and, if it is for
    /// some kinds only, `kinds=` and their names, separated by commas. Empty lines and lines that begin with
    /// `#` are skipped.
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
    /// If a line is invalid.
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

    /// Returns whether there are no tokens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Returns whether the caller's token is still valid. On a server without tokens, every caller
    /// is valid.
    pub(super) fn has(&self, caller: &Caller) -> bool {
        self.is_empty() || self.known.iter().any(|(_, known)| known == caller)
    }

    /// Returns the caller with this token.
    #[must_use]
    pub fn caller(&self, token: &str) -> Option<Caller> {
        let digest = Sha256::digest(token.as_bytes());
        // All hashes are compared, so that the duration does not reveal a near match.
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
    let (Some(name), Some(roles), Some(secret)) = (words.next(), words.next(), words.next()) else {
        return Err(EXPECTED);
    };
    let (mut expires, mut tenant, mut kinds) = (None, None, None);
    for option in words {
        match option.split_once('=') {
            Some(("expires", time)) if expires.is_none() => expires = Some(expiry(time)?),
            Some(("tenant", name)) if tenant.is_none() => tenant = Some(tenant_name(name)?),
            Some(("kinds", names)) if kinds.is_none() => kinds = Some(Arc::new(kinds_of(names)?)),
            _ => return Err(EXPECTED),
        }
    }
    let roles = roles.split(',').map(Role::parse).collect::<Option<BTreeSet<_>>>();
    let roles = roles.ok_or("the roles are read, submit, worker, operate and admin")?;
    if kinds.is_some() && roles.contains(&Role::Admin) {
        return Err("an admin's token is for all kinds; leave out kinds=, or give it other roles");
    }
    let digest = match secret.strip_prefix("plain:") {
        Some(token) if token.len() < 16 => return Err("a token has 16 characters at least"),
        Some(token) => Sha256::digest(token.as_bytes()).into(),
        None => hexadecimal(secret).ok_or("a SHA-256 has 64 hexadecimal digits")?,
    };
    let (name, token) = (name.to_owned(), TokenHash(digest));
    Ok((digest, Caller { name, roles, expires, tenant, kinds, token }))
}

const EXPECTED: &str = "expected a name, its roles, the token's SHA-256, and possibly expires=TIME, such as expires=2027-01-31T00:00:00Z, tenant=NAME, and kinds=NAME,NAME";

fn kinds_of(names: &str) -> Result<BTreeSet<String>, &'static str> {
    match names.split(',').any(str::is_empty) {
        true => Err("kinds= has names of kinds, separated by commas without spaces"),
        false => Ok(names.split(',').map(str::to_owned).collect()),
    }
}

fn tenant_name(name: &str) -> Result<Arc<str>, &'static str> {
    let wrong = "a tenant's name has 1 to 64 letters, digits, `.`, `_` or `-`";
    Tenant::check_name(name).map(|()| Arc::from(name)).map_err(|_| wrong)
}

fn expiry(time: &str) -> Result<Timestamp, &'static str> {
    let time: Option<jiff::Timestamp> = time.parse().ok();
    let time = time.ok_or("an expiry is written as expires=2027-01-31T00:00:00Z")?;
    // A time before 1970 counts as 1970.
    Ok(Timestamp(u64::try_from(time.as_millisecond()).unwrap_or(0)))
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
        for wrong in ["expires=soon", "expires=2027-01-31", "2027-01-31T00:00:00Z"] {
            let refused = why(&format!("a read plain:0123456789abcdef {wrong}"));
            assert!(refused.contains("expires=2027-01-31T00:00:00Z"), "{wrong}: {refused}");
        }
    }

    #[test]
    fn a_token_expires_at_its_time() {
        let line = "a read plain:0123456789abcdef expires=1970-01-01T00:00:02Z\n";
        let caller = Tokens::parse(line).unwrap().caller("0123456789abcdef").unwrap();
        assert_eq!(caller.expires(), Some(Timestamp(2000)));
        assert!(!caller.is_expired(Timestamp(1999)) && caller.is_expired(Timestamp(2000)));
        assert!(!Caller::anyone().is_expired(Timestamp(u64::MAX)));
    }

    #[test]
    fn a_token_is_for_a_tenant_and_expires_in_either_order() {
        let secret = "plain:0123456789abcdef";
        let (tenant, expires) = ("tenant=ann", "expires=1970-01-01T00:00:02Z");
        for options in [format!("{tenant} {expires}"), format!("{expires} {tenant}")] {
            let tokens = Tokens::parse(&format!("a submit {secret} {options}\n")).unwrap();
            let caller = tokens.caller("0123456789abcdef").unwrap();
            assert_eq!((caller.tenant(), caller.expires()), (Some("ann"), Some(Timestamp(2000))));
        }
        assert_eq!(Caller::anyone().tenant(), None);
        for wrong in ["tenant=", "tenant=a/b", "tenant=a tenant=b", "team=a", "ann"] {
            assert!(Tokens::parse(&format!("a submit {secret} {wrong}\n")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_token_is_for_some_kinds_or_for_all() {
        let parsed = |roles: &str, options: &str| {
            let tokens = Tokens::parse(&format!("a {roles} plain:0123456789abcdef {options}\n"));
            tokens.map(|tokens| tokens.caller("0123456789abcdef").unwrap())
        };
        let kinds = parsed("submit,worker", "kinds=mail,pdf tenant=ann").unwrap();
        assert!(kinds.kinds().unwrap().iter().eq(["mail", "pdf"]));
        assert_eq!(parsed("submit", "").unwrap().kinds(), None);
        for wrong in ["kinds=", "kinds=a,,b", "kinds=a kinds=b", "kinds=a, b"] {
            assert!(parsed("submit", wrong).is_err(), "{wrong}");
        }
        let refused = parsed("admin", "kinds=a").unwrap_err().to_string();
        assert!(refused.contains("for all kinds"), "{refused}");
    }

    #[test]
    fn a_worker_cannot_look() {
        assert!(Role::Worker.allows(Role::Worker) && !Role::Worker.allows(Role::Read));
        assert!(!Role::Submit.allows(Role::Operate) && !Role::Read.allows(Role::Submit));
    }
}
