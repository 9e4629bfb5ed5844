//! Parts of a path in a record, as GNU parallel's `{.}`, `{/}`, `{//}` and `{/.}` have them. The bytes
//! decide; no file is looked at.

/// Part of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathPart {
    /// `.`: the path without the extension of its file.
    WithoutExtension,
    /// `/`: the name of the file.
    FileName,
    /// `//`: the folder.
    Folder,
    /// `/.`: the name of the file without its extension.
    Stem,
}

impl PathPart {
    /// Splits `1/.` into `1` and the part that the end of the text stands for.
    pub(crate) fn split(name: &[u8]) -> Option<(&[u8], Self)> {
        let ends: [(&[u8], Self); 4] = [
            (b"/.", Self::Stem),
            (b"//", Self::Folder),
            (b"/", Self::FileName),
            (b".", Self::WithoutExtension),
        ];
        ends.into_iter().find_map(|(end, part)| Some((name.strip_suffix(end)?, part)))
    }

    pub(crate) fn of(self, path: &[u8]) -> &[u8] {
        match self {
            Self::WithoutExtension => without_extension(path),
            Self::FileName => file_name(path),
            Self::Folder => folder(path),
            Self::Stem => without_extension(file_name(path)),
        }
    }
}

fn file_name(path: &[u8]) -> &[u8] {
    memchr::memrchr(b'/', path).map_or(path, |last| &path[last + 1..])
}

fn without_extension(path: &[u8]) -> &[u8] {
    match memchr::memrchr2(b'.', b'/', path) {
        Some(last) if path[last] == b'.' => &path[..last],
        _ => path,
    }
}

/// As `dirname`: `.` for a path without a folder.
fn folder(path: &[u8]) -> &[u8] {
    let whole = without_slashes(path);
    match memchr::memrchr(b'/', whole) {
        Some(last) => match without_slashes(&whole[..last]) {
            b"" => b"/",
            folder => folder,
        },
        None if whole.is_empty() && !path.is_empty() => b"/",
        None => b".",
    }
}

fn without_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those of GNU parallel 20221122.
    #[test]
    fn each_part_is_that_of_gnu_parallel() {
        let rows = [
            ["a/b/c.txt", "a/b/c", "c.txt", "a/b", "c"],
            ["a.tar.gz", "a.tar", "a.tar.gz", ".", "a.tar"],
            [".bashrc", "", ".bashrc", ".", ""],
            ["a/.b/c", "a/.b/c", "c", "a/.b", "c"],
            ["/abs", "/abs", "abs", "/", "abs"],
            ["dir/", "dir/", "", ".", ""],
            ["dir//", "dir//", "", ".", ""],
            ["a.", "a", "a.", ".", "a"],
            ["a/b.c/d", "a/b.c/d", "d", "a/b.c", "d"],
            ["/", "/", "", "/", ""],
            ["//a", "//a", "a", "/", "a"],
            ["./x", "./x", "x", ".", "x"],
            ["a//b", "a//b", "b", "a", "b"],
            ["", "", "", ".", ""],
        ];
        for [path, without_extension, file_name, folder, stem] in rows {
            for (end, expected) in
                [(".", without_extension), ("/", file_name), ("//", folder), ("/.", stem)]
            {
                let (name, part) = PathPart::split(end.as_bytes()).unwrap();
                assert_eq!(name, b"");
                let found = String::from_utf8_lossy(part.of(path.as_bytes())).into_owned();
                assert_eq!(found, expected, "{{{end}}} of {path:?}");
            }
        }
        assert_eq!(PathPart::split(b"name/."), Some((&b"name"[..], PathPart::Stem)));
        assert_eq!(PathPart::split(b"name"), None);
    }
}
