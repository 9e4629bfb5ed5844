//! Claims of a task: which keys it uses, exclusively or not, whether it is a barrier, and its
//! descriptor.

use super::{Compatibility, Descriptor};

/// Use of a key by a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimMode {
    /// Exclusive: conflicts with every other task of the key.
    Exclusive,
    /// Shared: conflicts with all tasks of the key except those that share it too.
    Shared,
    /// Limited: at most this number of such tasks run at once; conflicts with all other tasks of
    /// the key. Only rollups have this mode, so the path for tasks with one key never tests for it.
    Limited(u16),
}

impl ClaimMode {
    pub(crate) fn is_limited(self) -> bool {
        matches!(self, ClaimMode::Limited(_))
    }

    /// Combines two uses of the same key by one task.
    pub(crate) fn and(self, other: ClaimMode) -> ClaimMode {
        match (self, other) {
            (ClaimMode::Shared, ClaimMode::Shared) => ClaimMode::Shared,
            (ClaimMode::Limited(one), ClaimMode::Limited(two)) => ClaimMode::Limited(one.min(two)),
            _ => ClaimMode::Exclusive,
        }
    }
}

/// One key of a task, and its use.
#[derive(Clone, Debug)]
pub(crate) struct KeyClaim<K> {
    pub(crate) key: K,
    pub(crate) mode: ClaimMode,
}

impl<K> KeyClaim<K> {
    #[track_caller]
    fn limited(key: K, max: u16) -> Self {
        assert!(
            max != 0,
            "`max` is zero in `Claims::limited`: it must be at least 1; to start no task, pause the key"
        );
        KeyClaim { key, mode: ClaimMode::Limited(max) }
    }
}

/// Keys of a task, and with them the tasks that it stays in order with.
///
/// Two tasks conflict if they have a key in common, unless both only share it or both
/// [limit](Claims::limited) it, if one of them is a barrier, or if one of their
/// [descriptors](Compatibility) says so. A task with one exclusive key needs no `Claims`: the key
/// itself is enough, and so is an array or a vector of keys.
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
pub struct Claims<K>(pub(crate) ClaimsRepr<K>);

/// Shapes of [`Claims`]. The first two are by far the most frequent.
#[derive(Clone, Debug)]
pub(crate) enum ClaimsRepr<K> {
    One(KeyClaim<K>),
    None,
    Many(Vec<KeyClaim<K>>),
    Barrier,
    /// One of the other shapes, with its cost. Boxed, so that claims without a cost are no larger.
    Weighed(Box<WeighedClaims<K>>),
    /// Descriptor, with the claims on keys, if the task has any.
    Described(Descriptor, Option<Box<ClaimsRepr<K>>>),
}

/// Claims with a cost.
#[derive(Clone, Debug)]
pub(crate) struct WeighedClaims<K> {
    /// Claims without the cost; never `WeighedClaims` themselves.
    pub(crate) claims: ClaimsRepr<K>,
    pub(crate) bytes: usize,
}

impl<K> Claims<K> {
    /// Returns claims without a key: the task is ordered only with barriers.
    pub fn none() -> Self {
        Claims(ClaimsRepr::None)
    }

    /// Returns claims with one key, used exclusively.
    pub fn exclusive(key: K) -> Self {
        Claims(ClaimsRepr::One(KeyClaim { key, mode: ClaimMode::Exclusive }))
    }

    /// Returns claims with one key, shared with other tasks that share it.
    pub fn shared(key: K) -> Self {
        Claims(ClaimsRepr::One(KeyClaim { key, mode: ClaimMode::Shared }))
    }

    /// Returns claims with one key, used by at most `max` tasks at once: for work that needs a
    /// bound and no order, such as the requests to one host.
    ///
    /// Up to `max` such tasks of the key run at the same time. They get the key in the order in
    /// which they were submitted. They conflict with tasks that use the key exclusively or share
    /// it. If tasks differ in `max`, the smallest value among those that run applies.
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
    /// Such a task costs one or two allocations more than one that uses its key exclusively. Tasks
    /// that wait inside for others that limit the same key may hang if as many wait as may run:
    /// this is not [detected](crate::Handle::wait), unless `max` is one.
    ///
    /// # Panics
    ///
    /// If `max` is zero.
    #[track_caller]
    pub fn limited(key: K, max: u16) -> Self {
        Claims(ClaimsRepr::Many(vec![KeyClaim::limited(key, max)]))
    }

    /// Returns the claims of a barrier: a task that conflicts with every other task of the pool.
    pub fn barrier() -> Self {
        Claims(ClaimsRepr::Barrier)
    }

    /// Returns claims without a key, with a descriptor that decides what the task conflicts with:
    /// see [`Compatibility`].
    ///
    /// ```
    /// # use keylane::Compatibility;
    /// use std::sync::mpsc::channel;
    /// use keylane::{Claims, Pool};
    ///
    /// # struct Span { from: u64, to: u64 }
    /// # impl Compatibility for Span {
    /// #     fn is_compatible(&self, other: &Self) -> bool {
    /// #         self.to <= other.from || other.to <= self.from
    /// #     }
    /// # }
    /// let (tell, told) = channel();
    /// let pool = Pool::<u64>::builder().build()?;
    /// for from in [0, 50, 100] {
    ///     // Each overlaps the one before.
    ///     let (tell, span) = (tell.clone(), Span { from, to: from + 100 });
    ///     pool.execute(Claims::described(span), move || tell.send(from).unwrap())?;
    /// }
    /// pool.shutdown()?;
    /// assert_eq!(told.try_iter().collect::<Vec<_>>(), [0, 50, 100]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn described(descriptor: impl Compatibility) -> Self {
        Claims::none().with_descriptor(descriptor)
    }

    /// Adds a descriptor, which decides what the task conflicts with beyond its keys: see
    /// [`Compatibility`]. It replaces an earlier descriptor. A barrier stays a barrier.
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
            ClaimsRepr::Barrier => return Claims::barrier(),
            ClaimsRepr::Weighed(weighed) => {
                let WeighedClaims { claims, bytes } = *weighed;
                return Claims(claims).describe(descriptor).with_cost(bytes);
            }
            ClaimsRepr::Described(_, claims) => {
                return Claims(ClaimsRepr::Described(descriptor, claims));
            }
            ClaimsRepr::None => None,
            claims => Some(Box::new(claims)),
        };
        Claims(ClaimsRepr::Described(descriptor, claims))
    }

    /// Adds a key that is used exclusively. A barrier stays a barrier.
    pub fn and_exclusive(self, key: K) -> Self {
        self.and(KeyClaim { key, mode: ClaimMode::Exclusive })
    }

    /// Adds a key that is shared. A barrier stays a barrier.
    pub fn and_shared(self, key: K) -> Self {
        self.and(KeyClaim { key, mode: ClaimMode::Shared })
    }

    /// Adds a key that at most `max` tasks use at once: see [`limited`](Self::limited). A barrier
    /// stays a barrier.
    ///
    /// ```
    /// use keylane::{Claims, Pool};
    ///
    /// let pool = Pool::<&str>::builder().workers(4).self_check(true).build()?;
    /// for account in ["alice", "bob", "carol", "dave"] {
    ///     // One at a time of the account, and two of the host.
    ///     let claims = Claims::exclusive(account).and_limited("example.org", 2);
    ///     pool.execute(claims, move || println!("a request of {account}"))?;
    /// }
    /// pool.shutdown()?;
    /// let violations = pool.inspect().snapshot(0).violations.expect("the check is on");
    /// assert!(violations.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If `max` is zero.
    #[track_caller]
    pub fn and_limited(self, key: K, max: u16) -> Self {
        self.and(KeyClaim::limited(key, max))
    }

    /// Sets the cost of the task in bytes, for a pool with a bound on bytes: see
    /// [`Builder::capacity_bytes`](crate::Builder::capacity_bytes). Pools without that bound ignore
    /// it. The default is 0.
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
            ClaimsRepr::Weighed(weighed) => weighed.claims,
            claims => claims,
        };
        Claims(ClaimsRepr::Weighed(Box::new(WeighedClaims { claims, bytes })))
    }

    /// Returns the cost in bytes set by [`with_cost`](Self::with_cost), or 0.
    ///
    /// ```
    /// use keylane::Claims;
    ///
    /// assert_eq!(Claims::exclusive(7).cost(), 0);
    /// assert_eq!(Claims::exclusive(7).with_cost(4096).cost(), 4096);
    /// ```
    pub fn cost(&self) -> usize {
        match &self.0 {
            ClaimsRepr::Weighed(weighed) => weighed.bytes,
            _ => 0,
        }
    }

    /// Returns the key of claims with exactly one key and no descriptor.
    pub(crate) fn only_key(&self) -> Option<&K> {
        let claims = match &self.0 {
            ClaimsRepr::Weighed(weighed) => &weighed.claims,
            claims => claims,
        };
        match claims {
            ClaimsRepr::One(claim) => Some(&claim.key),
            // A task that limits its key has this form, as has one with a list of keys.
            ClaimsRepr::Many(claims) => match &claims[..] {
                [claim] => Some(&claim.key),
                _ => None,
            },
            ClaimsRepr::None
            | ClaimsRepr::Barrier
            | ClaimsRepr::Weighed(_)
            | ClaimsRepr::Described(..) => None,
        }
    }

    /// Returns claims that have exactly one key, used exclusively, and no descriptor, in their
    /// simple form.
    pub(crate) fn into_one_exclusive(self) -> Option<Self> {
        match self.0 {
            ClaimsRepr::One(KeyClaim { mode: ClaimMode::Exclusive, .. }) => Some(self),
            ClaimsRepr::Many(mut claims) if claims.len() == 1 => {
                Claims(ClaimsRepr::One(claims.pop()?)).into_one_exclusive()
            }
            ClaimsRepr::Weighed(weighed) => {
                let WeighedClaims { claims, bytes } = *weighed;
                Some(Claims(claims).into_one_exclusive()?.with_cost(bytes))
            }
            _ => None,
        }
    }

    fn and(self, claim: KeyClaim<K>) -> Self {
        Claims(match self.0 {
            ClaimsRepr::None if claim.mode.is_limited() => ClaimsRepr::Many(vec![claim]),
            ClaimsRepr::None => ClaimsRepr::One(claim),
            ClaimsRepr::One(first) => ClaimsRepr::Many(vec![first, claim]),
            ClaimsRepr::Many(mut claims) => {
                claims.push(claim);
                ClaimsRepr::Many(claims)
            }
            ClaimsRepr::Barrier => ClaimsRepr::Barrier,
            ClaimsRepr::Weighed(weighed) => {
                let WeighedClaims { claims, bytes } = *weighed;
                return Claims(claims).and(claim).with_cost(bytes);
            }
            ClaimsRepr::Described(descriptor, claims) => {
                let claims = claims.map_or(ClaimsRepr::None, |claims| *claims);
                return Claims(claims).and(claim).describe(descriptor);
            }
        })
    }
}

impl<K> ClaimsRepr<K> {
    /// Returns the claims without their cost and their descriptor.
    pub(crate) fn bare(&self) -> &ClaimsRepr<K> {
        match self {
            ClaimsRepr::Weighed(weighed) => weighed.claims.bare(),
            ClaimsRepr::Described(_, claims) => claims.as_deref().unwrap_or(&ClaimsRepr::None),
            claims => claims,
        }
    }
}

/// Collects keys that are used exclusively.
///
/// ```
/// use keylane::{Claims, Pool};
///
/// let pool = Pool::<u32>::builder().build()?;
/// let even: Claims<u32> = (0..100).filter(|key| key % 2 == 0).collect();
/// pool.execute(even, || println!("after everything on the even keys"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<K> FromIterator<K> for Claims<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let mut claims = Claims::none();
        claims.extend(keys);
        claims
    }
}

/// Adds keys that are used exclusively. A barrier stays a barrier.
impl<K> Extend<K> for Claims<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        let claims = std::mem::replace(self, Claims::none());
        *self = keys.into_iter().fold(claims, Claims::and_exclusive);
    }
}

/// Conversion into the claims of a task: from one key, an array or a vector of keys (all
/// exclusive), or [`Claims`].
///
/// A key that is listed twice counts once. It is shared if all its listings are shared, and limited
/// by the smallest limit if all are limited; otherwise it is exclusive.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the key or the keys of a task for a pool with keys of type `{K}`",
    label = "expected `{K}`, an array or a `Vec` of `{K}`, or `Claims<{K}>`",
    note = "keys are owned: for a `Pool<String>` write `\"alice\".to_owned()`"
)]
pub trait IntoClaims<K> {
    /// Returns the keys, each with its mode.
    ///
    /// ```
    /// use keylane::{Claims, IntoClaims, Pool};
    ///
    /// struct Transfer { from: u32, to: u32 }
    ///
    /// impl IntoClaims<u32> for Transfer {
    ///     fn into_claims(self) -> Claims<u32> {
    ///         Claims::exclusive(self.from).and_exclusive(self.to)
    ///     }
    /// }
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// assert_eq!(pool.submit(Transfer { from: 7, to: 8 }, || "paid")?.join()?, "paid");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
        self.into_iter().collect()
    }
}

impl<K, const N: usize> IntoClaims<K> for [K; N] {
    fn into_claims(self) -> Claims<K> {
        Claims(ClaimsRepr::Many(
            self.into_iter().map(|key| KeyClaim { key, mode: ClaimMode::Exclusive }).collect(),
        ))
    }
}
