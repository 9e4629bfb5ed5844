//! `letters:PATH`: dead letters of a file as the source, so that they are handled again.

use std::path::{Path, PathBuf};

use super::invalid_settings::{InvalidSettings, wrong};
use super::settings::{ConsumeSettings, OnFail};

/// Scheme of the source.
pub(super) const SCHEME: &str = "letters";

/// Plans the source. Returns the paths of the letters, and of the progress: beside the letters,
/// unless it has a place of its own.
pub(super) fn source(
    settings: &ConsumeSettings,
    path: &str,
) -> Result<(PathBuf, PathBuf), InvalidSettings> {
    if settings.to_the_end == Some(false) {
        return wrong(
            "to-the-end",
            "dead letters are handled to the end of their file; leave out --to-the-end",
        );
    }
    let dead_letters = settings.dead_letters.as_deref();
    let place = dead_letters.and_then(|place| place.strip_prefix("file:"));
    if place.is_some_and(|place| is_same(Path::new(place), Path::new(path))) {
        return wrong(
            "dead-letters",
            "the dead letters are the source; name another file, or leave out --dead-letters: a letter that \
             fails again stays where it is",
        );
    }
    let state = settings.state.clone();
    let state = state.unwrap_or_else(|| PathBuf::from(format!("{path}.redriven")));
    Ok((path.into(), state))
}

/// Returns whether two paths name one file.
fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// Default of `on-fail`: a letter that fails again holds the later ones of its key.
pub(super) fn default_on_fail(settings: &ConsumeSettings) -> OnFail {
    let source = settings.source.as_deref().and_then(|source| source.split_once(':'));
    match source {
        Some((SCHEME, _)) => OnFail::StopKey,
        _ => OnFail::Stop,
    }
}
