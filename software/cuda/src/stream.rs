//! Streams.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::capture::{self, Place};
use crate::code::{Answer, Code};
use crate::connection::Connection;
use crate::context::Context;
use crate::operation::Operation;
use crate::progress::Progress;
use crate::table::Table;
use crate::{current, lock, news};

/// All streams that were created and not destroyed.
pub(crate) static STREAMS: Table<Stream> = Table::new();

/// How a stream orders itself with the legacy default stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is the legacy default stream.
    Legacy,
    /// It synchronizes with the legacy default stream.
    Blocking,
    NonBlocking,
}

/// `CU_STREAM_LEGACY`. Null means the same.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// A stream.
pub(crate) struct Stream {
    pub(crate) context: Arc<Context>,
    pub(crate) kind: Kind,
    pub(crate) priority: i32,
    pub(crate) progress: Arc<Progress>,
    connection: Arc<Connection>,
    /// A quick answer for streams that are not captured.
    pub(crate) is_captured: AtomicBool,
    /// Where the stream is in the graph that it is captured into.
    pub(crate) captured: Mutex<Option<Place>>,
}

impl Stream {
    pub(crate) fn new(context: &Arc<Context>, kind: Kind, priority: i32) -> Arc<Self> {
        let progress = Arc::new(Progress::default());
        if kind == Kind::Blocking {
            lock(&context.blocking).push(progress.clone());
        }
        Arc::new(Self {
            context: context.clone(),
            kind,
            priority,
            progress,
            connection: context.next_connection(priority),
            is_captured: AtomicBool::new(false),
            captured: Mutex::default(),
        })
    }

    /// The stream that a handle names. Default streams are those of the current context.
    pub(crate) fn find(handle: usize) -> Answer<Arc<Self>> {
        let stream = match handle {
            0 | LEGACY => current::context()?.legacy(),
            PER_THREAD => current::context()?.per_thread(),
            handle => {
                let stream = STREAMS.get(handle)?;
                stream.context.check()?;
                stream
            }
        };
        Ok(stream)
    }

    /// Puts a command into the stream, or a node into the graph that it is captured into.
    pub(crate) fn submit(self: &Arc<Self>, operation: Operation) -> Answer {
        if self.is_captured.load(Ordering::Acquire) && capture::add(self, &operation)? {
            return Ok(());
        }
        self.enqueue(operation.submitted()).map(|_| ())
    }

    /// Puts a command into the stream, which is not captured, and returns its number.
    pub(crate) fn enqueue(&self, operation: Operation) -> Answer<u64> {
        if self.kind == Kind::Legacy {
            capture::touch_legacy(&self.context)?;
        }
        let room = operation.room();
        // This may block, so no lock is held.
        self.connection.reserve(room)?;
        if self.kind == Kind::NonBlocking {
            return self.connection.push(operation, room, &self.progress);
        }
        let mut blocking = lock(&self.context.blocking);
        if self.kind == Kind::Legacy {
            // What has ended can be forgotten if nothing else has it: the stream is destroyed.
            blocking.retain(|other| Arc::strong_count(other) > 1 || !other.is_idle());
            for other in blocking.iter() {
                self.wait_for(other)?;
            }
        } else if let Some(legacy) = self.context.known_legacy() {
            self.wait_for(&legacy.progress)?;
        }
        self.connection.push(operation, room, &self.progress)
    }

    /// An edge of the legacy default stream.
    fn wait_for(&self, other: &Arc<Progress>) -> Answer {
        let number = other.submitted();
        if other.has_reached(number) {
            return Ok(());
        }
        self.connection.push_wait(other.clone(), number)
    }

    /// Waits until the command with this number has ended.
    pub(crate) fn wait(&self, number: u64) -> Answer {
        let life = &self.context.life;
        news::wait_until(|| self.progress.has_reached(number) || life.is_over());
        life.check()
    }

    /// Waits until everything that is in the stream has ended.
    pub(crate) fn synchronize(&self) -> Answer {
        self.wait(self.last()?)
    }

    /// `NOT_READY` if something in the stream has not ended.
    pub(crate) fn query(&self) -> Answer {
        let number = self.last()?;
        if self.progress.has_reached(number) {
            return self.context.check();
        }
        Err(Code::NOT_READY)
    }

    /// The number of what must end before the stream counts as idle.
    fn last(&self) -> Answer<u64> {
        if self.is_captured.load(Ordering::Acquire) {
            capture::refuse(self)?;
        }
        capture::permit()?;
        if self.kind == Kind::Legacy {
            capture::touch_legacy(&self.context)?;
            let waits = lock(&self.context.blocking)
                .iter()
                .any(|other| !other.is_idle());
            if waits {
                // The legacy default stream is idle when those that synchronize with it are.
                return self.enqueue(Operation::MemoryOps([].into()));
            }
        }
        Ok(self.progress.submitted())
    }
}
