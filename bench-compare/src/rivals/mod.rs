//! The rivals: what people write, or use, to run work in order per key, and the
//! bounded queues of W4, and those that share workers among jobs. One file each.

pub(crate) mod channels;
pub(crate) mod grouped;
pub(crate) mod java_queue;
pub(crate) mod job_queues;
pub(crate) mod kae;
pub(crate) mod rayon_scope;
pub(crate) mod shard;
pub(crate) mod shard_batch;
pub(crate) mod shard_meet;
mod strand;
pub(crate) mod strand_dashmap;
pub(crate) mod strand_rayon;
pub(crate) mod tokio_form;
pub(crate) mod tokio_mpsc;
pub(crate) mod tokio_mutex;

/// The hasher of all rivals: fast, and the same in every run.
type Hasher = ahash::RandomState;

fn hasher() -> Hasher {
    ahash::RandomState::with_seeds(1, 2, 3, 4)
}

/// The worker that owns `key` where keys are pinned by hash.
#[inline]
fn shard_of(hasher: &Hasher, key: u64, workers: usize) -> usize {
    hasher.hash_one(key) as usize % workers
}
