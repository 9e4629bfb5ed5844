//! What a task asks of the order: no key, one, many, each exclusive or shared, or all of them; and what
//! its descriptor says.

use super::{Compatibility, Descriptor};

/// How a task uses a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Alone: conflicts with every other task of the key.
    Exclusive,
    /// Reading: conflicts with all of the key's tasks but those that share it, too.
    Shared,
    /// Beside at most so many less one that do the same: conflicts with all others of the key. Only rollups
    /// have it, so that nothing is asked about it where there is one key.
    Limited(u16),
}

impl Mode {
    pub(crate) fn is_limited(self) -> bool {
        matches!(self, Mode::Limited(_))
    }

    /// The mode of a task that uses a key in both ways.
    pub(crate) fn and(self, other: Mode) -> Mode {
        match (self, other) {
            (Mode::Shared, Mode::Shared) => Mode::Shared,
            (Mode::Limited(one), Mode::Limited(two)) => Mode::Limited(one.min(two)),
            _ => Mode::Exclusive,
        }
    }
}

/// One key of a task.
#[derive(Clone, Debug)]
pub(crate) struct KeyClaim<K> {
    pub(crate) key: K,
    pub(crate) mode: Mode,
}

impl<K> KeyClaim<K> {
    #[track_caller]
    fn limited(key: K, most: u16) -> Self {
        assert!(most != 0, "a key that no task may use");
        KeyClaim { key, mode: Mode::Limited(most) }
    }
}

/// The keys of a task, which say what it must stay in order with.
///
/// Two tasks conflict if they have a key in common, unless both only share it or both
/// [limit](Claims::limited) it, if one of them is a barrier, or if one of their
/// [descriptors](Compatibility) says so. A task with one exclusive key needs no `Claims`: the key itself will do, as will an
/// array or a vector of keys.
///
/// ```
/// use keylane::Claims;
///
/// let transfer = Claims::exclusive("alice").and_exclusive("bob");
/// let report = Claims::shared("alice").and_shared("bob");
/// let background = Claims::<&str>::none();
/// let checkpoint = Claims::<&str>::barrier();
/// # let _ = (transfer, report, background, checkpoint);
/// ```
#[derive(Clone, Debug)]
pub struct Claims<K>(pub(crate) Repr<K>);

/// The shapes of [`Claims`], of which the first two are by far the most frequent.
#[derive(Clone, Debug)]
pub(crate) enum Repr<K> {
    One(KeyClaim<K>),
    None,
    Many(Vec<KeyClaim<K>>),
    Barrier,
    /// One of the others, with its cost. Apart, so that those without one are no larger.
    Weighed(Box<Weighed<K>>),
    /// A descriptor, and one key or many, if there are any.
    Described(Descriptor, Option<Box<Repr<K>>>),
}

/// Claims with a cost.
#[derive(Clone, Debug)]
pub(crate) struct Weighed<K> {
    /// Never weighed themselves.
    pub(crate) claims: Repr<K>,
    pub(crate) bytes: usize,
}

impl<K> Claims<K> {
    /// No key: the task is in order with nothing but barriers.
    pub fn none() -> Self {
        Claims(Repr::None)
    }

    /// One key, used alone.
    pub fn exclusive(key: K) -> Self {
        Claims(Repr::One(KeyClaim { key, mode: Mode::Exclusive }))
    }

    /// One key, used together with other tasks that share it.
    pub fn shared(key: K) -> Self {
        Claims(Repr::One(KeyClaim { key, mode: Mode::Shared }))
    }

    /// One key, used by at most so many tasks at once: for what needs a bound and no order, such as the
    /// requests to one host.
    ///
    /// Up to `most` of such tasks of the key run beside each other. They get the key in the order in
    /// which they were submitted. With tasks that use the key alone, or share it, they conflict as if
    /// each used it alone. Tasks that differ in `most` run beside each other as the one among them that
    /// wants the least.
    ///
    /// ```
    /// use keylane::{Claims, Pool};
    ///
    /// let pool = Pool::<&str>::builder().workers(8).build()?;
    /// for page in 0..100 {
    ///     // At most two at once, whatever else the pool does.
    ///     pool.execute(Claims::limited("example.org", 2), move || _ = page)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// It costs an allocation or two more than a task that uses its key alone. Tasks that wait inside
    /// for others that limit the same key may hang, if as many wait as may run: that is not
    /// [noticed](crate::Handle::wait), unless `most` is one.
    ///
    /// # Panics
    ///
    /// If `most` is zero.
    #[track_caller]
    pub fn limited(key: K, most: u16) -> Self {
        Claims(Repr::Many(vec![KeyClaim::limited(key, most)]))
    }

    /// A task that conflicts with every other task of the pool.
    pub fn barrier() -> Self {
        Claims(Repr::Barrier)
    }

    /// No key, but a value of your own type, which says what the task conflicts with: see
    /// [`Compatibility`].
    pub fn described(descriptor: impl Compatibility) -> Self {
        Claims::none().with_descriptor(descriptor)
    }

    /// Adds a value of your own type, which says what the task conflicts with beyond its keys: see
    /// [`Compatibility`]. It takes the place of an earlier one. A barrier stays a barrier.
    ///
    /// ```
    /// # use keylane::Compatibility;
    /// use keylane::Claims;
    ///
    /// # struct Span { from: u64, to: u64 }
    /// # impl Compatibility for Span {
    /// #     fn is_compatible(&self, other: &Self) -> bool {
    /// #         self.to <= other.from || other.to <= self.from
    /// #     }
    /// # }
    /// let write = Claims::exclusive("file").with_descriptor(Span { from: 0, to: 100 });
    /// # drop(write);
    /// ```
    pub fn with_descriptor(self, descriptor: impl Compatibility) -> Self {
        self.describe(Descriptor::new(descriptor))
    }

    pub(crate) fn describe(self, descriptor: Descriptor) -> Self {
        let claims = match self.0 {
            Repr::Barrier => return Claims::barrier(),
            Repr::Weighed(weighed) => {
                let Weighed { claims, bytes } = *weighed;
                return Claims(claims).describe(descriptor).with_cost(bytes);
            }
            Repr::Described(_, claims) => return Claims(Repr::Described(descriptor, claims)),
            Repr::None => None,
            claims => Some(Box::new(claims)),
        };
        Claims(Repr::Described(descriptor, claims))
    }

    /// Adds a key used alone. A barrier stays a barrier.
    pub fn and_exclusive(self, key: K) -> Self {
        self.and(KeyClaim { key, mode: Mode::Exclusive })
    }

    /// Adds a key that is shared. A barrier stays a barrier.
    pub fn and_shared(self, key: K) -> Self {
        self.and(KeyClaim { key, mode: Mode::Shared })
    }

    /// Adds a key that is [limited](Self::limited). A barrier stays a barrier.
    ///
    /// # Panics
    ///
    /// If `most` is zero.
    #[track_caller]
    pub fn and_limited(self, key: K, most: u16) -> Self {
        self.and(KeyClaim::limited(key, most))
    }

    /// Says what the task weighs, in bytes, where the pool has a bound on that: see
    /// [`Builder::capacity_bytes`](crate::Builder::capacity_bytes). Without such a bound it means
    /// nothing, and a task of which it is not said weighs nothing.
    ///
    /// ```
    /// use keylane::{Claims, Pool};
    ///
    /// let pool = Pool::<u32>::builder().capacity_bytes(1 << 20).build()?;
    /// let page = vec![0_u8; 4096];
    /// pool.execute(Claims::exclusive(7).with_cost(page.len()), move || drop(page))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_cost(self, bytes: usize) -> Self {
        let claims = match self.0 {
            Repr::Weighed(weighed) => weighed.claims,
            claims => claims,
        };
        Claims(Repr::Weighed(Box::new(Weighed { claims, bytes })))
    }

    /// What was said with [`with_cost`](Self::with_cost), or 0.
    pub fn cost(&self) -> usize {
        match &self.0 {
            Repr::Weighed(weighed) => weighed.bytes,
            _ => 0,
        }
    }

    /// The key of claims that have just one.
    pub(crate) fn into_only_key(self) -> K {
        match self.0 {
            Repr::One(claim) => claim.key,
            _ => unreachable!("the claims have one key"),
        }
    }

    fn and(self, claim: KeyClaim<K>) -> Self {
        Claims(match self.0 {
            Repr::None if claim.mode.is_limited() => Repr::Many(vec![claim]),
            Repr::None => Repr::One(claim),
            Repr::One(first) => Repr::Many(vec![first, claim]),
            Repr::Many(mut claims) => {
                claims.push(claim);
                Repr::Many(claims)
            }
            Repr::Barrier => Repr::Barrier,
            Repr::Weighed(weighed) => {
                let Weighed { claims, bytes } = *weighed;
                return Claims(claims).and(claim).with_cost(bytes);
            }
            Repr::Described(descriptor, claims) => {
                let claims = claims.map_or(Repr::None, |claims| *claims);
                return Claims(claims).and(claim).describe(descriptor);
            }
        })
    }
}

impl<K> Repr<K> {
    /// The claims without their cost and their descriptor.
    pub(crate) fn bare(&self) -> &Repr<K> {
        match self {
            Repr::Weighed(weighed) => weighed.claims.bare(),
            Repr::Described(_, claims) => claims.as_deref().unwrap_or(&Repr::None),
            claims => claims,
        }
    }
}

/// What can stand for the keys of a task: one key, an array or a vector of keys (all exclusive), or
/// [`Claims`].
///
/// A key that is listed twice counts once. It is exclusive, unless all its listings are shared, or all limited:
/// then the least of these counts.
pub trait IntoClaims<K> {
    /// The keys, each with its mode.
    fn into_claims(self) -> Claims<K>;
}

impl<K> IntoClaims<K> for K {
    #[inline]
    fn into_claims(self) -> Claims<K> {
        Claims::exclusive(self)
    }
}

impl<K> IntoClaims<K> for Claims<K> {
    #[inline]
    fn into_claims(self) -> Claims<K> {
        self
    }
}

impl<K> IntoClaims<K> for Vec<K> {
    fn into_claims(self) -> Claims<K> {
        self.into_iter().fold(Claims::none(), Claims::and_exclusive)
    }
}

impl<K, const N: usize> IntoClaims<K> for [K; N] {
    fn into_claims(self) -> Claims<K> {
        Claims(Repr::Many(
            self.into_iter().map(|key| KeyClaim { key, mode: Mode::Exclusive }).collect(),
        ))
    }
}
