//! Streams.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::capture::{self, CapturePosition};
use crate::channel::Channel;
use crate::code::{Answer, Code};
use crate::context::Context;
use crate::operation::Operation;
use crate::progress::Progress;
use crate::table::Table;
use crate::workers::Reserved;
use crate::{current, lock, news, workers};

/// All streams that were created and not destroyed.
pub(crate) static STREAMS: Table<Stream> = Table::new();

/// How a stream orders itself with the legacy default stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
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
    pub(crate) kind: StreamKind,
    pub(crate) priority: i32,
    channel: Arc<Channel>,
    /// A quick check for streams that are not captured.
    pub(crate) is_captured: AtomicBool,
    /// The position in the graph that the stream is captured into.
    pub(crate) captured: Mutex<Option<CapturePosition>>,
}

/// Removes destroyed streams whose commands have ended.
fn forget_destroyed(blocking: &mut Vec<Arc<Progress>>) {
    blocking.retain(|one| Arc::strong_count(one) > 1 || !one.is_idle());
}

impl Stream {
    /// Starts a thread for the stream, unless one is free.
    pub(crate) fn new(
        context: &Arc<Context>,
        kind: StreamKind,
        priority: i32,
    ) -> Answer<Arc<Self>> {
        let thread = workers::reserve()?;
        Ok(Self::with(context, kind, priority, thread))
    }

    /// A stream whose commands run on `thread`.
    pub(crate) fn with(
        context: &Arc<Context>,
        kind: StreamKind,
        priority: i32,
        thread: Reserved,
    ) -> Arc<Self> {
        let channel = context.new_channel(thread);
        if kind == StreamKind::Blocking {
            let mut blocking = lock(&context.blocking);
            forget_destroyed(&mut blocking);
            blocking.push(channel.progress.clone());
        }
        Arc::new(Self {
            context: context.clone(),
            kind,
            priority,
            channel,
            is_captured: AtomicBool::new(false),
            captured: Mutex::default(),
        })
    }

    /// Returns the stream of a handle. Default streams are those of the current context.
    pub(crate) fn find(handle: usize) -> Answer<Arc<Self>> {
        let stream = match handle {
            0 | LEGACY => current::context()?.legacy()?,
            PER_THREAD => current::context()?.per_thread()?,
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
        self.enqueue(operation).map(|_| ())
    }

    /// Puts a command into the stream, which is not captured, and returns its number.
    ///
    /// A refused command has no effect.
    pub(crate) fn enqueue(&self, operation: Operation) -> Answer<u64> {
        if self.kind == StreamKind::Legacy {
            capture::touch_legacy(&self.context)?;
        }
        let cost = operation.cost();
        // This may block, so no lock is held.
        self.channel.reserve(cost)?;
        let pushed = self.push(operation, cost);
        if pushed.is_err() {
            self.channel.free(cost);
        }
        pushed
    }

    /// Submits a command in the order of the legacy default stream.
    ///
    /// The command comes after those of the legacy stream, or of the streams that synchronize with
    /// it.
    fn push(&self, operation: Operation, cost: usize) -> Answer<u64> {
        if self.kind == StreamKind::NonBlocking {
            return self.channel.push(operation, cost);
        }
        let mut blocking = lock(&self.context.blocking);
        if self.kind == StreamKind::Legacy {
            forget_destroyed(&mut blocking);
            for other in blocking.iter() {
                self.wait_for(other)?;
            }
        } else if let Some(legacy) = self.context.known_legacy() {
            self.wait_for(&legacy.channel.progress)?;
        }
        self.channel.push(operation, cost)
    }

    /// Makes the stream wait for another one, for the order of the legacy default stream.
    fn wait_for(&self, other: &Arc<Progress>) -> Answer {
        let number = other.submitted();
        if other.has_reached(number) {
            return Ok(());
        }
        self.channel.push_wait(other.clone(), number)
    }

    /// Waits until the command with this number has ended.
    pub(crate) fn wait(&self, number: u64) -> Answer {
        self.wait_for_all(&[(self.channel.progress.clone(), number)])
    }

    fn wait_for_all(&self, ends: &[End]) -> Answer {
        let life = &self.context.engine.life;
        for (progress, number) in ends {
            news::wait_until(|| progress.has_reached(*number) || life.is_over());
        }
        life.check()
    }

    /// Waits until everything in the stream has ended.
    pub(crate) fn synchronize(&self) -> Answer {
        self.wait_for_all(&self.ends()?)
    }

    /// Returns `NOT_READY` if something in the stream has not ended.
    pub(crate) fn query(&self) -> Answer {
        let is_reached = |(progress, number): &End| progress.has_reached(*number);
        if self.ends()?.iter().all(is_reached) {
            return self.context.check();
        }
        Err(Code::NOT_READY)
    }

    /// Returns the commands that must end before the stream counts as idle.
    ///
    /// The legacy default stream is idle when the streams that synchronize with it are idle.
    fn ends(&self) -> Answer<Vec<End>> {
        if self.is_captured.load(Ordering::Acquire) {
            capture::refuse(self)?;
        }
        if self.kind == StreamKind::Legacy {
            capture::touch_legacy(&self.context)?;
        }
        capture::permit()?;
        let end = |progress: &Arc<Progress>| (progress.clone(), progress.submitted());
        let mut ends = vec![end(&self.channel.progress)];
        if self.kind == StreamKind::Legacy {
            ends.extend(lock(&self.context.blocking).iter().map(end));
        }
        Ok(ends)
    }
}

/// A command: the progress of its stream, and its number there.
type End = (Arc<Progress>, u64);
