//! PostgreSQL server of one test, with its own port and directory.
//!
//! It ends when the value is dropped, and also if the test process is killed: see `guarded_process.rs`.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getuid};
use tempfile::TempDir;

use crate::guarded_process::{GuardedProcess, StartOutcome, StartTexts};
use crate::memory_directory::memory_directory;
use crate::{Missing, PAUSE};

/// Maximum time from the start of a server until it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum number of starts: another process can take a chosen port before the server binds it.
const MAX_STARTS: usize = 3;

/// Lines of a server that is ready, and of a standby that is.
const READY: &str = "database system is ready to accept connections";
const READY_STANDBY: &str = "database system is ready to accept read-only connections";

/// After a kill, the processes of its connections notice that by themselves, and hold its memory until then.
const TAKEN: &[&str] = &["could not bind", "is still in use", "already exists"];

/// Maximum number of starts after a kill, and the time between two of them.
const MAX_RESTARTS: usize = 300;
const RESTART_INTERVAL: Duration = Duration::from_millis(100);

/// Folder of Debian's packages, which has a folder for each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// User of Debian's packages. The server refuses to run as root.
const USER: &str = "postgres";

/// A PostgreSQL server, which ends when the value is dropped.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    port: u16,
    settings: Vec<String>,
    /// Whether it follows another server and writes nothing itself.
    is_standby: bool,
    /// `None` after [`kill`](Self::kill).
    process: Option<GuardedProcess>,
    /// Removed on drop; by the guard, if the test process is killed.
    directory: TempDir,
}

impl PostgresServer {
    /// Starts a server with an empty database, and waits until it accepts connections.
    ///
    /// # Errors
    /// If PostgreSQL is missing.
    ///
    /// # Panics
    /// If the server does not start. The message contains the last lines of its log.
    pub fn start() -> Result<Self, Missing> {
        Self::start_with(&[])
    }

    /// Starts a server as [`start`](Self::start) does, with these settings, such as `fsync=on`.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    ///
    /// # Panics
    /// As for [`start`](Self::start).
    pub fn start_with(settings: &[&str]) -> Result<Self, Missing> {
        let programs = programs()?;
        let directory = own_directory();
        let mut initdb = Command::new(programs.join("initdb"));
        initdb.arg("-D").arg(directory.path().join("data")).arg("--locale=C");
        initdb.args(["-A", "trust", "-U", "keylane", "-E", "UTF8", "-N"]);
        let output = unprivileged(&initdb).output().expect("initdb runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // A crash of a process loses nothing that the kernel has.
        // Otherwise a killed server leaves its memory in /dev/shm.
        let base = ["fsync=off", "dynamic_shared_memory_type=mmap"];
        let settings = base.iter().chain(settings).map(|one| (*one).to_owned()).collect();
        let server = PostgresServer {
            programs,
            port: 0,
            settings,
            is_standby: false,
            process: None,
            directory,
        };
        Ok(server.started())
    }

    /// Starts a standby of this server, which receives each transaction after its commit, and waits until it can be read.
    ///
    /// # Panics
    /// If it does not start. The message contains the last lines of its log.
    #[must_use]
    pub fn start_standby(&self) -> Self {
        let directory = own_directory();
        let mut copy = Command::new(self.programs.join("pg_basebackup"));
        copy.args([
            "--write-recovery-conf",
            "--wal-method=stream",
            "--checkpoint=fast",
            "--no-sync",
        ]);
        copy.arg("-D").arg(directory.path().join("data")).arg("-d").arg(self.address());
        let output = unprivileged(&copy).output().expect("pg_basebackup runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let standby = PostgresServer {
            programs: self.programs.clone(),
            port: 0,
            settings: self.settings.clone(),
            is_standby: true,
            process: None,
            directory,
        };
        standby.started()
    }

    /// Starts a standby as [`start_standby`](Self::start_standby) does. Commits of this server wait for it from then on, so it has all
    /// that is acknowledged.
    ///
    /// # Panics
    /// As for [`start_standby`](Self::start_standby).
    #[must_use]
    pub fn start_synchronous_standby(&self) -> Self {
        let standby = self.start_standby();
        let _ = self.query("ALTER SYSTEM SET synchronous_standby_names = '*'");
        let _ = self.query("SELECT pg_reload_conf()");
        while self.query("SELECT sync_state FROM pg_stat_replication") != "sync" {
            thread::sleep(PAUSE);
        }
        // The commit of this number waits for the standby, and so for all earlier commits.
        let _ = self.query("SELECT txid_current()");
        standby
    }

    /// Makes a standby a server of its own, which writes, and waits until it is one.
    ///
    /// # Panics
    /// If it is no standby.
    pub fn promote(&mut self) {
        assert_eq!(self.query("SELECT pg_promote()"), "t");
        self.is_standby = false;
    }

    fn started(mut self) -> Self {
        for _ in 0..MAX_STARTS {
            self.port = free_port();
            if self.try_start() {
                return self;
            }
        }
        panic!("another process took each port that was chosen for PostgreSQL");
    }

    /// Returns the address of its database.
    #[must_use]
    pub fn address(&self) -> String {
        self.address_of("postgres")
    }

    /// Returns the address of another one of its databases.
    #[must_use]
    pub fn address_of(&self, database: &str) -> String {
        format!("postgres://keylane@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// Returns its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server and waits until it has ended. Its data stay.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// Starts the server again after [`kill`](Self::kill), with the same address.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        for _ in 0..MAX_RESTARTS {
            if self.try_start() {
                return;
            }
            thread::sleep(RESTART_INTERVAL);
        }
        panic!("PostgreSQL could not start again: its port or its memory is in use");
    }

    /// Sends `signal` to the server.
    pub fn signal(&self, signal: Signal) {
        self.process.as_ref().expect("it runs").signal(signal);
    }

    /// Executes statements with `psql`, and returns its output: rows in lines, columns separated by `|`.
    ///
    /// # Panics
    /// If they fail.
    #[must_use]
    pub fn query(&self, sql: &str) -> String {
        self.query_in("postgres", sql)
    }

    /// Executes statements as [`query`](Self::query) does, in another one of its databases.
    ///
    /// # Panics
    /// If they fail.
    #[must_use]
    pub fn query_in(&self, database: &str, sql: &str) -> String {
        self.execute(database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Executes statements as [`query`](Self::query) does.
    ///
    /// # Errors
    /// Returns the message of the first one that fails.
    pub fn try_query(&self, sql: &str) -> Result<String, String> {
        self.execute("postgres", sql)
    }

    /// Returns the program `psql`.
    #[must_use]
    pub fn psql(&self) -> Command {
        Command::new(self.programs.join("psql"))
    }

    fn execute(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut psql = self.psql();
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql]).arg(self.address_of(database));
        let output = psql.output().expect("psql runs");
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).expect("text").trim_end().to_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Copies the tables of a database, as they are, into an empty one.
    ///
    /// # Panics
    /// If that fails.
    pub fn copy(&self, from: &str, to: &str) {
        let mut dump = Command::new(self.programs.join("pg_dump"));
        let mut dump =
            dump.arg(self.address_of(from)).stdout(Stdio::piped()).spawn().expect("pg_dump runs");
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-Xq", "-v", "ON_ERROR_STOP=1"]).arg(self.address_of(to));
        psql.stdin(dump.stdout.take().expect("it is a pipe")).stdout(Stdio::null());
        let restored = psql.status().expect("psql runs");
        assert!(dump.wait().expect("it is a child").success() && restored.success());
    }

    /// Returns false if another process uses the port, or processes of an earlier server have not ended.
    fn try_start(&mut self) -> bool {
        let mut postgres = Command::new(self.programs.join("postgres"));
        postgres.arg("-D").arg(self.directory.path().join("data"));
        postgres.args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        postgres.args(["-c", "unix_socket_directories="]);
        for setting in &self.settings {
            postgres.args(["-c", setting]);
        }
        let (path, command) = (self.directory.path(), unprivileged(&postgres));
        let ready = if self.is_standby { READY_STANDBY } else { READY };
        let texts = StartTexts { ready, taken: TAKEN };
        let (process, outcome) = GuardedProcess::start(&command, path, texts, START_TIMEOUT);
        match outcome {
            StartOutcome::Ready => {
                self.process = Some(process);
                true
            }
            StartOutcome::Taken => {
                process.kill();
                false
            }
            StartOutcome::Failed(log) => panic!("PostgreSQL did not start:\n{log}"),
        }
    }
}

/// Returns the folder of the server's programs.
fn programs() -> Result<PathBuf, Missing> {
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut folders: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path).filter(|folder| folder.join("initdb").exists()));
    let has_all = |folder: &PathBuf| folder.join("initdb").exists() && folder.join("psql").exists();
    folders.into_iter().rev().find(has_all).ok_or_else(|| {
        Missing::new("there is no PostgreSQL server: install the package `postgresql`")
    })
}

/// Returns a new folder that a server can write.
pub(crate) fn own_directory() -> TempDir {
    let directory = memory_directory("keylane-postgres-");
    give_away(directory.path());
    directory
}

/// Gives a folder to the user of the server, if this one is root.
fn give_away(folder: &Path) {
    if !getuid().is_root() {
        return;
    }
    let id = |option: &str| -> u32 {
        let output = Command::new("id").args([option, USER]).output().expect("`id` runs");
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        text.parse().unwrap_or_else(|_| panic!("there is no user {USER} to run PostgreSQL"))
    };
    chown(folder, Some(id("-u")), Some(id("-g"))).expect("root gives folders away");
}

/// Returns a command that is run by a user other than root.
pub(crate) fn unprivileged(command: &Command) -> Command {
    let mut unprivileged = if getuid().is_root() {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
        setpriv.arg(command.get_program());
        setpriv
    } else {
        Command::new(command.get_program())
    };
    unprivileged.args(command.get_args());
    unprivileged
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("it is bound").port()
}
