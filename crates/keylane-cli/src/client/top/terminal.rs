//! Terminal of `keylane top`: polls the server, reads keys, draws, and restores the terminal.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use ratatui::crossterm::event::{self, Event};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::snapshot::ServerSnapshot;
use super::state::{UserAction, ViewState};
use super::view;
use crate::client::server_client::ServerClient;
use crate::exit::ExitOutcome;
use crate::signals;

/// Event of the view.
enum ViewEvent {
    ServerSnapshot(Result<Box<ServerSnapshot>, String>),
    Terminal(Event),
    /// Outcome of a command.
    Done(String),
    Signal(i32),
}

/// Shows the server until the user has enough.
pub(super) async fn run(server: ServerClient, every: Duration) -> anyhow::Result<ExitOutcome> {
    let server = Arc::new(server);
    // Before the screen is taken: an error of the first request stays readable.
    let first = ServerSnapshot::take(&server).await?;
    let (tell, news) = mpsc::unbounded_channel();
    let signalled = tell.clone();
    signals::each(move |signal| signalled.send(ViewEvent::Signal(signal)).is_ok())?;
    // It also has the terminal restored if anything panics.
    let terminal =
        ratatui::try_init().context("cannot use the terminal; --once prints how it is")?;
    let ending = show(terminal, server, every, first, tell, news).await;
    ratatui::restore();
    ending
}

async fn show(
    mut terminal: ratatui::DefaultTerminal,
    server: Arc<ServerClient>,
    every: Duration,
    first: ServerSnapshot,
    tell: mpsc::UnboundedSender<ViewEvent>,
    mut news: mpsc::UnboundedReceiver<ViewEvent>,
) -> anyhow::Result<ExitOutcome> {
    read_keys(tell.clone())?;
    let soon = Arc::new(Notify::new());
    let _looking = tokio::spawn(look(Arc::clone(&server), every, Arc::clone(&soon), tell.clone()));
    let mut state = ViewState::default();
    state.see(Ok(first));
    loop {
        terminal.draw(|frame| view::draw(frame, &state))?;
        let Some(next) = news.recv().await else { return Ok(ExitOutcome::Finished { failed: 0 }) };
        match next {
            ViewEvent::ServerSnapshot(picture) => state.see(picture.map(|picture| *picture)),
            ViewEvent::Signal(signal) => return Ok(ExitOutcome::Signalled { signal }),
            ViewEvent::Done(said) => {
                state.message = Some(said);
                soon.notify_one();
            }
            ViewEvent::Terminal(Event::Key(key)) => match state.press(key) {
                Some(UserAction::Quit) => return Ok(ExitOutcome::Finished { failed: 0 }),
                Some(wish) => drop(tokio::spawn(grant(Arc::clone(&server), wish, tell.clone()))),
                None => {}
            },
            // Another size: it is drawn anew.
            ViewEvent::Terminal(_) => {}
        }
    }
}

/// Keys come from a thread that waits for them; it ends with the process.
fn read_keys(tell: mpsc::UnboundedSender<ViewEvent>) -> anyhow::Result<()> {
    let keys = thread::Builder::new().name("keylane-keys".into());
    keys.spawn(move || {
        while let Ok(event) = event::read() {
            if tell.send(ViewEvent::Terminal(event)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Asks again and again; sooner after something was done.
async fn look(
    server: Arc<ServerClient>,
    every: Duration,
    soon: Arc<Notify>,
    tell: mpsc::UnboundedSender<ViewEvent>,
) {
    loop {
        let _ = tokio::time::timeout(every, soon.notified()).await;
        let picture = ServerSnapshot::take(&server).await.map(Box::new);
        let picture = picture.map_err(|error| format!("{error:#}"));
        if tell.send(ViewEvent::ServerSnapshot(picture)).is_err() {
            return;
        }
    }
}

async fn grant(
    server: Arc<ServerClient>,
    wish: UserAction,
    tell: mpsc::UnboundedSender<ViewEvent>,
) {
    let (id, what, body): (_, _, Value) = match wish {
        UserAction::Pause(id) => (id, "pause", json!({})),
        UserAction::Resume(id) => (id, "resume", json!({})),
        UserAction::Cancel(id) => {
            (id, "cancel", json!({"mode": "graceful", "reason": "keylane top"}))
        }
        UserAction::Quit => return,
    };
    let said = match server.post(&["v1", "jobs", &id, what], &body).await {
        Ok(_) => format!("{what}: {id}"),
        Err(error) => format!("{error:#}"),
    };
    // The receiver is gone when the view has ended.
    let _ = tell.send(ViewEvent::Done(said));
}
