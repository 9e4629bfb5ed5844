//! Stands in for Keylane where the harness is built without it.

use crate::Result;
use crate::record::Record;
use crate::workloads::Setting;
use crate::workloads::jobs_mix::Mix;
use crate::workloads::w4_queue::Shape;
use crate::workloads::w5_memory::Question;
use crate::workloads::w6_predicate;

pub(crate) const W1: &[&str] = &[];
pub(crate) const W2: &[&str] = &[];
pub(crate) const W3: &[&str] = &[];
pub(crate) const W4: &[&str] = &[];
pub(crate) const W4_GATE: &[&str] = &[];
pub(crate) const W5: &[&str] = &[];
pub(crate) const W6: &[&str] = &[];
pub(crate) const JOBS: &[&str] = &[];
pub(crate) const JOBS_MIX: &[&str] = &[];
pub(crate) const JOBS_START: &[&str] = &[];

pub(crate) fn w1(setting: &Setting) -> Result<Record> {
    Err(setting.unknown_peer())
}

pub(crate) fn w2(setting: &Setting, _zipf: f64) -> Result<Record> {
    Err(setting.unknown_peer())
}

pub(crate) fn w3(setting: &Setting, _every: usize) -> Result<Record> {
    Err(setting.unknown_peer())
}

pub(crate) fn w4(setting: &Setting, _shape: &Shape) -> Result<Record> {
    Err(setting.unknown_peer())
}

pub(crate) fn w4_gate(setting: &Setting, _is_handed: bool) -> Result<Record> {
    Err(setting.unknown_peer())
}

pub(crate) fn w5(setting: &Setting, _question: Question) -> Result<Record> {
    Err(setting.unknown_peer())
}

pub(crate) fn w6(setting: &Setting, _shape: &w6_predicate::Shape) -> Result<Record> {
    Err(setting.unknown_peer())
}

pub(crate) fn jobs(setting: &Setting) -> Result<Record> {
    Err(setting.unknown_peer())
}

pub(crate) fn jobs_mix(setting: &Setting, _mix: Mix) -> Result<Record> {
    Err(setting.unknown_peer())
}

pub(crate) fn jobs_start(setting: &Setting, _micros: u64) -> Result<Record> {
    Err(setting.unknown_peer())
}
