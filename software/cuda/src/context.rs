//! Contexts: what lives in one, and how it is lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::connection::Connection;
use crate::device::Device;
use crate::event::EVENTS;
use crate::external;
use crate::kernel::{FUNCTIONS, MODULES};
use crate::progress::Progress;
use crate::settings::settings;
use crate::stream::{Kind, STREAMS, Stream};
use crate::table::Table;
use crate::{current, lock, news, space};

/// All live contexts.
pub(crate) static CONTEXTS: Table<Context> = Table::new();

/// Whether a context still runs work. Its connections keep it.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// The sticky error. 0 while there is none.
    fault: AtomicU32,
    /// The context is destroyed.
    ended: AtomicBool,
}

impl Life {
    /// True if nothing of the context runs any more. Waiting commands give up then.
    pub(crate) fn is_over(&self) -> bool {
        self.fault.load(Ordering::Acquire) != 0 || self.ended.load(Ordering::Acquire)
    }

    /// The sticky error, if there is one.
    pub(crate) fn check(&self) -> Answer {
        match self.fault.load(Ordering::Acquire) {
            0 if self.ended.load(Ordering::Acquire) => Err(Code::CONTEXT_IS_DESTROYED),
            0 => Ok(()),
            fault => Err(Code::from_number(fault)),
        }
    }

    /// Makes `code` the sticky error, unless there is one.
    pub(crate) fn fail(&self, code: Code) {
        if Bug::FaultIsForgotten.is_planted() {
            return;
        }
        let (first, relaxed) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self
            .fault
            .compare_exchange(0, code.number(), first, relaxed);
        news::tell();
    }
}

/// A context.
pub(crate) struct Context {
    /// Unlike the handle, no other context ever has it.
    pub(crate) id: u64,
    pub(crate) handle: usize,
    pub(crate) device: &'static Device,
    pub(crate) ordinal: i32,
    pub(crate) life: Arc<Life>,
    /// By stream priority, from 0 downwards, then by number.
    connections: Mutex<Vec<Vec<Arc<Connection>>>>,
    /// How many streams have been created of each priority.
    streams: [AtomicUsize; PRIORITIES],
    defaults: Mutex<Defaults>,
    /// Streams that synchronize with the legacy default stream. Held while commands of those streams and of
    /// the legacy stream are submitted.
    pub(crate) blocking: Mutex<Vec<Arc<Progress>>>,
}

const PRIORITIES: usize = crate::device::GREATEST_PRIORITY.unsigned_abs() as usize + 1;

/// The streams that nothing creates.
#[derive(Default)]
struct Defaults {
    legacy: Option<Arc<Stream>>,
    /// By the number of the thread.
    per_thread: HashMap<u64, Arc<Stream>>,
}

/// The live context with this id.
pub(crate) fn by_id(id: u64) -> Option<Arc<Context>> {
    CONTEXTS.find(|context| context.id == id)
}

impl Context {
    pub(crate) fn new(device: &'static Device, ordinal: i32, handle: usize) -> Arc<Self> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            handle,
            device,
            ordinal,
            life: Arc::default(),
            connections: Mutex::default(),
            streams: [const { AtomicUsize::new(0) }; PRIORITIES],
            defaults: Mutex::default(),
            blocking: Mutex::default(),
        })
    }

    /// The context's sticky error, if it has one.
    pub(crate) fn check(&self) -> Answer {
        self.life.check()
    }

    /// The hardware connection of a new stream: streams of one priority take them in turns.
    pub(crate) fn next_connection(&self, priority: i32) -> Arc<Connection> {
        let class = (priority.unsigned_abs() as usize).min(PRIORITIES - 1);
        let count = settings().map_or(1, |settings| settings.connections);
        let index = self.streams[class].fetch_add(1, Ordering::Relaxed) % count;
        let mut connections = lock(&self.connections);
        if connections.len() <= class {
            connections.resize_with(class + 1, Vec::new);
        }
        let known = connections[class].len();
        if known <= index {
            let number = |index| (class * count + index) as u64;
            let new = (known..=index)
                .map(|index| Connection::new(self.life.clone(), self.id, number(index)));
            connections[class].extend(new);
        }
        connections[class][index].clone()
    }

    /// The legacy default stream.
    pub(crate) fn legacy(self: &Arc<Self>) -> Arc<Stream> {
        let mut defaults = lock(&self.defaults);
        let make = || Stream::new(self, Kind::Legacy, 0);
        defaults.legacy.get_or_insert_with(make).clone()
    }

    /// The legacy default stream, if something has used it.
    pub(crate) fn known_legacy(&self) -> Option<Arc<Stream>> {
        lock(&self.defaults).legacy.clone()
    }

    /// The default stream of the calling thread.
    pub(crate) fn per_thread(self: &Arc<Self>) -> Arc<Stream> {
        let mut defaults = lock(&self.defaults);
        let make = || Stream::new(self, Kind::Blocking, 0);
        defaults
            .per_thread
            .entry(current::thread())
            .or_insert_with(make)
            .clone()
    }

    /// Waits until everything that has been submitted to the context so far has ended.
    pub(crate) fn synchronize(&self) -> Answer {
        let connections: Vec<_> = lock(&self.connections).iter().flatten().cloned().collect();
        for connection in connections {
            connection.synchronize()?;
        }
        self.check()
    }

    /// Destroys the context: what has not begun never does, and what waits or spins gives up.
    pub(crate) fn end(&self) {
        self.life.ended.store(true, Ordering::Release);
        news::tell();
        let connections: Vec<_> = lock(&self.connections).drain(..).flatten().collect();
        for connection in connections {
            connection.end();
        }
        *lock(&self.defaults) = Defaults::default();
        STREAMS.retain(|stream| stream.context.id != self.id);
        EVENTS.retain(|event| event.context.id != self.id);
        FUNCTIONS.retain(|function| function.context.id != self.id);
        MODULES.retain(|module| module.context.id != self.id);
        external::forget(self.id);
        space::forget(self.id);
    }
}
