//! Puts mutants into the sources of a copied checkout, each behind a switch, so that one build has them all.
//!
//! `keylane-mutants ROOT SEED COUNT TABLE WITHOUT DIR...` draws `COUNT` mutants of the files in `DIR...` below `ROOT`, except those
//! whose names are lines of the file `WITHOUT`, changes these files, and writes the numbers and names of the mutants to `TABLE`.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

mod draw;
mod edit;
mod find;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [root, seed, count, table, without, folders @ ..] = &args[..] else {
        return Err("usage: keylane-mutants ROOT SEED COUNT TABLE WITHOUT DIR...".into());
    };
    let (root, without) = (Path::new(root), fs::read_to_string(without)?);
    let without: BTreeSet<&str> = without.lines().collect();
    let mut files = Vec::new();
    for folder in folders {
        source_files(&root.join(folder), &mut files)?;
    }
    let (mut texts, mut all) = (BTreeMap::new(), Vec::new());
    for file in files {
        let text = fs::read_to_string(&file)?;
        let name = file.strip_prefix(root)?.to_owned();
        all.extend(
            find::mutants(&name, &text).map_err(|why| format!("{}: {why}", file.display()))?,
        );
        texts.insert(name, text);
    }
    let total = all.len();
    let drawn =
        draw::draw(all, seed.parse()?, count.parse()?, |mutant| !without.contains(&*mutant.name()));
    let names =
        drawn.iter().enumerate().map(|(at, mutant)| format!("{}\t{}\n", at + 1, mutant.name()));
    fs::write(table, names.collect::<String>())?;
    eprintln!("{} of {total} mutants", drawn.len());
    for (file, text) in edit::apply(texts, &drawn) {
        fs::write(root.join(file), text)?;
    }
    Ok(())
}

/// Adds the files of a folder that are no tests, models or simulations, in the order of their names.
fn source_files(path: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_file() {
        found.push(path.to_owned());
        return Ok(());
    }
    let mut entries = fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let is_proof = ["test", "models", "fuzz", "simulat", "schedules"]
            .iter()
            .any(|part| name.contains(part));
        if !is_proof && (path.is_dir() || name.ends_with(".rs")) {
            source_files(&path, found)?;
        }
    }
    Ok(())
}
