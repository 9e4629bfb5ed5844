//! List that is nearly always empty or of length one, and allocates only beyond that.

/// Elements in order of insertion.
#[derive(Debug)]
pub(crate) struct OneOrMany<T> {
    /// First element. Absent only if the list is empty.
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> OneOrMany<T> {
    pub(crate) fn new() -> Self {
        OneOrMany { first: None, rest: Vec::new() }
    }

    pub(crate) fn push(&mut self, one: T) {
        match self.first {
            None => self.first = Some(one),
            Some(_) => self.rest.push(one),
        }
    }

    pub(crate) fn append(&mut self, others: OneOrMany<T>) {
        self.rest.reserve(others.rest.len());
        others.into_iter().for_each(|one| self.push(one));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }
}

impl<T> IntoIterator for OneOrMany<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest)
    }
}
