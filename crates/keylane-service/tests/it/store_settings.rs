//! Settings that operators have changed are those that were written, go along in exports and copies, and are
//! named if they are damaged.

use std::fs::File;
use std::io::BufReader;

use crate::store_support::{NOW, back_up, change_rows, damage_of, is_in_file, new_store, place};
use keylane_service::store::{Changes, LiveSetting, Store, StoreDamage};

fn set(store: &Store, name: &str, body: Option<&str>) {
    let mut changes = Changes::new();
    changes.setting(name, body.map(|body| body.as_bytes().to_vec()));
    store.submit(changes).wait().unwrap();
}

fn listed(store: &Store) -> Vec<Result<(String, String), StoreDamage>> {
    let text = |setting: LiveSetting| (setting.name, String::from_utf8(setting.body).unwrap());
    store.settings().unwrap().into_iter().map(|setting| setting.map(text)).collect()
}

fn of(all: &[(&str, &str)]) -> Vec<Result<(String, String), StoreDamage>> {
    all.iter().map(|(name, body)| Ok(((*name).to_owned(), (*body).to_owned()))).collect()
}

#[test]
fn a_setting_is_the_last_one_that_was_written() {
    let (folder, path) = place();
    let store = new_store(&path);
    set(&store, "b", Some("1"));
    set(&store, "a", Some("2"));
    set(&store, "b", Some("3"));
    set(&store, "c", Some("4"));
    set(&store, "c", None);
    set(&store, "never", None);
    let expected = of(&[("a", "2"), ("b", "3")]);
    assert_eq!(listed(&store), expected);
    drop(store);
    let store = new_store(&path);
    assert_eq!(listed(&store), expected);
    let (lines, copy) = (folder.path().join("lines"), folder.path().join("copy"));
    store.export_file(&lines).unwrap();
    back_up(&store, &path, &copy);
    assert_eq!(listed(&new_store(&copy)), expected);
    let (_other, other) = place();
    let imported = new_store(&other);
    imported.import(&mut BufReader::new(File::open(&lines).unwrap())).unwrap();
    assert_eq!(listed(&imported), expected);
}

#[test]
fn a_damaged_setting_is_named_and_no_other_is_lost() {
    let (folder, path) = place();
    let store = new_store(&path);
    set(&store, "a", Some("1"));
    set(&store, "b", Some("2"));
    drop(store);
    change_rows(&path, "UPDATE setting SET body = seal WHERE name = 'a'");
    let damage = || StoreDamage::Setting { name: "a".into() };
    assert_eq!(damage_of(&path), [damage()]);
    let store = new_store(&path);
    assert_eq!(listed(&store), [Err(damage()), Ok(("b".into(), "2".into()))]);
    assert!(
        store.export_file(folder.path().join("lines")).unwrap_err().to_string().contains("\"a\"")
    );
    drop(store);
    if !is_in_file() {
        return;
    }
    let new = folder.path().join("new");
    assert_eq!(Store::salvage(&path, &new, NOW).unwrap().losses, [damage()]);
    assert_eq!(listed(&new_store(&new)), of(&[("b", "2")]));
}
