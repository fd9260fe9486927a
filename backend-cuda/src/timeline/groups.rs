//! The imported timelines of a submission, grouped by mechanism.

use std::cell::Cell;

use syncline_core::Result;
use syncline_core::backend::kit::InUse;
use syncline_core::backend::{NativePoint, Unused};

use crate::device::context::Context;
use crate::device::event::Mark;
use crate::device::stream::Stream;
use crate::timeline::counter::{CounterPort, MappedCounter};
use crate::timeline::external::ExternalPort;
use crate::timeline::imported::{Group, Imported, PortsOf, Settled};
use crate::timeline::port::EventPort;
use crate::timeline::semaphore::Semaphore;
use crate::timeline::word::{AdoptedWord, WordPort};

/// The waits or signals of a submission, grouped by mechanism.
pub(crate) struct Groups<'p> {
    semaphores: Group<PortsOf<'p, ExternalPort>>,
    counters: Group<PortsOf<'p, CounterPort>>,
    words: Group<PortsOf<'p, WordPort>>,
}

/// The imported objects that the submissions of one queue use.
#[derive(Default)]
pub(crate) struct ImportsInUse {
    semaphores: InUse<Semaphore>,
    /// Counters in shared memory.
    counters: InUse<MappedCounter>,
    /// Words of the application.
    words: InUse<AdoptedWord>,
}

impl ImportsInUse {
    /// Moves objects that no submission after `reached` uses to `unused`.
    pub(crate) fn take_unused(&mut self, reached: u64, unused: &mut Unused) {
        self.semaphores.take_unused(reached, unused);
        self.counters.take_unused(reached, unused);
        self.words.take_unused(reached, unused);
    }
}

/// True if the point has a port of type `P` in `context`.
///
/// Driver objects work only in their own context.
#[inline]
fn is_here<P: Imported>(point: &NativePoint<'_>, context: &Context) -> bool {
    let port = point.port::<P>();
    port.is_some_and(|port| std::ptr::eq(port.context(), context))
}

impl<'p> Groups<'p> {
    /// Groups the imported ports among `points`.
    ///
    /// # Errors
    /// The first point whose port belongs to another backend or context.
    #[inline]
    pub(crate) fn of(
        points: &'p [NativePoint<'p>],
        context: &Context,
    ) -> Result<Self, NativePoint<'p>> {
        let (mut semaphores, mut counters, mut words) = (0, 0, 0);
        for point in points {
            // The usual case.
            if point.port::<EventPort>().is_some() {
                continue;
            }
            if is_here::<ExternalPort>(point, context) {
                semaphores += 1;
            } else if is_here::<CounterPort>(point, context) {
                counters += 1;
            } else if is_here::<WordPort>(point, context) {
                words += 1;
            } else {
                return Err(*point);
            }
        }
        Ok(Self {
            semaphores: Group::counted(points, semaphores),
            counters: Group::counted(points, counters),
            words: Group::counted(points, words),
        })
    }
}

impl Groups<'_> {
    /// The number of ports.
    pub(crate) const fn count(&self) -> usize {
        self.semaphores.count() + self.counters.count() + self.words.count()
    }

    /// Keeps the objects of all ports until submission `number` has finished.
    ///
    /// Submissions up to `reached` have finished already.
    #[inline]
    pub(crate) fn keep_in(&self, imports: &mut ImportsInUse, number: u64, reached: u64) {
        imports
            .semaphores
            .add(self.semaphores.used(), number, reached);
        imports.counters.add(self.counters.used(), number, reached);
        imports.words.add(self.words.used(), number, reached);
    }

    /// Makes later work of `stream` wait for all ports.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn wait(&self, stream: &Stream) -> Result<()> {
        self.semaphores.wait(stream)?;
        self.counters.wait(stream)?;
        self.words.wait(stream)
    }

    /// Signals all ports after the earlier work of `stream`, and then records `mark`.
    ///
    /// There is at least one port. `signalled` is true once the driver has a signal.
    ///
    /// # Errors
    /// Same errors as [`Group::signal_and_record`].
    pub(crate) fn signal_and_record(
        &self,
        stream: &Stream,
        mark: &Mark,
        signalled: &Cell<bool>,
    ) -> Result<()> {
        let Self {
            semaphores,
            counters,
            words,
        } = self;
        if counters.count() + words.count() == 0 {
            return semaphores.signal_and_record(stream, mark, signalled);
        }
        self.record_after(stream, mark, signalled, || {
            semaphores.signal(stream, signalled)?;
            counters.signal(stream, signalled)?;
            words.signal(stream, signalled)
        })
    }

    /// Announces the signals of all ports, calls `make`, which makes them, and records `mark`.
    ///
    /// `make` sets `signalled` once the driver has one of them.
    ///
    /// # Errors
    /// Same errors as [`Groups::signal_and_record`], and any error of `make`.
    pub(crate) fn record_after(
        &self,
        stream: &Stream,
        mark: &Mark,
        signalled: &Cell<bool>,
        make: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let Self {
            semaphores,
            counters,
            words,
        } = self;
        // Only the announcement of counters can fail, so it comes first.
        let counters_need_trim = counters.announce(stream, mark)?;
        let announced = semaphores
            .announce(stream, mark)
            .and_then(|trim| Ok([trim, words.announce(stream, mark)?]));
        let (made, [semaphores_need_trim, words_need_trim]) = match announced {
            Ok(need_trim) => (make().and_then(|()| stream.record(mark)), need_trim),
            Err(error) => (Err(error), [false; 2]),
        };
        let settled = Settled::of(&made, signalled);
        counters.settle(settled, counters_need_trim);
        semaphores.settle(settled, semaphores_need_trim);
        words.settle(settled, words_need_trim);
        made
    }
}
