//! A server as a node of a cluster: the address at which the other servers of its database reach it, and the node that owns the
//! store.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Url;
use subtle::ConstantTimeEq;
use tokio::sync::watch;

/// One of several servers that share a store in a database.
///
/// One of them owns the store and runs its jobs; the others forward requests to it. A [`StartingServer`](crate::http::StartingServer)
/// joins as a node, and [`PostgresSettings::of_node`](crate::store::PostgresSettings::of_node) makes the store announce it to the
/// others. Clones are the same node.
#[derive(Clone, Debug)]
pub struct Node(Arc<NodeState>);

#[derive(Debug)]
struct NodeState {
    /// Address for the others. Its certificate changes with a reload.
    address: Mutex<NodeAddress>,
    /// With it the others prove that they read it in the database.
    secret: NodeSecret,
    /// Owner of the store, as it was last seen in the database. `None`: there is none, or it has no address.
    owner: watch::Sender<Option<Owner>>,
    /// Whether an operator has drained the node, as it was last seen in the database.
    drained: watch::Sender<bool>,
}

/// Address at which a node is reached by the others, such as `https://10.0.0.5:7420`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// Address without a path and without a slash at its end.
    pub(crate) url: Arc<str>,
    /// SHA-256 of the certificate of the node, if its address begins with `https`.
    pub(crate) certificate: Option<[u8; 32]>,
}

/// Error in the address of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the address of a node has a scheme, a host and a port, such as https://10.0.0.5:7420; this is {text:?}"
)]
pub struct InvalidNodeAddress {
    text: String,
}

/// Node that owns the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Number of the takeover by which it became the owner.
    pub(crate) epoch: i64,
    pub(crate) address: NodeAddress,
    pub(crate) secret: NodeSecret,
}

/// Node in the list of those that share a store.
#[derive(Clone, Debug)]
pub(crate) struct ListedNode {
    /// Address at which the others reach it.
    pub(crate) address: String,
    /// Version of the program.
    pub(crate) version: String,
    /// Whether it owns the store.
    pub(crate) is_owner: bool,
    /// Whether an operator has drained it.
    pub(crate) is_drained: bool,
    /// Time since it wrote its row, by the clock of the database, in milliseconds.
    pub(crate) silent_ms: u64,
}

/// Effect of a request to drain a node or to end that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "there is no database"))]
pub(crate) enum DrainOutcome {
    /// It is drained, or is not any more.
    Done,
    /// No node has this address.
    Unknown,
    /// No other node that could own the store is there.
    LastNode,
}

/// Random text that a node writes to the database.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct NodeSecret(Arc<str>);

impl Node {
    /// Creates a node with its address.
    #[must_use]
    pub fn new(address: NodeAddress) -> Self {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).expect("the system has randomness");
        let secret = secret.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        Node(Arc::new(NodeState {
            address: Mutex::new(address),
            secret: NodeSecret(secret.into()),
            owner: watch::Sender::new(None),
            drained: watch::Sender::new(false),
        }))
    }

    /// Returns the address for the other nodes.
    #[must_use]
    pub fn address(&self) -> NodeAddress {
        self.0.address.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the store is owned by a node at another address than `last`, and returns that address. Cancel safe.
    pub async fn other_owner(&self, last: Option<&NodeAddress>) -> NodeAddress {
        let mut owner = self.owner();
        // The sender lives as long as the node.
        let is_other = |owner: &Option<Owner>| {
            owner.as_ref().is_some_and(|owner| Some(&owner.address) != last)
        };
        match owner.wait_for(is_other).await.ok().and_then(|owner| owner.clone()) {
            Some(owner) => owner.address,
            None => std::future::pending().await,
        }
    }

    /// Waits until an operator has drained this node: then it should give the store up, so that another one owns it. Cancel safe.
    pub async fn drained(&self) {
        self.wait_for_drained(true).await;
    }

    /// Waits until the node is drained, or is not drained.
    pub(crate) async fn wait_for_drained(&self, wanted: bool) {
        // The sender lives as long as the node.
        if self.0.drained.subscribe().wait_for(|drained| *drained == wanted).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns whether an operator has drained the node.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "there is no database"))]
    pub(crate) fn is_drained(&self) -> bool {
        *self.0.drained.borrow()
    }

    /// Records whether the database says that the node is drained.
    pub(crate) fn set_drained(&self, drained: bool) {
        self.0.drained.send_if_modified(|known| std::mem::replace(known, drained) != drained);
    }

    /// Replaces the certificate with which the node answers. The others know it when the database has it.
    pub(crate) fn set_certificate(&self, certificate: Option<[u8; 32]>) {
        self.0.address.lock().unwrap_or_else(PoisonError::into_inner).certificate = certificate;
    }

    pub(crate) fn secret(&self) -> &NodeSecret {
        &self.0.secret
    }

    /// Returns the owner, and waits for changes of it.
    pub(crate) fn owner(&self) -> watch::Receiver<Option<Owner>> {
        self.0.owner.subscribe()
    }

    /// Records the owner that the database has. Those that wait learn of a change only.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "there is no database"))]
    pub(crate) fn set_owner(&self, owner: Option<Owner>) {
        self.0.owner.send_if_modified(|known| {
            let changes = *known != owner;
            *known = owner;
            changes
        });
    }
}

impl NodeAddress {
    /// Returns the address with the SHA-256 of a certificate.
    #[must_use]
    pub(crate) fn with_certificate(self, certificate: Option<[u8; 32]>) -> Self {
        NodeAddress { certificate, ..self }
    }

    /// Returns whether the node answers with TLS.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.url.starts_with("https:")
    }
}

impl FromStr for NodeAddress {
    type Err = InvalidNodeAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidNodeAddress { text: text.to_owned() };
        let url = Url::parse(text).map_err(|_| invalid())?;
        let is_plain = matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        match is_plain {
            true => Ok(NodeAddress {
                url: url.as_str().trim_end_matches('/').into(),
                certificate: None,
            }),
            false => Err(invalid()),
        }
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl NodeSecret {
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "there is no database"))]
    pub(crate) fn new(text: &str) -> Self {
        NodeSecret(text.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether a header has this secret. The duration does not depend on where they differ.
    pub(crate) fn is(&self, header: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(header).into()
    }
}

impl fmt::Debug for NodeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_and_a_host_and_nothing_behind_the_port() {
        for (text, shown) in [
            ("http://10.0.0.5:7420", "http://10.0.0.5:7420"),
            ("https://node-1.example/", "https://node-1.example"),
            ("http://[::1]:7420", "http://[::1]:7420"),
        ] {
            assert_eq!(text.parse::<NodeAddress>().unwrap().to_string(), shown);
        }
        for text in ["", "10.0.0.5:7420", "ftp://a", "http://a/b", "http://a/?b", "http://u:p@a"] {
            let refused = text.parse::<NodeAddress>().unwrap_err().to_string();
            assert!(refused.contains("https://10.0.0.5:7420"), "{text}");
        }
    }

    #[test]
    fn two_nodes_have_different_secrets_which_are_not_shown() {
        let [one, other] = [(), ()].map(|()| Node::new("http://a".parse().unwrap()));
        assert!(one.secret().is(one.secret().as_str().as_bytes()));
        assert!(!one.secret().is(other.secret().as_str().as_bytes()));
        assert!(!format!("{one:?}").contains(one.secret().as_str()));
    }
}
