//! Bound on texts that users have chosen.

/// Cuts a text to `most` bytes; the cut is marked.
pub(super) fn cut_text(text: &str, most: usize) -> String {
    const CUT: &str = "…";
    match text.len() <= most {
        true => text.to_owned(),
        false => text[..text.floor_char_boundary(most - CUT.len())].to_owned() + CUT,
    }
}

#[cfg(test)]
mod tests {
    use super::cut_text;

    #[test]
    fn no_text_is_longer_than_its_bound() {
        for (text, most, cut_to) in
            [("abc", 3, "abc"), ("abcd", 3, "…"), ("aééé", 6, "aé…"), ("", 3, "")]
        {
            assert_eq!(cut_text(text, most), cut_to);
        }
    }
}
