//! The language of the documents: things are subjects, counts and bounds have numbers.

use regex::Regex;

use super::{all_pages, assert_none};

#[test]
fn pages_name_things_and_not_persons() {
    let words = r"(?i)\b(who|whoever|whom|nobody|somebody|anybody|everybody|so many|what (becomes|became|is|was))\b";
    let words = Regex::new(words).unwrap();
    let mut wrong = Vec::new();
    for page in all_pages() {
        // The pages inside of crates are for maintainers; those of the book are for all readers.
        if page.path.starts_with("crates/") {
            continue;
        }
        for (line, text) in page.words() {
            let found = words.find_iter(&text).map(|found| found.as_str());
            wrong.extend(found.map(|found| format!("{}:{line}: {found:?}", page.path)));
        }
    }
    assert_none(&wrong);
}
