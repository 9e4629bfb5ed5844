//! No two files of a crate use each other, directly or through others: every crate can be read from
//! the bottom up.
//!
//! This reads text, not syntax. A name that a module only passes on (`pub use`) is used where it is
//! defined, so that a `mod.rs` that lists the face of a folder ties nothing together. Tests and
//! models are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn no_file_uses_itself_through_others() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut wrong = Vec::new();
    for folder in fs::read_dir(crates).unwrap() {
        let folder = folder.unwrap();
        let name = folder.file_name().into_string().unwrap();
        let modules = modules(&folder.path().join("src"));
        let cycles = cycles(&uses(&modules));
        wrong.extend(cycles.iter().map(|cycle| format!("{name}:\n  {}", cycle.join("\n  "))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Names from the root of a crate down to a module or an item.
type Names = Vec<String>;

struct Module {
    code: String,
    /// Names that `use` imports, with their paths.
    imports: BTreeMap<String, Names>,
    /// Modules whose names are all brought in.
    globs: Vec<Names>,
    /// Paths in code, and in `use` declarations that pass nothing on.
    uses: Vec<Names>,
}

/// All modules of a crate that have a file of their own.
fn modules(src: &Path) -> BTreeMap<Names, Module> {
    let mut found = BTreeMap::new();
    let mut folders = vec![src.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if stem.ends_with("tests") || stem.ends_with("models") || stem == "main_test" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let code = without_comments(&fs::read_to_string(&path).unwrap());
                found.insert(names(src, &path), Module::new(code));
            }
        }
    }
    let all: BTreeSet<_> = found.keys().cloned().collect();
    for (name, module) in &mut found {
        module.read(name, &all);
    }
    found
}

/// The path of a module whose file this is.
fn names(src: &Path, path: &Path) -> Names {
    let path: PathBuf = path.strip_prefix(src).unwrap().with_extension("");
    let mut names: Names = path.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
    if ["mod", "lib", "main"].contains(&&**names.last().unwrap()) {
        names.pop();
    }
    names
}

/// The text without comments, strings, and the tests at its end.
fn without_comments(text: &str) -> String {
    let lines =
        text.lines().take_while(|line| !(line.contains("mod tests") && line.ends_with('{')));
    let mut code = String::new();
    for line in lines {
        let parts = line.split("//").next().unwrap().split('"').step_by(2);
        code.extend(parts.chain(["\n"]));
    }
    code
}

impl Module {
    fn new(code: String) -> Self {
        Module { code, imports: BTreeMap::new(), globs: Vec::new(), uses: Vec::new() }
    }

    fn read(&mut self, name: &Names, all: &BTreeSet<Names>) {
        let tokens = tokens(&std::mem::take(&mut self.code));
        let (mut inline, mut at) = (Vec::new(), 0);
        while at < tokens.len() {
            if tokens[at] == "use" {
                let is_passed_on = at > 0 && [")", "pub"].contains(&&*tokens[at - 1]);
                let mut trees = Vec::new();
                at = tree(&tokens, at + 1, &mut Vec::new(), &mut trees);
                for (path, alias) in trees {
                    self.import(&absolute(name, path, all), alias, is_passed_on);
                }
            } else if is_head(&tokens, at) {
                let mut trees = Vec::new();
                at = tree(&tokens, at, &mut Vec::new(), &mut trees);
                inline.extend(trees.into_iter().map(|(path, _)| path));
            } else {
                at += 1;
            }
        }
        for path in inline {
            let path = match self.imports.get(&path[0]) {
                Some(import) => import.iter().chain(&path[1..]).cloned().collect(),
                None => absolute(name, path, all),
            };
            self.uses.push(path);
        }
    }

    fn import(&mut self, path: &Names, alias: String, is_passed_on: bool) {
        if path.is_empty() {
            return;
        }
        if path.last().is_some_and(|last| last == "*") {
            self.globs.push(path[..path.len() - 1].to_vec());
        } else {
            self.imports.insert(alias, path.clone());
        }
        if !is_passed_on {
            self.uses.push(path.clone());
        }
    }
}

/// Words, `::`, and single signs.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut is_word = false;
    for letter in code.chars() {
        let continues = letter.is_alphanumeric() || letter == '_';
        let last = tokens.last_mut();
        match last {
            Some(last) if continues && is_word => last.push(letter),
            Some(last) if letter == ':' && last == ":" => last.push(letter),
            _ if letter.is_whitespace() => {}
            _ => tokens.push(letter.into()),
        }
        is_word = continues;
    }
    tokens
}

/// Whether a path of at least two names begins here.
fn is_head(tokens: &[String], at: usize) -> bool {
    let begins = at == 0 || !["::", "."].contains(&&*tokens[at - 1]);
    begins && is_name(&tokens[at]) && tokens.get(at + 1).is_some_and(|next| next == "::")
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Reads a path, or a tree of them, and returns the place behind it.
fn tree(
    tokens: &[String],
    mut at: usize,
    prefix: &mut Names,
    found: &mut Vec<(Names, String)>,
) -> usize {
    let length = prefix.len();
    while let Some(token) = tokens.get(at) {
        if token == "{" {
            at += 1;
            while tokens[at] != "}" {
                at = tree(tokens, at, prefix, found);
                at += usize::from(tokens[at] == ",");
            }
            prefix.truncate(length);
            return at + 1;
        }
        if !is_name(token) && token != "*" {
            break;
        }
        prefix.push(token.clone());
        at += 1;
        if tokens.get(at).is_none_or(|next| next != "::") {
            break;
        }
        at += 1;
    }
    let mut alias = prefix.last().cloned().unwrap_or_default();
    if tokens.get(at).is_some_and(|next| next == "as") {
        alias.clone_from(&tokens[at + 1]);
        at += 2;
    }
    let mut path = prefix.clone();
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
        alias.clone_from(&path[path.len() - 1]);
    }
    if path.len() > 1 {
        found.push((path, alias));
    }
    prefix.truncate(length);
    at.max(1)
}

/// The path from the root of the crate; an empty one for a path into another crate.
fn absolute(module: &Names, path: Names, all: &BTreeSet<Names>) -> Names {
    let mut base = module.clone();
    let mut names = path.iter();
    match path[0].as_str() {
        "crate" => base.clear(),
        "self" => {}
        "super" => {
            for _ in path.iter().take_while(|name| *name == "super") {
                base.pop();
                names.next();
            }
            return base.into_iter().chain(names.cloned()).collect();
        }
        child => {
            base.push(child.to_owned());
            if !all.contains(&base) {
                return Vec::new();
            }
        }
    }
    names.next();
    base.into_iter().chain(names.cloned()).collect()
}

/// Which file uses which.
fn uses(modules: &BTreeMap<Names, Module>) -> BTreeMap<&Names, BTreeSet<&Names>> {
    let mut edges = BTreeMap::new();
    for (name, module) in modules {
        let targets = module.uses.iter().filter_map(|path| defined_in(modules, path, 0));
        edges.insert(name, targets.filter(|target| *target != name).collect());
    }
    edges
}

/// The module in which the thing with this path is defined.
fn defined_in<'a>(
    modules: &'a BTreeMap<Names, Module>,
    path: &[String],
    depth: u8,
) -> Option<&'a Names> {
    let length = (1..=path.len()).rev().find(|&length| modules.contains_key(&path[..length]))?;
    let (name, module) = modules.get_key_value(&path[..length])?;
    // A module alone is used through the paths that go on from it.
    let item = path.get(length)?;
    if depth < 8 {
        if let Some(import) = module.imports.get(item) {
            let import: Names = import.iter().chain(&path[length + 1..]).cloned().collect();
            return defined_in(modules, &import, depth + 1);
        }
        for glob in &module.globs {
            let inner: Names = glob.iter().chain(&path[length..]).cloned().collect();
            if let Some(found) = defined_in(modules, &inner, depth + 1) {
                return Some(found);
            }
        }
    }
    Some(name)
}

/// The sets of files that reach each other.
fn cycles(edges: &BTreeMap<&Names, BTreeSet<&Names>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<_, _> = edges.keys().map(|from| (*from, reach(edges, from))).collect();
    let mut seen = BTreeSet::new();
    let mut cycles = Vec::new();
    for (from, reached_from) in &reached {
        if !reached_from.contains(from) || seen.contains(from) {
            continue;
        }
        let cycle: Vec<_> = reached_from.iter().filter(|to| reached[**to].contains(from)).collect();
        seen.extend(cycle.iter().copied().copied());
        let line = |file: &&&Names| {
            let ties = edges[**file].iter().filter(|to| cycle.contains(to)).map(|to| to.join("::"));
            format!("{} -> {}", file.join("::"), ties.collect::<Vec<_>>().join(", "))
        };
        cycles.push(cycle.iter().map(line).collect());
    }
    cycles
}

fn reach<'a>(
    edges: &BTreeMap<&'a Names, BTreeSet<&'a Names>>,
    from: &Names,
) -> BTreeSet<&'a Names> {
    let mut found = BTreeSet::new();
    let mut next: Vec<_> = edges[from].iter().copied().collect();
    while let Some(file) = next.pop() {
        if found.insert(file) {
            next.extend(edges[file].iter().copied());
        }
    }
    found
}
