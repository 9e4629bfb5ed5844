//! Place of a store: a file, or a database in PostgreSQL with a folder for the node's own files.

use std::path::{Path, PathBuf};

use keylane_service::http::StartingServer;
use keylane_service::store::StoreSettings;
use keylane_service::{Node, NodeAddress};

#[cfg(feature = "postgres")]
use super::node_address;

/// Place of a store, from `store` and `data_folder` in the configuration or on the command line.
#[derive(Clone, Debug)]
pub(super) struct StorePlace {
    /// File of the store; or, with a database, the name from which those of the node's own files are made.
    pub(super) path: PathBuf,
    /// Text for messages, without a password.
    pub(super) shown: String,
    /// This server as a node of a cluster, once it has joined that.
    pub(super) node: Option<Node>,
    #[cfg(feature = "postgres")]
    database: Option<keylane_service::store::PostgresSettings>,
}

impl StorePlace {
    /// Reads a place. `folder` returns the folder of the node's own files, which is needed with a database only.
    ///
    /// # Errors
    /// If it is a wrong address, or one that this build cannot use, or there is no such folder.
    pub(super) fn read(
        store: &Path,
        folder: impl FnOnce() -> anyhow::Result<PathBuf>,
    ) -> anyhow::Result<Self> {
        match store.to_str().filter(|text| is_address(text)) {
            Some(address) => Self::database(address, folder),
            None => Ok(StorePlace {
                path: store.to_owned(),
                shown: store.display().to_string(),
                node: None,
                #[cfg(feature = "postgres")]
                database: None,
            }),
        }
    }

    #[cfg(feature = "postgres")]
    fn database(
        address: &str,
        folder: impl FnOnce() -> anyhow::Result<PathBuf>,
    ) -> anyhow::Result<Self> {
        use anyhow::Context;
        let database: keylane_service::store::PostgresSettings =
            address.parse().context("the store is not right")?;
        let folder = folder()?;
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}; give --data-folder", folder.display()))?;
        Ok(StorePlace {
            path: folder.join("node"),
            shown: database.to_string(),
            node: None,
            database: Some(database),
        })
    }

    #[cfg(not(feature = "postgres"))]
    fn database(
        _address: &str,
        _folder: impl FnOnce() -> anyhow::Result<PathBuf>,
    ) -> anyhow::Result<Self> {
        anyhow::bail!(
            "this build has no PostgreSQL; build it with the default features, which have `postgres`: {}",
            crate::features::command_with("postgres")
        )
    }

    /// Makes the server a node of the cluster that the database is, if the store is in one: the others reach it at `address`, or at
    /// one that is made of the address at which it listens.
    ///
    /// # Errors
    /// If `address` has another scheme than the server.
    #[cfg(feature = "postgres")]
    pub(super) fn join(
        &mut self,
        server: StartingServer,
        address: Option<NodeAddress>,
        is_encrypted: bool,
    ) -> anyhow::Result<StartingServer> {
        let Some(database) = &mut self.database else { return Ok(server) };
        let address = match address {
            Some(address) if address.is_encrypted() == is_encrypted => address,
            Some(address) => {
                let scheme = if is_encrypted { "https" } else { "http" };
                anyhow::bail!(
                    "node_address {address}: this server answers {scheme}://, so it must begin with that"
                );
            }
            None => node_address::default(server.address(), is_encrypted, &database.hosts())?,
        };
        let (server, node) = server.join(address);
        *database = database.clone().of_node(node.clone());
        self.node = Some(node);
        Ok(server)
    }

    /// Returns the server as it is: without PostgreSQL there are no other nodes.
    #[cfg(not(feature = "postgres"))]
    pub(super) fn join(
        &mut self,
        server: StartingServer,
        _address: Option<NodeAddress>,
        _is_encrypted: bool,
    ) -> anyhow::Result<StartingServer> {
        Ok(server)
    }

    /// Returns the path of the list of processes that handlers start under leases.
    pub(super) fn lease_children(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push("-lease-children");
        path.into()
    }

    /// Returns whether the store is in a database.
    pub(super) fn is_database(&self) -> bool {
        is_address(&self.shown)
    }

    /// Returns the settings of a store at this place.
    pub(super) fn settings(&self, settings: StoreSettings) -> StoreSettings {
        #[cfg(feature = "postgres")]
        let settings = StoreSettings { postgres: self.database.clone(), ..settings };
        settings
    }

    /// Returns the place for a tool, which waits neither for the database nor for its owner.
    #[cfg(feature = "postgres")]
    pub(super) fn at_once(self) -> Self {
        StorePlace { database: self.database.map(|database| database.without_waits()), ..self }
    }

    /// Returns the place for a tool.
    #[cfg(not(feature = "postgres"))]
    pub(super) fn at_once(self) -> Self {
        self
    }

    #[cfg(feature = "postgres")]
    pub(super) fn postgres(&self) -> Option<&keylane_service::store::PostgresSettings> {
        self.database.as_ref()
    }
}

fn is_address(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}
