//! Queries of the API: jobs, subtasks, keys, and the whole service.
//!
//! Queries read the state in memory and the store, and change neither.

mod caches;
mod client_id;
mod damaged_jobs;
mod job;
mod key_order;
mod logs;
mod nodes;
mod outcome_view;
mod reason_text;
mod results;
mod subtask;
mod summary;
mod tenants;
mod text;
mod wait;
mod workers;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use self::caches::CachedSummary;
use self::key_order::KeyOrders;
use super::clock::Clock;
use super::engine_state::SharedState;
use super::store_status::StoreStatus;
use super::timeline::TimelineRecorder;
use crate::kind_registry::KindRegistry;
use crate::store::Store;
use crate::tenant::TenantRegistry;

pub(crate) use job::JobQuery;
pub(super) use job::{brief_view, final_view, live_view, unknown};
pub(crate) use results::{PinnedResults, ResultOrder};
pub(super) use text::{rule_text, text_of};

/// Answers to queries.
#[derive(Debug)]
pub(crate) struct Query {
    store: Store,
    state: Arc<SharedState>,
    kinds: Arc<KindRegistry>,
    tenants: Arc<TenantRegistry>,
    clock: Arc<Clock>,
    status: Arc<StoreStatus>,
    timeline: Arc<TimelineRecorder>,
    /// Number of open WebSockets.
    pub(crate) websockets: AtomicU64,
    /// Subtasks by key, for results in that order.
    key_orders: KeyOrders,
    /// Last summary, reused for a while.
    summary: Mutex<Option<CachedSummary>>,
}

impl Query {
    pub(super) fn new(
        store: Store,
        state: Arc<SharedState>,
        kinds: Arc<KindRegistry>,
        tenants: Arc<TenantRegistry>,
        clock: Arc<Clock>,
        status: Arc<StoreStatus>,
        timeline: Arc<TimelineRecorder>,
    ) -> Self {
        Query {
            store,
            state,
            kinds,
            tenants,
            clock,
            status,
            timeline,
            websockets: AtomicU64::new(0),
            key_orders: KeyOrders::default(),
            summary: Mutex::default(),
        }
    }
}
