//! Timelines with their home elsewhere, in submissions: waits and signals of each mechanism are one driver call.

use std::marker::PhantomData;
use std::sync::Arc;

use syncline_core::Result;
use syncline_core::backend::{NativePoint, Port};

use crate::device::context::Context;
use crate::device::event::Mark;
use crate::device::stream::Stream;
use crate::timeline::counter::CounterPort;
use crate::timeline::external::ExternalPort;
use crate::timeline::port::EventPort;
use crate::timeline::visibility::Visibility;

/// A port of a timeline whose home is elsewhere: how its values are waited for and signalled in a stream.
pub(crate) trait Imported: Port {
    /// What the driver's calls use of it, to be kept until they are through.
    type Object;

    fn object(&self) -> &Arc<Self::Object>;

    fn context(&self) -> &Context;

    fn visibility(&self) -> &Visibility;

    /// A signal is about to be given to the driver.
    ///
    /// # Errors
    /// It must not be made.
    fn announce(&self, value: u64) -> Result<()>;

    /// A signal is with the driver.
    fn note_pending(&self, value: u64);

    /// Makes what is submitted to `stream` later wait for all of them, of which there are so many, at least one.
    ///
    /// # Errors
    /// A driver error.
    fn wait_all<'p>(
        stream: &Stream,
        count: usize,
        ports: impl Iterator<Item = (&'p Self, u64)>,
    ) -> Result<()>
    where
        Self: Sized;

    /// Signals all of them once what was submitted to `stream` before is finished.
    ///
    /// # Errors
    /// As for waits.
    fn signal_all<'p>(
        stream: &Stream,
        count: usize,
        ports: impl Iterator<Item = (&'p Self, u64)>,
    ) -> Result<()>
    where
        Self: Sized;
}

/// Waits or signals of one mechanism.
#[derive(Clone)]
pub(crate) struct Group<I> {
    ports: I,
    count: usize,
}

/// Those of a submission, by their mechanisms.
pub(crate) struct Groups<'p> {
    pub(crate) semaphores: Group<PortsOf<'p, ExternalPort>>,
    pub(crate) counters: Group<PortsOf<'p, CounterPort>>,
}

/// Those of the points that have a port of one type.
pub(crate) struct PortsOf<'p, P> {
    points: std::slice::Iter<'p, NativePoint<'p>>,
    of: PhantomData<P>,
}

impl<P> Clone for PortsOf<'_, P> {
    #[inline]
    fn clone(&self) -> Self {
        Self {
            points: self.points.clone(),
            of: PhantomData,
        }
    }
}

impl<'p, P: Port> Iterator for PortsOf<'p, P> {
    type Item = (&'p P, u64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.points
            .find_map(|point| Some((point.port()?, point.value())))
    }
}

/// True if the point has a port of type `P` that lives in `context`: the driver's objects work in their own context only.
#[inline]
fn is_here<P: Imported>(point: &NativePoint<'_>, context: &Context) -> bool {
    let port = point.port::<P>();
    port.is_some_and(|port| std::ptr::eq(port.context(), context))
}

impl<'p> Groups<'p> {
    /// Those of `points` that are imported, by `context`.
    ///
    /// # Errors
    /// The first that is of another backend's or another context's making.
    #[inline]
    pub(crate) fn of(
        points: &'p [NativePoint<'p>],
        context: &Context,
    ) -> Result<Self, NativePoint<'p>> {
        let (mut semaphores, mut counters) = (0, 0);
        for point in points {
            // Mostly that is all there is to be asked.
            if point.port::<EventPort>().is_some() {
                continue;
            }
            if is_here::<ExternalPort>(point, context) {
                semaphores += 1;
            } else if is_here::<CounterPort>(point, context) {
                counters += 1;
            } else {
                return Err(*point);
            }
        }
        Ok(Self {
            semaphores: Group::among(points, semaphores),
            counters: Group::among(points, counters),
        })
    }
}

impl<'p, P> Group<PortsOf<'p, P>> {
    #[inline]
    fn among(points: &'p [NativePoint<'p>], count: usize) -> Self {
        let ports = PortsOf {
            points: points.iter(),
            of: PhantomData,
        };
        Self { ports, count }
    }
}

impl<'p, P: Imported> Group<std::iter::Once<(&'p P, u64)>> {
    /// A single one.
    pub(crate) fn one(port: &'p P, value: u64) -> Self {
        Self {
            ports: std::iter::once((port, value)),
            count: 1,
        }
    }
}

impl<I> Group<I> {
    /// How many there are.
    #[inline]
    pub(crate) const fn count(&self) -> usize {
        self.count
    }
}

impl<'p, P: Imported, I: Iterator<Item = (&'p P, u64)> + Clone> Group<I> {
    #[inline]
    fn each(&self) -> I {
        self.ports.clone()
    }

    /// What the driver uses of them.
    #[inline]
    pub(crate) fn used(&self) -> impl Iterator<Item = &'p Arc<P::Object>> + use<'p, P, I> {
        self.each().map(|(port, _)| port.object())
    }

    /// Makes what is submitted to `stream` later wait for all of them.
    ///
    /// # Errors
    /// A driver error; no part of the call has happened then.
    pub(crate) fn wait(&self, stream: &Stream) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        P::wait_all(stream, self.count, self.each())
    }

    /// Signals all of them, of which there are some, once what was submitted to `stream` before is finished, and
    /// records `mark` behind that.
    ///
    /// # Errors
    /// As for [`All::make`].
    pub(crate) fn signal_and_record(&self, stream: &Stream, mark: &Mark) -> Result<()> {
        let crowded = self.announce(stream, mark)?;
        let made = self.signal(stream).and_then(|()| stream.record(mark));
        self.settle(made.is_ok(), crowded);
        made
    }

    /// # Errors
    /// One of them must not be signalled; none is announced then.
    #[inline]
    fn announce(&self, stream: &Stream, mark: &Mark) -> Result<bool> {
        let mut crowded = false;
        for (count, (port, value)) in self.each().enumerate() {
            if let Err(error) = port.announce(value) {
                self.each().take(count).for_each(withdraw);
                return Err(error);
            }
            crowded |= port
                .visibility()
                .announce(value, mark.clone(), stream.domain());
        }
        Ok(crowded)
    }

    #[inline]
    fn signal(&self, stream: &Stream) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        P::signal_all(stream, self.count, self.each())
    }

    /// The announced signals are with the driver, or will not be made.
    #[inline]
    fn settle(&self, made: bool, crowded: bool) {
        if !made {
            self.each().for_each(withdraw);
            return;
        }
        for (port, value) in self.each() {
            port.note_pending(value);
            if crowded {
                port.visibility().trim(port.context());
            }
        }
    }
}

#[cold]
fn withdraw<P: Imported>((port, value): (&P, u64)) {
    port.visibility().withdraw(value);
}

impl Groups<'_> {
    /// How many there are.
    pub(crate) const fn count(&self) -> usize {
        self.semaphores.count() + self.counters.count()
    }

    /// As [`Of::wait`].
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn wait(&self, stream: &Stream) -> Result<()> {
        self.semaphores.wait(stream)?;
        self.counters.wait(stream)
    }

    /// Signals all of them, of which there are some, once what was submitted to `stream` before is finished, and
    /// records `mark` behind that.
    ///
    /// # Errors
    /// A timeline that must not be signalled any more, or a driver error; no signal has been made then, unless it is the stream
    /// itself that has failed between them, or between them and the mark.
    pub(crate) fn signal_and_record(&self, stream: &Stream, mark: &Mark) -> Result<()> {
        let Self {
            semaphores,
            counters,
        } = self;
        if counters.count == 0 {
            return semaphores.signal_and_record(stream, mark);
        }
        // These can refuse.
        let crowded = counters.announce(stream, mark)?;
        let (made, crowded_too) = match semaphores.announce(stream, mark) {
            Ok(crowded) => {
                let made = semaphores.signal(stream);
                let made = made.and_then(|()| counters.signal(stream));
                (made.and_then(|()| stream.record(mark)), crowded)
            }
            Err(error) => (Err(error), false),
        };
        counters.settle(made.is_ok(), crowded);
        semaphores.settle(made.is_ok(), crowded_too);
        made
    }
}
