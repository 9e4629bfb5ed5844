//! A server in another process, to be killed: the test's own program, which runs one test, `server`, of a module.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use keylane_service::Service;
use keylane_service::http::{self, HttpServer};

const FOLDER: &str = "KEYLANE_CHILD_FOLDER";

/// Where the server has its store, if this process was started to be one.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// How many kills there are to be.
pub(crate) fn kills() -> u64 {
    std::env::var("KEYLANE_KILLS").map_or(6, |kills| kills.parse().unwrap())
}

/// In the server: answers until it is killed.
pub(crate) async fn serve(service: &Service, folder: &Path) {
    let settings = http::HttpSettings { listen: ([127, 0, 0, 1], 0).into(), ..Default::default() };
    let server = HttpServer::start(service, settings).await.unwrap();
    std::fs::write(folder.join("address.new"), server.address().to_string()).unwrap();
    std::fs::rename(folder.join("address.new"), folder.join("address")).unwrap();
    std::future::pending::<()>().await;
}

/// A server that runs, killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    server: &'static str,
    folder: PathBuf,
    variables: Vec<(&'static str, String)>,
    process: std::process::Child,
}

impl Child {
    /// Runs the test `server` ("module::name"), with its store in `folder` and `variables` in its environment.
    pub(crate) fn start(
        server: &'static str,
        folder: &Path,
        variables: &[(&'static str, String)],
    ) -> Self {
        let (folder, variables) = (folder.to_owned(), variables.to_owned());
        let process = spawn(server, &folder, &variables);
        Child { server, folder, variables, process }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Kills it, if it was not, and starts it again.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.process = spawn(self.server, &self.folder, &self.variables);
    }

    /// Where it answers. Fails the test if it has ended by itself.
    pub(crate) async fn address(&mut self) -> String {
        loop {
            if let Some(address) = address_now(&self.folder) {
                return address;
            }
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "the server has ended: {}", self.messages());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Where it answers, if it does before it ends by itself.
    pub(crate) async fn address_or_end(&mut self) -> Option<String> {
        loop {
            if self.has_ended() {
                return None;
            }
            if let Some(address) = address_now(&self.folder) {
                return Some(address);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    fn messages(&self) -> String {
        std::fs::read_to_string(self.folder.join("messages")).unwrap_or_default()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(server: &str, folder: &Path, variables: &[(&'static str, String)]) -> std::process::Child {
    let _ = std::fs::remove_file(folder.join("address"));
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", server, "--nocapture"])
        .env(FOLDER, folder)
        .envs(variables.iter().cloned())
        .stdout(Stdio::null())
        .stderr(File::create(folder.join("messages")).unwrap())
        .spawn()
        .unwrap()
}

/// A client of servers that are killed. One that has lost a connection at the wrong moment may wait for ever.
pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().timeout(Duration::from_secs(60)).build().unwrap()
}

/// Where the server of a folder answers, if one does.
pub(crate) fn address_now(folder: &Path) -> Option<String> {
    std::fs::read_to_string(folder.join("address")).ok()
}

/// The same, as soon as one does.
pub(crate) async fn address(folder: &Path) -> String {
    loop {
        match address_now(folder) {
            Some(address) => return address,
            None => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}
