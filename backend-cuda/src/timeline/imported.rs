//! Ports of imported timelines, and groups of ports.
//!
//! All waits of a group are one driver call, and so are all its signals.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use syncline_core::Result;
use syncline_core::backend::{NativePoint, Port};

use crate::device::context::Context;
use crate::device::event::Mark;
use crate::device::stream::Stream;
use crate::timeline::visibility::Visibility;

/// A port of an imported timeline, on which streams wait and signal. It is not the home port.
pub(crate) trait Imported: Port {
    /// The object that driver calls use. It is kept until these calls have executed.
    type Object;

    fn object(&self) -> &Arc<Self::Object>;

    fn context(&self) -> &Context;

    fn visibility(&self) -> &Visibility;

    /// Called before a signal is given to the driver.
    ///
    /// # Errors
    /// The signal must not be made.
    fn announce(&self, value: u64) -> Result<()>;

    /// Called after a signal was given to the driver.
    fn note_pending(&self, value: u64);

    /// Makes later work of `stream` wait for all of `ports`. `count` is their number, at least 1.
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

    /// Signals all of `ports` after the earlier work of `stream` has finished.
    ///
    /// # Errors
    /// A driver error.
    fn signal_all<'p>(
        stream: &Stream,
        count: usize,
        ports: impl Iterator<Item = (&'p Self, u64)>,
    ) -> Result<()>
    where
        Self: Sized;
}

/// The waits or signals of one type of port.
#[derive(Clone)]
pub(crate) struct Group<I> {
    ports: I,
    count: usize,
}

/// The points that have a port of type `P`.
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

impl<'p, P> Group<PortsOf<'p, P>> {
    #[inline]
    pub(super) fn counted(points: &'p [NativePoint<'p>], count: usize) -> Self {
        let ports = PortsOf {
            points: points.iter(),
            of: PhantomData,
        };
        Self { ports, count }
    }
}

impl<'p, P: Imported> Group<std::iter::Once<(&'p P, u64)>> {
    /// A group of one port.
    pub(crate) fn one(port: &'p P, value: u64) -> Self {
        Self {
            ports: std::iter::once((port, value)),
            count: 1,
        }
    }
}

impl<I> Group<I> {
    /// The number of ports.
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

    /// The objects that the driver calls use.
    #[inline]
    pub(super) fn used(&self) -> impl Iterator<Item = &'p Arc<P::Object>> + use<'p, P, I> {
        self.each().map(|(port, _)| port.object())
    }

    /// Makes later work of `stream` wait for all ports.
    ///
    /// # Errors
    /// A driver error. The stream is unchanged then.
    pub(crate) fn wait(&self, stream: &Stream) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        P::wait_all(stream, self.count, self.each())
    }

    /// Signals all ports after the earlier work of `stream`, and then records `mark`.
    ///
    /// There is at least one port.
    ///
    /// # Errors
    /// A timeline that must not be signalled any more, or a driver error. The driver makes signals
    /// nevertheless if `signalled` is true then.
    pub(crate) fn signal_and_record(
        &self,
        stream: &Stream,
        mark: &Mark,
        signalled: &Cell<bool>,
    ) -> Result<()> {
        let needs_trim = self.announce(stream, mark)?;
        let signals = self.signal(stream, signalled);
        let made = signals.and_then(|()| stream.record(mark));
        self.settle(Settled::of(&made, signalled), needs_trim);
        made
    }

    /// Announces all signals.
    ///
    /// Returns true if completed signals should be [trimmed](Visibility::trim).
    ///
    /// # Errors
    /// One of the timelines must not be signalled. No signal is announced then.
    #[inline]
    pub(super) fn announce(&self, stream: &Stream, mark: &Mark) -> Result<bool> {
        let mut needs_trim = false;
        for (count, (port, value)) in self.each().enumerate() {
            if let Err(error) = port.announce(value) {
                self.each().take(count).for_each(withdraw);
                return Err(error);
            }
            needs_trim |= port
                .visibility()
                .announce(value, mark.clone(), stream.domain());
        }
        Ok(needs_trim)
    }

    /// Makes all signals, and sets `signalled`.
    #[inline]
    pub(super) fn signal(&self, stream: &Stream, signalled: &Cell<bool>) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        P::signal_all(stream, self.count, self.each())?;
        signalled.set(true);
        Ok(())
    }

    /// Notes that the announced signals are pending, or withdraws them.
    #[inline]
    pub(super) fn settle(&self, settled: Settled, needs_trim: bool) {
        match settled {
            Settled::Pending => {}
            Settled::Refused => return self.each().for_each(withdraw),
            Settled::Unmarked => return,
        }
        for (port, value) in self.each() {
            port.note_pending(value);
            if needs_trim {
                port.visibility().trim(port.context());
            }
        }
    }
}

/// What has become of announced signals.
#[derive(Debug, Clone, Copy)]
pub(super) enum Settled {
    Pending,
    /// The driver has none of them.
    Refused,
    /// The driver has some of them, and not the event behind them.
    ///
    /// They stay announced: the host may act on no value whose event is never complete.
    Unmarked,
}

impl Settled {
    #[inline]
    pub(super) const fn of(made: &Result<()>, signalled: &Cell<bool>) -> Self {
        match (made, signalled.get()) {
            (Ok(()), _) => Self::Pending,
            (Err(_), false) => Self::Refused,
            (Err(_), true) => Self::Unmarked,
        }
    }
}

#[cold]
fn withdraw<P: Imported>((port, value): (&P, u64)) {
    port.visibility().withdraw(value);
}
