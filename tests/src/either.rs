//! A subject of one of two backends, so that a world can have a device of each.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use syncline::clock::Clock;
use syncline::{
    Fence, Point, QueueKind, Result, Signal, Timeline, connect,
    error::Object,
    info::{DeviceId, Info, Pooled},
};
use syncline::{Held, Submitted};
use syncline_core::backend::{Attachment, Device, Queue, Sharing, Traceable};

use crate::subject::{RecorderOf, Subject};
use crate::workload::foreign;

/// One of two: devices, queues and recorders of a [`Paired`] subject.
#[derive(Clone, Copy, Debug)]
pub enum Either<L, R> {
    /// Of the first backend.
    Left(L),
    /// Of the second backend.
    Right(R),
}

use Either::{Left, Right};

/// Runs `$body` on the value inside.
macro_rules! each {
    ($value:expr, $inner:pat => $body:expr) => {
        match $value {
            Left($inner) => $body,
            Right($inner) => $body,
        }
    };
}

/// Like [`each`], and wraps the result in the same variant.
macro_rules! wrap {
    ($value:expr, $inner:pat => $body:expr) => {
        match $value {
            Left($inner) => Left($body),
            Right($inner) => Right($body),
        }
    };
}

impl<L: Device, R: Device> Device for Either<L, R> {
    type Queue = Either<L::Queue, R::Queue>;

    fn id(&self) -> DeviceId {
        each!(self, device => device.id())
    }

    fn object(&self) -> &Object {
        each!(self, device => device.object())
    }

    fn info(&self) -> &Info {
        each!(self, device => device.info())
    }

    fn port(&self, initial: u64) -> Result<Attachment> {
        each!(self, device => device.port(initial))
    }

    fn queue(&self, kind: QueueKind, label: &str) -> Result<Self::Queue> {
        Ok(wrap!(self, device => device.queue(kind, label)?))
    }

    fn check(&self) -> Result<()> {
        each!(self, device => device.check())
    }

    fn trim(&self) -> Pooled {
        each!(self, device => device.trim())
    }

    fn clock(&self) -> Result<Clock> {
        each!(self, device => device.clock())
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        each!(self, device => device.sharing())
    }
}

/// A recorder of `Q`, without its second lifetime: [`Queue::Recorder`] has only one.
pub trait Reach<Q: Queue> {
    /// Calls `with` once.
    fn reach(&mut self, with: &mut dyn for<'r, 'a> FnMut(&'r mut Q::Recorder<'a>));
}

struct Reached<'r, 'a, Q: Queue>(&'r mut Q::Recorder<'a>);

impl<Q: Queue> Reach<Q> for Reached<'_, '_, Q> {
    fn reach(&mut self, with: &mut dyn for<'r, 'a> FnMut(&'r mut Q::Recorder<'a>)) {
        with(self.0);
    }
}

impl<L: Queue, R: Queue> Queue for Either<L, R> {
    type Device = Either<L::Device, R::Device>;
    type Recorder<'a> = Either<&'a mut (dyn Reach<L> + 'a), &'a mut (dyn Reach<R> + 'a)>;

    fn device(&self) -> Self::Device {
        wrap!(self, queue => queue.device())
    }

    fn object(&self) -> &Object {
        each!(self, queue => queue.object())
    }

    fn submit<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Self::Recorder<'a>) -> Result<()> + Send + 'static,
    {
        match self {
            Left(queue) => queue.submit(waits, |r| work(&mut Left(&mut Reached::<L>(r))), signals),
            Right(queue) => {
                queue.submit(waits, |r| work(&mut Right(&mut Reached::<R>(r))), signals)
            }
        }
    }

    fn submit_timed<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
        times: [&Fence; 2],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Self::Recorder<'a>) -> Result<()> + Send + 'static,
    {
        match self {
            Left(queue) => {
                let work = |r: &mut L::Recorder<'_>| work(&mut Left(&mut Reached::<L>(r)));
                queue.submit_timed(waits, work, signals, times)
            }
            Right(queue) => {
                let work = |r: &mut R::Recorder<'_>| work(&mut Right(&mut Reached::<R>(r)));
                queue.submit_timed(waits, work, signals, times)
            }
        }
    }

    fn record(&self, fence: &Fence) -> Result<()> {
        each!(self, queue => queue.record(fence))
    }

    fn wait(&self, fence: &Fence) -> Result<()> {
        each!(self, queue => queue.wait(fence))
    }

    fn position(&self) -> Point<'_> {
        each!(self, queue => queue.position())
    }

    fn held(&self) -> Held {
        each!(self, queue => queue.held())
    }

    fn idle(&self, timeout: Duration) -> Result<()> {
        each!(self, queue => queue.idle(timeout))
    }

    fn traceable(&self) -> Result<Traceable> {
        each!(self, queue => queue.traceable())
    }
}

/// Calls `record` with the recorder that `reach` reaches.
fn with<Q: Queue>(
    reach: &mut (dyn Reach<Q> + '_),
    mut record: impl for<'r, 'a> FnMut(&'r mut Q::Recorder<'a>) -> Result<()>,
) -> Result<()> {
    let mut result = Ok(());
    reach.reach(&mut |recorder| result = record(recorder));
    result
}

/// A subject of one of two backends.
///
/// So a backend from outside this project can form a pair with one of its devices:
///
/// ```
/// use syncline_conformance::workload::Equipped;
/// use syncline_conformance::{Paired, Subject, World};
///
/// fn pair<S: Subject>(
///     yours: S,
///     ours: syncline::Device,
/// ) -> syncline::Result<World<Paired<S, Equipped>>> {
///     Ok(World::two(Paired::left(yours), Paired::right(Equipped::new(ours)?)))
/// }
/// ```
#[derive(Clone)]
pub struct Paired<L: Subject, R: Subject> {
    subject: Either<L, R>,
    device: Either<L::Device, R::Device>,
}

impl<L: Subject, R: Subject> Paired<L, R> {
    /// A subject of the first backend.
    #[must_use]
    pub fn left(subject: L) -> Self {
        Self {
            device: Left(subject.device().clone()),
            subject: Left(subject),
        }
    }

    /// A subject of the second backend.
    #[must_use]
    pub fn right(subject: R) -> Self {
        Self {
            device: Right(subject.device().clone()),
            subject: Right(subject),
        }
    }
}

impl<L: Subject, R: Subject> Subject for Paired<L, R> {
    type Device = Either<L::Device, R::Device>;
    type Buffer = Either<L::Buffer, R::Buffer>;
    type Latch = Either<L::Latch, R::Latch>;

    fn device(&self) -> &Self::Device {
        &self.device
    }

    fn buffer(&self, words: usize) -> Result<Self::Buffer> {
        Ok(wrap!(&self.subject, subject => subject.buffer(words)?))
    }

    fn read(buffer: &Self::Buffer) -> Vec<u32> {
        match buffer {
            Left(buffer) => L::read(buffer),
            Right(buffer) => R::read(buffer),
        }
    }

    fn fill(recorder: &mut RecorderOf<'_, Self>, buffer: &Self::Buffer, value: u32) -> Result<()> {
        match (recorder, buffer) {
            (Left(reach), Left(buffer)) => with(*reach, |r| L::fill(r, buffer, value)),
            (Right(reach), Right(buffer)) => with(*reach, |r| R::fill(r, buffer, value)),
            _ => Err(foreign()),
        }
    }

    fn copy(
        recorder: &mut RecorderOf<'_, Self>,
        from: &Self::Buffer,
        to: &Self::Buffer,
    ) -> Result<()> {
        match (recorder, from, to) {
            (Left(reach), Left(from), Left(to)) => with(*reach, |r| L::copy(r, from, to)),
            (Right(reach), Right(from), Right(to)) => with(*reach, |r| R::copy(r, from, to)),
            _ => Err(foreign()),
        }
    }

    fn busy(&self, recorder: &mut RecorderOf<'_, Self>, time: Duration) -> Result<()> {
        match (recorder, &self.subject) {
            (Left(reach), Left(subject)) => with(*reach, |r| subject.busy(r, time)),
            (Right(reach), Right(subject)) => with(*reach, |r| subject.busy(r, time)),
            _ => Err(foreign()),
        }
    }

    fn keep(recorder: &mut RecorderOf<'_, Self>, object: Arc<dyn Any + Send + Sync>) {
        match recorder {
            Left(reach) => reach.reach(&mut |r| L::keep(r, object.clone())),
            Right(reach) => reach.reach(&mut |r| R::keep(r, object.clone())),
        }
    }

    fn latch(&self) -> Result<Self::Latch> {
        Ok(wrap!(&self.subject, subject => subject.latch()?))
    }

    fn block(recorder: &mut RecorderOf<'_, Self>, latch: &Self::Latch) -> Result<()> {
        match (recorder, latch) {
            (Left(reach), Left(latch)) => with(*reach, |r| L::block(r, latch)),
            (Right(reach), Right(latch)) => with(*reach, |r| R::block(r, latch)),
            _ => Err(foreign()),
        }
    }

    fn open(latch: &Self::Latch) -> Result<()> {
        match latch {
            Left(latch) => L::open(latch),
            Right(latch) => R::open(latch),
        }
    }

    fn fail_work(&self, recorder: &mut RecorderOf<'_, Self>) -> Result<()> {
        match (recorder, &self.subject) {
            (Left(reach), Left(subject)) => with(*reach, |r| subject.fail_work(r)),
            (Right(reach), Right(subject)) => with(*reach, |r| subject.fail_work(r)),
            _ => Err(foreign()),
        }
    }

    /// As the subject inside for two of one backend, otherwise by [`connect`].
    fn timeline_with(&self, other: &Self, label: &str, initial: u64) -> Result<Timeline> {
        match (&self.subject, &other.subject) {
            (Left(one), Left(other)) => one.timeline_with(other, label, initial),
            (Right(one), Right(other)) => one.timeline_with(other, label, initial),
            (Left(one), Right(other)) => {
                connect(one.device(), other.device()).timeline_from(label, initial)
            }
            (Right(one), Left(other)) => {
                connect(one.device(), other.device()).timeline_from(label, initial)
            }
        }
    }
}
