//! The subtasks of a job that begins later, as bytes: it stands in no lane, and is only kept.

use super::NewSubtask;

/// For each subtask its number, its attempts, how many keys it has, and for each key its length and bytes;
/// all numbers as four bytes, the least first.
#[derive(Debug, Default)]
pub(super) struct Parked {
    bytes: Vec<u8>,
    /// How many there are.
    pub(super) count: u64,
}

impl Parked {
    pub(super) fn push<'k>(&mut self, subtask: NewSubtask<impl IntoIterator<Item = &'k [u8]>>) {
        self.count += 1;
        self.put(subtask.number);
        self.put(subtask.attempts_made);
        let count_at = self.bytes.len();
        self.put(0);
        let mut count = 0_u32;
        for key in subtask.keys {
            self.put(u32::try_from(key.len()).expect("a key is shorter than 4 GiB"));
            self.bytes.extend_from_slice(key);
            count += 1;
        }
        self.bytes[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
    }

    fn put(&mut self, number: u32) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = NewSubtask<Keys<'_>>> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let (number, attempts_made) = (number(&mut rest), number(&mut rest));
            let count = self::number(&mut rest);
            let keys = Keys { rest, count };
            for _ in 0..count {
                let len = self::number(&mut rest);
                bytes(&mut rest, len);
            }
            Some(NewSubtask { number, keys, attempts_made })
        })
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.iter().map(|subtask| subtask.number)
    }
}

/// The keys of a parked subtask.
pub(super) struct Keys<'a> {
    rest: &'a [u8],
    count: u32,
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.count = self.count.checked_sub(1)?;
        let len = number(&mut self.rest);
        Some(bytes(&mut self.rest, len))
    }
}

fn number(rest: &mut &[u8]) -> u32 {
    let (number, behind) = rest.split_first_chunk().expect("numbers were written whole");
    *rest = behind;
    u32::from_le_bytes(*number)
}

fn bytes<'a>(rest: &mut &'a [u8], len: u32) -> &'a [u8] {
    let (bytes, behind) = rest.split_at(len as usize);
    *rest = behind;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_parked_comes_back() {
        let all: [(u32, u32, &[&[u8]]); 4] =
            [(0, 0, &[]), (7, 2, &[b"a"]), (8, 0, &[b"", b"long enough", b"\xff"]), (9, 1, &[])];
        let mut parked = Parked::default();
        for (number, attempts_made, keys) in all {
            parked.push(NewSubtask { number, keys: keys.iter().copied(), attempts_made });
        }
        let back: Vec<_> = parked
            .iter()
            .map(|it| (it.number, it.attempts_made, it.keys.collect::<Vec<_>>()))
            .collect();
        assert_eq!(back, all.map(|(number, made, keys)| (number, made, keys.to_vec())));
        assert_eq!((parked.count, parked.numbers().collect::<Vec<_>>()), (4, vec![0, 7, 8, 9]));
    }
}
