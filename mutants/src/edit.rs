//! Puts drawn mutants into the texts of their files.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::find::{Edit, Mutant};

/// Returns the changed texts. The mutants have the numbers 1, 2, ... in their order.
pub(crate) fn apply(
    mut texts: BTreeMap<PathBuf, String>,
    mutants: &[Mutant],
) -> BTreeMap<PathBuf, String> {
    let start = |edit: &Edit| match edit {
        Edit::Replace { range, .. } => range.start,
        Edit::Return { at, .. } => *at,
    };
    let mut numbered: Vec<_> = (1..).zip(mutants).collect();
    // From the end of each file, so that the places before stay right.
    numbered.sort_by_key(|(_, mutant)| Reverse(start(&mutant.edit)));
    for (number, mutant) in numbered {
        let text = texts.get_mut(&mutant.file).expect("mutants are of these files");
        insert(text, number, &mutant.edit);
    }
    let changed: BTreeSet<_> = mutants.iter().map(|mutant| &mutant.file).collect();
    texts.retain(|file, _| changed.contains(file));
    texts
}

fn insert(text: &mut String, number: usize, edit: &Edit) {
    let switch = format!("if crate::__mutant({number})");
    match edit {
        Edit::Replace { range, replacement } => {
            let original = &text[range.clone()];
            let choice = format!("{switch} {{ {replacement} }} else {{ {original} }}");
            // An assignment is a statement, and has no value that could be part of an expression.
            let is_statement =
                ["+=", "-=", "|=", "&="].iter().any(|assigns| original.contains(assigns));
            text.replace_range(
                range.clone(),
                &if is_statement { choice } else { format!("({choice})") },
            );
        }
        Edit::Return { at, value } => {
            text.insert_str(*at, &format!(" {switch} {{ return {value}; }}"))
        }
    }
}
