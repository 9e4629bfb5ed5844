//! The bounded channels of the ecosystem, behind the two ends that W4 drives.

use crate::Result;
use crate::record::Record;
use crate::workloads::Setting;
use crate::workloads::w4_queue::{Put, Shape, Take, copies, measure};

macro_rules! ends {
    ($way_in:ty, |$put:ident, $item:ident| $do_put:expr, $way_out:ty, |$take:ident| $do_take:expr) => {
        impl Put for $way_in {
            #[inline]
            fn put(&mut self, $item: u64) {
                let $put = self;
                $do_put.expect("consumers stay until all producers have gone");
            }
        }
        impl Take for $way_out {
            #[inline]
            fn take(&mut self) -> Option<u64> {
                let $take = self;
                $do_take
            }
        }
    };
}

ends!(
    crossbeam_channel::Sender<u64>,
    |way, item| way.send(item),
    crossbeam_channel::Receiver<u64>,
    |way| way.recv().ok()
);
ends!(flume::Sender<u64>, |way, item| way.send(item), flume::Receiver<u64>, |way| way.recv().ok());
ends!(kanal::Sender<u64>, |way, item| way.send(item), kanal::Receiver<u64>, |way| way.recv().ok());
ends!(
    async_channel::Sender<u64>,
    |way, item| way.send_blocking(item),
    async_channel::Receiver<u64>,
    |way| way.recv_blocking().ok()
);
ends!(
    tokio::sync::mpsc::Sender<u64>,
    |way, item| way.blocking_send(item),
    tokio::sync::mpsc::Receiver<u64>,
    |way| way.blocking_recv()
);
ends!(
    std::sync::mpsc::SyncSender<u64>,
    |way, item| way.send(item),
    std::sync::mpsc::Receiver<u64>,
    |way| way.recv().ok()
);

/// `None` if it is none of these.
pub(crate) fn run(peer: &str, setting: &Setting, shape: &Shape) -> Option<Result<Record>> {
    let capacity = setting.capacity;
    macro_rules! many {
        ($channel:expr) => {{
            let (way_in, way_out) = $channel;
            let ins = copies(way_in, shape.producers);
            Ok(measure(setting, shape, ins, copies(way_out, shape.consumers)))
        }};
    }
    macro_rules! single {
        ($channel:expr) => {{
            if shape.consumers != 1 {
                return Some(Err(format!("{peer} has one consumer").into()));
            }
            let (way_in, way_out) = $channel;
            Ok(measure(setting, shape, copies(way_in, shape.producers), vec![way_out]))
        }};
    }
    Some(match peer {
        "crossbeam" => many!(crossbeam_channel::bounded(capacity)),
        "flume" => many!(flume::bounded(capacity)),
        "kanal" => many!(kanal::bounded(capacity)),
        "async-channel" => many!(async_channel::bounded(capacity)),
        "tokio-mpsc" => single!(tokio::sync::mpsc::channel(capacity)),
        "std-sync" => single!(std::sync::mpsc::sync_channel(capacity)),
        _ => return None,
    })
}
