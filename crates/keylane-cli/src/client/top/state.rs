//! State of the view and effects of its keys, as a plain state machine without terminal and server.

use keylane_service::wire::{Job, JobState};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::snapshot::ServerSnapshot;
use crate::client::render::plain;

/// State of the view.
#[derive(Debug, Default)]
pub(super) struct ViewState {
    pub(super) picture: Option<ServerSnapshot>,
    /// The one before, for rates.
    earlier: Option<ServerSnapshot>,
    /// Why there is no newer one.
    pub(super) error: Option<String>,
    /// Outcome of the last command.
    pub(super) message: Option<String>,
    /// The job that keys are about, by its id: when jobs change their places, it is still this one.
    selected: Option<String>,
    /// Only jobs whose id, name or kind contains this text.
    pub(super) filter: String,
    pub(super) asking: Prompt,
}

/// Prompt that the next keys answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Prompt {
    /// They are commands.
    #[default]
    Nothing,
    /// They are letters of the filter. Left by Enter or Escape.
    Filter,
    /// `y` cancels this job, all else doesn't.
    Cancel(String),
}

/// Action for the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UserAction {
    Quit,
    Pause(String),
    Resume(String),
    Cancel(String),
}

impl ViewState {
    /// There is a newer picture, or a reason why not.
    pub(super) fn see(&mut self, picture: Result<ServerSnapshot, String>) {
        match picture {
            Ok(picture) => {
                self.earlier = self.picture.replace(picture);
                self.error = None;
            }
            Err(error) => self.error = Some(error),
        }
    }

    /// How the server is, in two lines.
    pub(super) fn headline(&self) -> [String; 2] {
        match &self.picture {
            Some(picture) => picture.headline(self.earlier.as_ref()),
            None => ["asking".into(), String::new()],
        }
    }

    /// The jobs that the filter lets through.
    pub(super) fn jobs(&self) -> Vec<&Job> {
        let wanted = self.filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let jobs = self.picture.iter().flat_map(|picture| &picture.jobs);
        jobs.filter(|job| has(&job.id) || has(&job.kind) || job.name.as_deref().is_some_and(has))
            .collect()
    }

    /// Which of these is selected: the first, unless another was chosen and is still there.
    pub(super) fn selected(&self) -> Option<usize> {
        let jobs = self.jobs();
        let place = jobs.iter().position(|job| Some(&job.id) == self.selected.as_ref());
        place.or(if jobs.is_empty() { None } else { Some(0) })
    }

    fn select(&mut self, place: usize) {
        let jobs = self.jobs();
        let job = jobs.get(place.min(jobs.len().saturating_sub(1)));
        self.selected = job.map(|job| job.id.clone());
    }

    fn step(&mut self, forward: bool, by: usize) {
        let place = self.selected().unwrap_or(0);
        self.select(if forward { place + by } else { place.saturating_sub(by) });
    }

    /// A key was pressed.
    pub(super) fn press(&mut self, key: KeyEvent) -> Option<UserAction> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(UserAction::Quit);
        }
        self.message = None;
        match std::mem::take(&mut self.asking) {
            Prompt::Nothing => self.command(key.code),
            Prompt::Filter => {
                self.letter(key.code);
                None
            }
            Prompt::Cancel(id) => {
                (key.code == KeyCode::Char('y')).then_some(UserAction::Cancel(id))
            }
        }
    }

    fn command(&mut self, code: KeyCode) -> Option<UserAction> {
        const PAGE: usize = 10;
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Some(UserAction::Quit),
            KeyCode::Down | KeyCode::Char('j') => self.step(true, 1),
            KeyCode::Up | KeyCode::Char('k') => self.step(false, 1),
            KeyCode::PageDown => self.step(true, PAGE),
            KeyCode::PageUp => self.step(false, PAGE),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Char('/') => self.asking = Prompt::Filter,
            KeyCode::Char('p') => return self.pause(),
            KeyCode::Char('c') => {
                self.asking = self.chosen().map_or(Prompt::Nothing, Prompt::Cancel)
            }
            _ => {}
        }
        None
    }

    fn letter(&mut self, code: KeyCode) {
        self.asking = Prompt::Filter;
        match code {
            KeyCode::Enter => self.asking = Prompt::Nothing,
            KeyCode::Esc => {
                self.filter.clear();
                self.asking = Prompt::Nothing;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
    }

    fn chosen(&self) -> Option<String> {
        self.selected().map(|place| self.jobs()[place].id.clone())
    }

    /// A paused job goes on, another is paused.
    fn pause(&self) -> Option<UserAction> {
        let job = self.jobs()[self.selected()?];
        let id = job.id.clone();
        Some(if job.state == JobState::Paused {
            UserAction::Resume(id)
        } else {
            UserAction::Pause(id)
        })
    }

    /// Text of the last line.
    pub(super) fn prompt(&self) -> String {
        match &self.asking {
            Prompt::Filter => format!("filter: {}_", plain(&self.filter)),
            Prompt::Cancel(id) => {
                format!("cancel {}? what runs may come to its end; y, or any other key", plain(id))
            }
            Prompt::Nothing => {
                let commands = "q quit  ↑↓ select  p pause or resume  c cancel  / filter";
                let said = self.error.as_ref().or(self.message.as_ref());
                match (said, self.filter.is_empty()) {
                    (Some(said), _) => plain(said).into_owned(),
                    (None, true) => commands.to_owned(),
                    (None, false) => format!("{commands}  (filter: {})", plain(&self.filter)),
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::snapshot::tests::picture;
    use super::*;
    use crate::client::render::tests::job;

    fn id(last: char) -> String {
        format!("job_0199aaaaaaaa700080000000000000{last}0")
    }

    fn named(last: char, state: &str, progress: f64) -> Job {
        let with = serde_json::json!({"id": id(last), "state": state, "progress": progress, "name": format!("n{last}")});
        job(&with.to_string())
    }

    pub(in crate::client::top) fn state() -> ViewState {
        let mut state = ViewState::default();
        let jobs =
            vec![named('1', "running", 0.9), named('2', "running", 0.5), named('3', "paused", 0.1)];
        state.see(Ok(picture(jobs)));
        state
    }

    fn press(state: &mut ViewState, code: KeyCode) -> Option<UserAction> {
        state.press(KeyEvent::from(code))
    }

    fn write(state: &mut ViewState, text: &str) {
        for letter in text.chars() {
            assert_eq!(press(state, KeyCode::Char(letter)), None);
        }
    }

    #[test]
    fn a_job_that_changes_its_place_stays_selected() {
        let mut state = state();
        assert_eq!(state.selected(), Some(0));
        press(&mut state, KeyCode::Down);
        assert_eq!(state.selected(), Some(1));
        // The second overtakes the first, between the look and the key.
        state.see(Ok(picture(vec![named('1', "running", 0.2), named('2', "running", 0.5)])));
        assert_eq!(state.selected(), Some(0));
        assert_eq!(press(&mut state, KeyCode::Char('p')), Some(UserAction::Pause(id('2'))));
    }

    #[test]
    fn a_cancelled_job_is_one_that_was_asked_about() {
        let mut state = state();
        assert_eq!(press(&mut state, KeyCode::Char('c')), None);
        assert!(state.prompt().starts_with(&format!("cancel {}?", id('1'))));
        assert_eq!(press(&mut state, KeyCode::Enter), None);
        assert_eq!(press(&mut state, KeyCode::Char('y')), None);
        press(&mut state, KeyCode::Char('c'));
        // It is over meanwhile, and another has its place.
        state.see(Ok(picture(vec![named('2', "running", 0.5)])));
        assert_eq!(press(&mut state, KeyCode::Char('y')), Some(UserAction::Cancel(id('1'))));
    }

    #[test]
    fn a_paused_job_is_resumed() {
        let mut state = state();
        press(&mut state, KeyCode::End);
        assert_eq!(press(&mut state, KeyCode::Char('p')), Some(UserAction::Resume(id('3'))));
    }

    #[test]
    fn letters_of_the_filter_are_no_commands() {
        let mut state = state();
        write(&mut state, "/N2qpc");
        assert_eq!(state.jobs().len(), 0);
        assert_eq!(state.selected(), None);
        for _ in 0..3 {
            press(&mut state, KeyCode::Backspace);
        }
        press(&mut state, KeyCode::Enter);
        assert_eq!(state.jobs().iter().map(|job| &job.id).collect::<Vec<_>>(), [&id('2')]);
        assert_eq!(press(&mut state, KeyCode::Char('p')), Some(UserAction::Pause(id('2'))));
        write(&mut state, "/x");
        press(&mut state, KeyCode::Esc);
        assert_eq!(state.jobs().len(), 3);
        assert_eq!(press(&mut state, KeyCode::Char('q')), Some(UserAction::Quit));
    }

    #[test]
    fn an_empty_server_has_nothing_to_steer() {
        let mut state = ViewState::default();
        for code in
            [KeyCode::Down, KeyCode::Up, KeyCode::End, KeyCode::Char('p'), KeyCode::Char('c')]
        {
            assert_eq!(press(&mut state, code), None);
        }
        assert_eq!(state.asking, Prompt::Nothing);
        assert_eq!(state.headline()[0], "asking");
    }

    #[test]
    fn control_c_ends_it_whatever_is_asked() {
        let mut state = state();
        press(&mut state, KeyCode::Char('/'));
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.press(key), Some(UserAction::Quit));
    }

    #[test]
    fn a_server_that_does_not_answer_leaves_the_last_picture() {
        let mut state = state();
        state.see(Err("it was not reached\x1b[2J".into()));
        assert_eq!(state.jobs().len(), 3);
        assert_eq!(state.prompt(), "it was not reached\\u{1b}[2J");
        state.see(Ok(picture(vec![])));
        assert!(state.prompt().starts_with("q quit"));
    }
}
