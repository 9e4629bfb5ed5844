//! Run everything in parallel, except what must stay in order.
