//! Words as a shell reads them, quoted as `parallel --dry-run` quotes them.

/// Appends words with blanks between them and quotes where a shell needs them.
pub(crate) fn append(words: &[Vec<u8>], text: &mut Vec<u8>) {
    for (place, word) in words.iter().enumerate() {
        if place > 0 {
            text.push(b' ');
        }
        append_word(word, text);
    }
}

fn append_word(word: &[u8], text: &mut Vec<u8>) {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.+/".contains(byte);
    if word.is_empty() {
        text.extend(b"''");
    } else if word.iter().all(is_plain) {
        text.extend(word);
    } else {
        let count = word.split(|byte| *byte == b'\'').count();
        for (place, part) in word.split(|byte| *byte == b'\'').enumerate() {
            if place > 0 {
                text.extend(b"\"'\"");
            }
            // A quote at an end of the word has nothing beside it to quote.
            if !part.is_empty() || (place > 0 && place + 1 < count) {
                text.push(b'\'');
                text.extend(part);
                text.push(b'\'');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(words: &[&str]) -> String {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let mut text = Vec::new();
        append(&words, &mut text);
        String::from_utf8(text).unwrap()
    }

    /// Output of `parallel --dry-run` 20221122 for the same words.
    #[test]
    fn words_are_quoted_as_gnu_parallel_quotes_them() {
        for (word, expected) in [
            ("a-b_c.d+e/F9", "a-b_c.d+e/F9"),
            ("a b", "'a b'"),
            ("it's", r#"'it'"'"'s'"#),
            ("'", r#""'""#),
            ("'a''", r#""'"'a'"'"''"'""#),
            (r#"x"y"#, r#"'x"y'"#),
            ("", "''"),
            ("a=b,c:d", "'a=b,c:d'"),
            ("é$x~", "'é$x~'"),
            ("a\nb", "'a\nb'"),
        ] {
            assert_eq!(quoted(&[word]), expected);
        }
        assert_eq!(quoted(&["echo", "-n", "a b"]), "echo -n 'a b'");
        assert_eq!(quoted(&[]), "");
    }

    #[test]
    fn a_shell_reads_the_same_words() {
        let words = ["printf", "%s|", "it's", "''", "$HOME `x`", "a\nb\\", "", "!#*?[~"];
        let output =
            std::process::Command::new("sh").arg("-c").arg(quoted(&words)).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}|", words[2..].join("|")));
    }
}
