//! The log of what operators have done, in the store: an entry is there with what it tells of, in its place, as it
//! was written, and goes when it is the oldest.

use crate::store_support::{
    NOW, accepted, back_up, change_rows, is_in_file, new_store, open, place,
};
use keylane_service::Key;
use keylane_service::store::{
    AuditFilter, AuditPage, AuditRecord, AuditRetention, Changes, ImportError, KeyBlockReason,
    KeyRecord, Store, StoreDamage, WriteError,
};

fn entry(number: u64) -> AuditRecord {
    AuditRecord {
        at_ms: NOW + number,
        who: format!("who{}", number % 3),
        what: format!("what{}", number % 2),
        job: number.is_multiple_of(5).then(|| "job_1".to_owned()),
        body: format!("{number}").into_bytes(),
    }
}

fn put(store: &Store, numbers: impl IntoIterator<Item = u64>) {
    let mut changes = Changes::new();
    numbers.into_iter().for_each(|number| changes.audit(entry(number)));
    store.submit(changes).wait().unwrap();
}

fn numbers(page: &AuditPage) -> Vec<u64> {
    page.rows.iter().map(|row| row.number).collect()
}

/// The numbers of all that there are, and that each is what was written.
fn all(store: &Store, filter: &AuditFilter, limit: usize) -> Vec<u64> {
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = store.audit(filter, before, limit).unwrap();
        assert!(page.rows.len() <= limit);
        for row in &page.rows {
            assert!(row.is_whole);
            assert_eq!(row.record, entry(row.number));
        }
        found.extend(numbers(&page));
        assert!(page.next.is_none() || page.next < before || before.is_none());
        before = page.next;
        if before.is_none() {
            return found;
        }
    }
}

fn forget(store: &Store, since_ms: u64, most: u64) {
    let mut changes = Changes::new();
    changes.forget_audit(AuditRetention { since_ms, most });
    store.submit(changes).wait().unwrap();
}

#[test]
fn entries_are_listed_by_pages_the_newest_first() {
    let (_folder, path) = place();
    let store = new_store(&path);
    assert_eq!(store.audit(&AuditFilter::default(), None, 9).unwrap(), AuditPage::default());
    // More than a page looks at.
    const LAST: u64 = 25_000;
    put(&store, 1..=LAST);
    let everything: Vec<u64> = (1..=LAST).rev().collect();
    for limit in [999, 25_000, 30_000] {
        assert_eq!(all(&store, &AuditFilter::default(), limit), everything);
    }
    let wanted = |filter: &AuditFilter, is_wanted: &dyn Fn(u64) -> bool| {
        let expected: Vec<u64> = (1..=LAST).rev().filter(|number| is_wanted(*number)).collect();
        assert_eq!(all(&store, filter, 700), expected, "{filter:?}");
    };
    let (who, what, job) = (Some("who1".into()), Some("what0".into()), Some("job_1".into()));
    wanted(&AuditFilter { who: who.clone(), ..Default::default() }, &|n| n % 3 == 1);
    wanted(&AuditFilter { what: what.clone(), ..Default::default() }, &|n| n % 2 == 0);
    wanted(&AuditFilter { job: job.clone(), ..Default::default() }, &|n| n % 5 == 0);
    let since_ms = Some(NOW + 24_990);
    wanted(&AuditFilter { since_ms, ..Default::default() }, &|n| n >= 24_990);
    wanted(&AuditFilter { who, what, job, since_ms: Some(NOW + 9) }, &|n| n >= 9 && n % 30 == 10);
    wanted(&AuditFilter { who: Some("nobody".into()), ..Default::default() }, &|_| false);
    // A number without an entry, as a client may send it.
    assert_eq!(numbers(&store.audit(&AuditFilter::default(), Some(3), 9).unwrap()), [2, 1]);
    let beyond = store.audit(&AuditFilter::default(), Some(u64::MAX), 1).unwrap();
    assert_eq!((numbers(&beyond), beyond.next), (vec![LAST], Some(LAST)));
    assert_eq!(store.audit(&AuditFilter::default(), Some(0), 9).unwrap(), AuditPage::default());
}

#[test]
fn an_entry_is_there_with_what_it_tells_of_or_not_at_all() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let (live, key) = (accepted(&store, 1), Key::new("a"));
    let record = KeyRecord { state: KeyBlockReason::Paused, since_ms: NOW, reason: String::new() };
    let mut refused = Changes::new();
    refused.audit(entry(1));
    refused.key(key.clone(), Some(record.clone()));
    refused.purge(live);
    let error = store.submit(refused).wait().unwrap_err();
    assert!(matches!(error, WriteError::NotEnded { .. }), "{error}");
    assert!(all(&store, &AuditFilter::default(), 9).is_empty());
    assert_eq!(store.keys().unwrap(), []);
    let mut taken = Changes::new();
    taken.key(key.clone(), Some(record.clone()));
    taken.audit(entry(1));
    store.submit(taken).wait().unwrap();
    drop(store);
    let (store, _) = open(&path);
    assert_eq!(all(&store, &AuditFilter::default(), 9), [1], "and the refused one has no number");
    assert_eq!(store.keys().unwrap(), [(key, record)]);
}

#[test]
fn only_the_oldest_go_and_no_number_is_given_twice() {
    let (_folder, path) = place();
    let store = new_store(&path);
    put(&store, 1..=10);
    let old = |since_ms, most| store.has_old_audit(AuditRetention { since_ms, most }).unwrap();
    assert!(!old(NOW + 1, 10) && old(NOW + 2, 10) && old(0, 9));
    forget(&store, NOW + 4, 100);
    assert_eq!(all(&store, &AuditFilter::default(), 9), [10, 9, 8, 7, 6, 5, 4]);
    forget(&store, 0, 2);
    assert_eq!(all(&store, &AuditFilter::default(), 9), [10, 9]);
    forget(&store, 0, 2);
    assert_eq!(all(&store, &AuditFilter::default(), 9), [10, 9], "what is to be kept is");
    assert_eq!(store.check().unwrap().damage, []);
    forget(&store, u64::MAX, 2);
    assert!(all(&store, &AuditFilter::default(), 9).is_empty());
    assert!(!old(u64::MAX, 0), "there is none");
    drop(store);
    let (store, _) = open(&path);
    put(&store, 11..=12);
    assert_eq!(all(&store, &AuditFilter::default(), 9), [12, 11]);
    // The clock was put back: what is older by it stays behind what is newer.
    let mut changes = Changes::new();
    changes.audit(AuditRecord { at_ms: 5, ..entry(13) });
    store.submit(changes).wait().unwrap();
    forget(&store, NOW, 100);
    let page = store.audit(&AuditFilter::default(), None, 9).unwrap();
    assert_eq!(numbers(&page), [13, 12, 11]);
    assert_eq!(store.check().unwrap().damage, []);
}

/// However many are too old, one transaction removes some of them, so that others come between.
#[test]
fn many_go_bit_by_bit() {
    let (_folder, path) = place();
    let store = new_store(&path);
    put(&store, 1..=5000);
    let kept = AuditRetention { since_ms: u64::MAX, most: 1 };
    let mut rounds = 0;
    while store.has_old_audit(kept).unwrap() {
        forget(&store, u64::MAX, 1);
        rounds += 1;
    }
    assert!(all(&store, &AuditFilter::default(), 9).is_empty());
    assert!((2..50).contains(&rounds), "{rounds}");
}

#[test]
fn one_that_is_not_what_was_written_is_named_and_shown_as_such() {
    for change in [
        "UPDATE audit SET who = 'who2' WHERE number = 4",
        "UPDATE audit SET what = 'what1' WHERE number = 4",
        "UPDATE audit SET at_ms = at_ms + 1 WHERE number = 4",
        "UPDATE audit SET job = '' WHERE number = 4",
        "UPDATE audit SET body = seal WHERE number = 4",
        "UPDATE audit SET who = 'who', what = '1' || what WHERE number = 4",
        match is_in_file() {
            true => "UPDATE audit SET who = CAST(x'ff' AS TEXT) WHERE number = 4",
            false => r"UPDATE audit SET who = '\xff' WHERE number = 4",
        },
    ] {
        let (_folder, path) = place();
        let store = new_store(&path);
        put(&store, 1..=5);
        drop(store);
        change_rows(&path, change);
        let (store, _) = open(&path);
        let report = store.check().unwrap();
        assert_eq!(report.damage, [StoreDamage::Audit { number: 4 }], "{change}");
        let page = store.audit(&AuditFilter::default(), None, 9).unwrap();
        let damaged = page.rows.iter().filter(|row| !row.is_whole).map(|row| row.number);
        assert_eq!(damaged.collect::<Vec<_>>(), [4], "{change}");
        assert!(store.export(&mut Vec::new()).is_err(), "{change}");
    }
    let (_folder, path) = place();
    let store = new_store(&path);
    put(&store, 1..=5);
    drop(store);
    let sql = "DELETE FROM audit WHERE number IN (2, 3)";
    change_rows(&path, sql);
    let (store, _) = open(&path);
    assert_eq!(store.check().unwrap().damage, [StoreDamage::MissingAudit { from: 2, until: 4 }]);
}

#[test]
fn copies_have_them_and_go_on_behind_them() {
    let (folder, path) = place();
    let store = new_store(&path);
    accepted(&store, 2);
    put(&store, 1..=3000);
    forget(&store, NOW + 6, 9999);
    let expected: Vec<u64> = (6..=3000).rev().collect();
    let copy = folder.path().join("copy");
    back_up(&store, &path, &copy);
    let (backup, _) = open(&copy);
    assert_eq!(all(&backup, &AuditFilter::default(), 1000), expected);
    let mut export = Vec::new();
    store.export(&mut export).unwrap();
    let (_other, other) = place();
    let imported = new_store(&other);
    imported.import(&mut &export[..]).unwrap();
    let mut again = Vec::new();
    imported.export(&mut again).unwrap();
    // But for the number of the opening, in the first line.
    let lines = |export: &[u8]| {
        export.split(|byte| *byte == b'\n').skip(1).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    assert!(lines(&again) == lines(&export));
    for copy in [backup, imported] {
        put(&copy, [3001]);
        assert_eq!(all(&copy, &AuditFilter::default(), 1000)[..2], [3001, 3000]);
        assert_eq!(copy.check().unwrap().damage, []);
    }
    let text = String::from_utf8(export).unwrap();
    for changed in [
        text.replacen("\"number\":9,", "\"number\":8,", 1),
        text.replacen("\"number\":6,", "\"number\":0,", 1),
        text.lines()
            .filter(|line| !line.contains("\"number\":7,"))
            .fold(String::new(), |all, line| all + line + "\n"),
        text.replace("{\"audit\":{\"number\":", "{\"audit\":{\"number\":900719925474099"),
    ] {
        let (_folder, path) = place();
        let error = new_store(&path).import(&mut changed.as_bytes()).unwrap_err();
        assert!(matches!(error, ImportError::Line { .. }), "{error}");
    }
    // One that has nothing but a log is not empty.
    let (_folder, path) = place();
    let store = new_store(&path);
    put(&store, [1]);
    let error = store.import(&mut text.as_bytes()).unwrap_err();
    assert!(matches!(error, ImportError::NotEmpty), "{error}");
}
