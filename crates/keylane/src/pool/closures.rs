//! Executor of closures.

use super::scoped_body::ScopedBody;
use crate::admit::HeldBytes;
use crate::engine::{Execute, Key};
use crate::job::KeyedSubtask;
use crate::order::SlotRef;
use crate::run::{ExecContext, TaskBody, Turn};
use crate::unwind::KeyPanic;

/// Executor of closures.
pub(crate) struct ClosureExecutor;

impl<K: Key> Execute<K> for ClosureExecutor {
    type Work = TaskBody;
    const WANTS_KEY: bool = false;
    const DROPS_REPLACED: bool = true;

    #[inline]
    fn execute(&self, _: Option<&K>, work: SlotRef<'_, TaskBody>, ctx: &mut dyn ExecContext) {
        TaskBody::run_in_slot(work, ctx);
    }

    #[inline(always)]
    fn prefetch(work: &TaskBody) {
        work.prefetch();
    }

    fn fail(work: TaskBody, payload: KeyPanic) {
        work.fail(payload);
    }

    fn supersede(work: TaskBody, turn: Turn) {
        work.supersede(turn);
    }

    fn name(work: &TaskBody) -> Option<usize> {
        work.name()
    }

    fn may_take(work: &TaskBody) -> bool {
        !work.is::<KeyedSubtask>()
    }

    fn is_scoped(work: &TaskBody) -> bool {
        work.is::<ScopedBody>()
    }

    fn charge(work: TaskBody, cost: HeldBytes) -> TaskBody {
        work.with(cost)
    }
}
