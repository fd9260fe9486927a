//! A record of an event: one place in a stream, which a later record does not move.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::backoff::Backoff;
use crate::engine::{Engine, Life};
use crate::news;
use crate::progress::Progress;
use crate::shared_event::SharedEvent;

/// One record of an event.
#[derive(Clone, Default)]
pub(crate) struct Mark(Arc<Record>);

#[derive(Default)]
struct Record {
    /// The time of its execution, in nanoseconds, or 0 before it.
    time: AtomicU64,
    /// Its command in a stream. Records inside of a graph and those of another process have none.
    command: OnceLock<Command>,
    /// The event and the number of the record, if several processes have the event.
    shared: Option<(Arc<SharedEvent>, u64)>,
}

struct Command {
    engine: Arc<Engine>,
    progress: Arc<Progress>,
    number: u64,
}

impl Mark {
    /// Returns a record of an event that several processes have.
    pub(crate) fn shared(event: &Arc<SharedEvent>, number: u64) -> Self {
        Self(Arc::new(Record {
            shared: Some((event.clone(), number)),
            ..Record::default()
        }))
    }

    /// Returns the number of the record, if several processes have the event.
    pub(crate) fn number(&self) -> Option<u64> {
        self.0.shared.as_ref().map(|(_, number)| *number)
    }

    /// Binds the record to a command of a stream.
    ///
    /// It is reached when that command has ended, so an event and its stream complete together.
    pub(crate) fn bind(&self, engine: &Arc<Engine>, progress: &Arc<Progress>, number: u64) {
        let _ = self.0.command.set(Command {
            engine: engine.clone(),
            progress: progress.clone(),
            number,
        });
    }

    pub(crate) fn is_reached(&self) -> bool {
        match (self.0.command.get(), &self.0.shared) {
            (Some(command), _) => command.progress.has_reached(command.number),
            (None, Some((event, number))) => event.has_reached(*number),
            (None, None) => self.0.time.load(Ordering::Acquire) != 0,
        }
    }

    /// Returns when it was reached. `None` before, and for an event that several processes have.
    pub(crate) fn time(&self) -> Option<u64> {
        let is_timed = self.0.shared.is_none() && self.is_reached();
        is_timed.then(|| self.0.time.load(Ordering::Acquire))
    }

    /// Marks the record as executed.
    pub(crate) fn complete(&self) {
        self.0.time.store(now().max(1), Ordering::Release);
        if let Some((event, number)) = &self.0.shared {
            event.reach(*number);
        }
        news::tell();
    }

    /// Waits until it is reached or never will be, or until the waiting context has ended.
    pub(crate) fn wait(&self, life: &Life) {
        let is_lost = || {
            let command = self.0.command.get();
            command.is_some_and(|command| command.engine.life.is_over())
        };
        let is_through = || self.is_reached() || life.is_over() || is_lost();
        if self.0.shared.is_none() {
            return news::wait_until(is_through);
        }
        // Another process may complete it.
        let mut backoff = Backoff::new();
        while !is_through() {
            backoff.rest();
        }
    }
}

/// Returns the clock of all devices, in nanoseconds: `CLOCK_MONOTONIC`.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use syncline_software_payload::Twin;

    use super::*;
    use crate::device::Device;

    fn engine() -> Arc<Engine> {
        let device = Box::leak(Box::new(Device::new(Twin::Lavapipe)));
        Arc::new(Engine::new(0, device))
    }

    #[test]
    fn a_record_is_reached_when_its_command_has_ended() {
        let (engine, progress, mark) = (engine(), Arc::default(), Mark::default());
        mark.bind(&engine, &progress, progress.submit());
        mark.complete();
        assert!(!mark.is_reached());
        assert_eq!(mark.time(), None);
        progress.complete();
        assert!(mark.is_reached());
        assert!(mark.time().is_some());
    }

    #[test]
    fn a_record_inside_of_a_graph_is_reached_by_itself() {
        let mark = Mark::default();
        assert!(!mark.is_reached());
        mark.complete();
        assert!(mark.is_reached());
    }

    #[test]
    fn a_record_of_a_lost_context_holds_up_nothing() {
        let (engine, other, progress, mark) =
            (engine(), self::engine(), Arc::default(), Mark::default());
        mark.bind(&engine, &progress, progress.submit());
        std::thread::scope(|scope| {
            scope.spawn(|| mark.wait(&other.life));
            engine.life.end();
        });
        assert!(!mark.is_reached());
    }
}
