//! Contexts: their objects, and their loss.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::channel::Channel;
use crate::code::Answer;
use crate::device::Device;
use crate::engine::Engine;
use crate::event::EVENTS;
use crate::external;
use crate::faults;
use crate::host_thread::HostThread;
use crate::kernel::{FUNCTIONS, MODULES};
use crate::progress::Progress;
use crate::stream::{STREAMS, Stream, StreamKind};
use crate::table::Table;
use crate::workers::Reserved;
use crate::{array, capture, current, lock, news, object, space, workers};

/// All live contexts.
pub(crate) static CONTEXTS: Table<Context> = Table::new();

/// A context.
pub(crate) struct Context {
    /// Unlike the handle, no other context ever has it.
    pub(crate) id: u64,
    pub(crate) handle: usize,
    pub(crate) device: &'static Device,
    pub(crate) ordinal: i32,
    pub(crate) engine: Arc<Engine>,
    /// The channels of all streams, also of destroyed streams that still have commands.
    channels: Mutex<Channels>,
    defaults: Mutex<Defaults>,
    /// Streams that synchronize with the legacy default stream. Locked while commands of those
    /// streams and of the legacy stream are submitted.
    pub(crate) blocking: Mutex<Vec<Arc<Progress>>>,
}

#[derive(Default)]
struct Channels {
    all: Vec<Weak<Channel>>,
    /// The number of channels that have been made.
    made: u64,
}

/// The default streams.
#[derive(Default)]
struct Defaults {
    legacy: Option<Arc<Stream>>,
    /// The thread of the legacy stream, until something uses that stream.
    thread: Option<Reserved>,
    /// By the number of the thread.
    per_thread: HashMap<u64, Arc<Stream>>,
}

/// The live context with this id.
pub(crate) fn by_id(id: u64) -> Option<Arc<Context>> {
    CONTEXTS.find(|context| context.id == id)
}

impl Context {
    /// Starts the threads that the context itself needs.
    pub(crate) fn new(device: &'static Device, ordinal: i32, handle: usize) -> Answer<Arc<Self>> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let thread = workers::reserve()?;
        let engine = Arc::new(Engine::new(id, device));
        HostThread::start(&engine)?;
        Ok(Arc::new(Self {
            id,
            handle,
            device,
            ordinal,
            engine,
            channels: Mutex::default(),
            defaults: Mutex::new(Defaults {
                thread: Some(thread),
                ..Defaults::default()
            }),
            blocking: Mutex::default(),
        }))
    }

    /// The context's sticky error, if it has one.
    pub(crate) fn check(&self) -> Answer {
        self.engine.life.check()
    }

    /// The commands of a new stream.
    pub(crate) fn new_channel(&self, thread: Reserved) -> Arc<Channel> {
        let mut channels = lock(&self.channels);
        channels.all.retain(|known| known.strong_count() > 0);
        let channel = Channel::new(&self.engine, channels.made, thread);
        channels.made += 1;
        channels.all.push(Arc::downgrade(&channel));
        channel
    }

    fn channels(&self) -> Vec<Arc<Channel>> {
        let channels = lock(&self.channels);
        channels.all.iter().filter_map(Weak::upgrade).collect()
    }

    /// The legacy default stream.
    pub(crate) fn legacy(self: &Arc<Self>) -> Answer<Arc<Stream>> {
        let mut defaults = lock(&self.defaults);
        if let Some(known) = &defaults.legacy {
            return Ok(known.clone());
        }
        let thread = defaults.thread.take().map_or_else(workers::reserve, Ok)?;
        let legacy = Stream::with(self, StreamKind::Legacy, 0, thread);
        Ok(defaults.legacy.insert(legacy).clone())
    }

    /// The legacy default stream, if something has used it.
    pub(crate) fn known_legacy(&self) -> Option<Arc<Stream>> {
        lock(&self.defaults).legacy.clone()
    }

    /// The default stream of the calling thread.
    pub(crate) fn per_thread(self: &Arc<Self>) -> Answer<Arc<Stream>> {
        let thread = current::thread();
        if let Some(known) = lock(&self.defaults).per_thread.get(&thread) {
            return Ok(known.clone());
        }
        // Made without the lock: a blocking stream locks `blocking`, under which submissions lock
        // `defaults`. No other thread makes this stream.
        let stream = Stream::new(self, StreamKind::Blocking, 0)?;
        let mut defaults = lock(&self.defaults);
        defaults.per_thread.insert(thread, stream.clone());
        Ok(stream)
    }

    /// Waits until everything that has been submitted to the context so far has ended.
    pub(crate) fn synchronize(&self) -> Answer {
        let ends = self.channels().into_iter().map(|channel| {
            let number = channel.progress.submitted();
            (channel, number)
        });
        for (channel, number) in ends.collect::<Vec<_>>() {
            let is_through = || channel.progress.has_reached(number);
            news::wait_until(|| is_through() || self.engine.life.is_over());
        }
        self.check()
    }

    /// Destroys the context once its work has ended. The rest of a lost context's work never runs.
    pub(crate) fn end(&self) {
        if !faults::GATE.is_lost() {
            let _ = self.synchronize();
        }
        self.engine.life.end();
        for channel in self.channels() {
            channel.end();
        }
        self.engine.host.end();
        capture::abandon_all(self.id);
        *lock(&self.defaults) = Defaults::default();
        STREAMS.orphan(|stream| stream.context.id != self.id);
        EVENTS.orphan(|event| {
            let stays = event.context.id != self.id;
            if let Some(shared) = event.shared().filter(|_| !stays) {
                shared.note_destroyed();
            }
            stays
        });
        FUNCTIONS.retain(|function| function.context.id != self.id);
        MODULES.retain(|module| module.context.id != self.id);
        object::forget(self.id);
        array::forget(self.id);
        external::forget(self.id);
        space::forget(self.id);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use syncline_software_payload::Twin;

    use super::*;

    impl Context {
        /// A context of a device of its own, which no handle names.
        pub(crate) fn for_tests() -> Arc<Self> {
            let device = Box::leak(Box::new(Device::new(Twin::Lavapipe)));
            Self::new(device, 0, 0).unwrap()
        }
    }

    #[test]
    fn a_default_stream_is_made_without_the_lock_of_the_default_streams() {
        let context = Context::for_tests();
        std::thread::scope(|scope| {
            // As while a command is submitted.
            let blocking = lock(&context.blocking);
            scope.spawn(|| context.per_thread().unwrap());
            // The stream is half made once it has its channel.
            while lock(&context.channels).made == 0 {
                std::thread::yield_now();
            }
            let is_free = context.defaults.try_lock().is_ok();
            drop(blocking);
            assert!(is_free);
        });
    }
}
