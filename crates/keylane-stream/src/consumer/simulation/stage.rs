//! What all processes of a simulation share.

use std::sync::{Arc, Mutex};

use super::broker::Broker;
use super::settings::{Behaviour, Settings};
use super::world::World;

/// The world, the broker, and the settings and behaviour of all consumers.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) world: Arc<World>,
    pub(super) broker: Arc<Mutex<Broker>>,
    pub(super) settings: Settings,
    pub(super) behaviour: Arc<Mutex<Behaviour>>,
}
