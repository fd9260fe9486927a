//! Ports that a case puts into a timeline of its own, to count what they are asked, or to have them lie.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use syncline::backend::{Attachment, ByEngine, Port};
use syncline::{DeviceId, Result};

use crate::user::{Device, Timeline};
use crate::{Subject, World};

/// What is known of [`Spied`] ports, and what they are told.
#[derive(Debug, Default)]
pub(super) struct Spy {
    polls: AtomicU64,
    alive: AtomicU64,
    all_ones: AtomicBool,
}

impl Spy {
    /// How often a port was asked for its value.
    pub(super) fn polls(&self) -> u64 {
        self.polls.load(Ordering::SeqCst)
    }

    /// How many of its ports there are.
    pub(super) fn alive(&self) -> u64 {
        self.alive.load(Ordering::SeqCst)
    }

    /// From now on the ports read as all ones, as those of a lost device may.
    pub(super) fn lose(&self) {
        self.all_ones.store(true, Ordering::SeqCst);
    }

    /// A port of `device` in the hands of this spy. Nobody's queues know it, so they wait for it on the host,
    /// and the host signals for them.
    pub(super) fn port<S: Subject>(
        self: &Arc<Self>,
        device: &Device<S>,
        initial: u64,
    ) -> Result<Attachment> {
        let mut attachment = device.port(initial)?;
        self.alive.fetch_add(1, Ordering::SeqCst);
        attachment.device = DeviceId::new();
        attachment.port = Box::new(Spied {
            port: attachment.port,
            spy: self.clone(),
        });
        attachment.watch = None;
        Ok(attachment)
    }

    /// A timeline with its home on the left side, in the hands of this spy. If `elsewhere`, it might be signalled
    /// from outside at any time.
    pub(super) fn timeline<S: Subject>(
        self: &Arc<Self>,
        world: &World<S>,
        elsewhere: bool,
    ) -> Result<Timeline<S>> {
        let library = syncline::Timeline::new("spied", 0, |initial| {
            let mut home = self.port(&world.left, initial)?;
            home.signalled_elsewhere = elsewhere;
            Ok([home].into_iter().collect())
        })?;
        Ok(world.left.own(library))
    }
}

struct Spied {
    port: Box<dyn Port>,
    spy: Arc<Spy>,
}

impl Port for Spied {
    fn sees_submitted(&self, value: u64) -> Result<()> {
        self.port.sees_submitted(value)
    }

    fn poll(&self) -> Result<Option<u64>> {
        self.spy.polls.fetch_add(1, Ordering::SeqCst);
        if self.spy.all_ones.load(Ordering::SeqCst) {
            return Ok(Some(u64::MAX));
        }
        self.port.poll()
    }

    fn signal(&self, value: u64, by: ByEngine) -> Result<()> {
        self.port.signal(value, by)
    }

    fn visible(&self, reached: u64) -> Result<u64> {
        self.port.visible(reached)
    }
}

impl Drop for Spied {
    fn drop(&mut self) {
        self.spy.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A counter with nothing behind it: what is slow about a timeline of it is the engine's doing.
pub(super) struct Plain(AtomicU64);

impl Plain {
    /// As a port with a limit of its own.
    pub(super) fn port(initial: u64, max_value_difference: u64) -> Attachment {
        Attachment {
            device: DeviceId::new(),
            port: Box::new(Self(AtomicU64::new(initial))),
            watch: None,
            max_value_difference,
            signalled_elsewhere: false,
        }
    }
}

impl Port for Plain {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.load(Ordering::Acquire)))
    }

    fn signal(&self, value: u64, _: ByEngine) -> Result<()> {
        self.0.store(value, Ordering::Release);
        Ok(())
    }
}
