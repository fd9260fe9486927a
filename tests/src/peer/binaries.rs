//! Commands of both processes for a binary semaphore.

#![allow(
    unsafe_code,
    reason = "vouches for signals, which are counted once they are pending"
)]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Wake, Waker};

use syncline::backend::Queue as _;
use syncline::negotiate::{BinarySignalOnly, BinaryWaitOnly, MadeBinary};
use syncline::{Device, KeptPoint, Queue, Recorder, Result};
#[cfg(feature = "vulkan")]
use syncline::{QueueKind, backend::Device as _};

use super::half::{Half, LATE, number};
use crate::case::{Stop, check};
use crate::workload::Equipped;
use crate::{Subject as _, patience};

/// The most queues that are made to find two with one `VkQueue`.
#[cfg(feature = "vulkan")]
const MANY: usize = 64;

/// Returns another queue of the device with the same `VkQueue`.
fn beside(device: &Device, queue: &Queue) -> Result<Queue, Stop> {
    #[cfg(feature = "vulkan")]
    if let Queue::Vulkan(own) = queue {
        let place = |queue: &Queue| match queue {
            Queue::Vulkan(queue) => Some((queue.family(), queue.index())),
            _ => None,
        };
        let mut others = Vec::new();
        while others.len() < MANY {
            let other = device.queue(QueueKind::Compute, "beside")?;
            if place(&other) == Some((own.family(), own.index())) {
                return Ok(other);
            }
            // Kept, so that the next one may get another place.
            others.push(other);
        }
        return Stop::skip("no other queue has the same VkQueue");
    }
    let _ = (device, queue);
    Stop::skip("only queues of Vulkan share a queue of the driver")
}

/// A wait for the count of a signal.
type Next = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// A wait that has seen the count of a signal, and has not begun to wait for the signal itself.
pub(super) struct Late {
    semaphore: BinaryWaitOnly,
    _next: Next,
    /// The result of [`AtOnce`].
    told: Receiver<Result<()>>,
}

/// Waits for the semaphore at the moment in which the next count fails.
struct AtOnce {
    semaphore: BinaryWaitOnly,
    queue: Queue,
    tell: Sender<Result<()>>,
}

impl Wake for AtOnce {
    fn wake(self: Arc<Self>) {
        // SAFETY: as above, as far as this late thread knows.
        let waited = unsafe { self.semaphore.wait_on(&self.queue) };
        let _ = self.tell.send(waited);
    }
}

impl Half {
    /// See [`Half::run`]. Returns `None` for other commands.
    pub(super) fn run_with_binaries(
        &mut self,
        what: &str,
        label: &str,
        rest: &str,
    ) -> Option<Result<String, Stop>> {
        let said = |()| String::new();
        let done = match what {
            "binary" => self.make_binary(label).map(said),
            "draw" => self.draw(rest).map(said),
            "paint" => self.paint(rest).map(said),
            "paint_closed" => self.paint_closed(rest).map(said),
            "shade" => self.shade(rest).map(|number| number.to_string()),
            "look" => self.look(rest),
            "glance" => self.glance(rest),
            "consume" => self.consume(rest).map(said),
            "expect" => self.expect(rest).map(said),
            "expected" => self.expected().map(said),
            "dawdle" => self.dawdle(rest).map(said),
            "late" => self.late(label).map(said),
            "abandon" => {
                self.abandon();
                Ok(String::new())
            }
            "crowd" => self.crowd().map(said),
            "miscount" => self.miscount(label),
            _ => return None,
        };
        Some(done)
    }

    /// Drops every handle of the semaphore, whatever waits for it.
    fn abandon(&mut self) {
        self.binary = None;
        self.late = None;
    }

    /// Keeps the `VkQueue` of its queue busy by another queue's work, until the latch opens.
    fn crowd(&mut self) -> Result<(), Stop> {
        let queue = self.queue()?;
        let beside = beside(self.device.device(), &queue)?;
        let latch = self.latch()?;
        beside.submit(&[], move |r| Equipped::block(r, &latch), &[])?;
        Ok(())
    }

    fn make_binary(&mut self, label: &str) -> Result<(), Stop> {
        let (endpoint, plan) = (self.endpoint()?, self.plan()?);
        let made = plan.make_binary_across(label, &self.devices(), &[&endpoint], patience())?;
        self.binary = Some(made);
        Ok(())
    }

    fn made_binary(&self) -> Result<&MadeBinary, Stop> {
        let made = self.binary.as_ref();
        made.map_or_else(|| Stop::fail("there is no binary semaphore"), Ok)
    }

    fn signals_binary(&self) -> Result<BinarySignalOnly, Stop> {
        Ok(self.made_binary()?.signal_only(self.own())?)
    }

    /// Waits until its n-th signal is pending.
    fn waits_binary(&self, n: u64) -> Result<BinaryWaitOnly, Stop> {
        let semaphore = self.made_binary()?.wait_only(self.own())?;
        semaphore.count().at(n).wait(patience())?;
        Ok(semaphore)
    }

    /// Signals it after `work`, as the n-th signal.
    fn signal_behind(
        &mut self,
        n: u64,
        work: impl FnOnce(&mut Recorder<'_>) -> Result<()> + Send + 'static,
    ) -> Result<(), Stop> {
        let semaphore = self.signals_binary()?;
        let signals = semaphore.clone();
        let work = move |r: &mut Recorder<'_>| {
            work(r)?;
            // SAFETY: the case consumes each signal before the next.
            unsafe { signals.signal(r) }
        };
        let queue = self.queue()?;
        let end = queue.submit(&[], work, &[])?.end();
        end.wait_pending(patience())?;
        Ok(semaphore.count().signal(n)?)
    }

    fn draw(&mut self, n: &str) -> Result<(), Stop> {
        let latch = self.latch()?;
        self.signal_behind(number(n)?, move |r| Equipped::block(r, &latch))
    }

    fn paint(&mut self, n: &str) -> Result<(), Stop> {
        let device = self.device.clone();
        self.paint_after(n, move |r| device.busy(r, LATE))
    }

    fn paint_closed(&mut self, n: &str) -> Result<(), Stop> {
        let latch = self.latch()?;
        self.paint_after(n, move |r| Equipped::block(r, &latch))
    }

    fn paint_after(
        &mut self,
        n: &str,
        before: impl FnOnce(&mut Recorder<'_>) -> Result<()> + Send + 'static,
    ) -> Result<(), Stop> {
        let (n, memory) = (number(n)?, self.memory()?);
        self.signal_behind(n, move |r| {
            before(r)?;
            Equipped::fill(r, &memory, n as u32)
        })
    }

    /// Makes the queue wait, and then signal a number that this returns.
    fn shade(&mut self, n: &str) -> Result<u64, Stop> {
        let semaphore = self.waits_binary(number(n)?)?;
        let queue = self.queue()?;
        // SAFETY: the signal is counted, so it is pending, and this is the only wait.
        unsafe { semaphore.wait_on(&queue) }?;
        self.submit(KeptPoint::default().point())?;
        Ok(self.submitted)
    }

    fn look(&mut self, n: &str) -> Result<String, Stop> {
        let n = number(n)?;
        let semaphore = self.waits_binary(n)?;
        let queue = self.queue()?;
        // SAFETY: as above.
        unsafe { semaphore.wait_on(&queue) }?;
        self.copies(n)
    }

    /// Waits for nothing but the count.
    fn glance(&mut self, n: &str) -> Result<String, Stop> {
        let n = number(n)?;
        let _ = self.waits_binary(n)?;
        self.copies(n)
    }

    /// Waits on the host, by a fence.
    fn consume(&self, n: &str) -> Result<(), Stop> {
        let semaphore = self.waits_binary(number(n)?)?;
        // SAFETY: as above.
        let fence = unsafe { semaphore.pending("consumed") }?;
        Ok(fence.wait(patience())?)
    }

    fn expect(&mut self, n: &str) -> Result<(), Stop> {
        let semaphore = self.waits_binary(number(n)?)?;
        // SAFETY: as above.
        self.expected = Some(unsafe { semaphore.pending("expected") }?);
        Ok(())
    }

    fn expected(&self) -> Result<(), Stop> {
        match &self.expected {
            Some(fence) => Ok(fence.wait(patience())?),
            None => Stop::fail("nothing is expected"),
        }
    }

    fn dawdle(&mut self, n: &str) -> Result<(), Stop> {
        let n = number(n)?;
        let semaphore = self.waits_binary(n)?;
        let counts = semaphore.clone();
        let mut next: Next = Box::pin(async move { counts.count().at(n + 1).await });
        let (tell, told) = channel();
        let at_once = Waker::from(Arc::new(AtOnce {
            semaphore: semaphore.clone(),
            queue: self.queue()?,
            tell,
        }));
        let polled = next.as_mut().poll(&mut Context::from_waker(&at_once));
        check!(polled.is_pending(), "{polled:?} before the next signal");
        self.late = Some(Late {
            semaphore,
            _next: next,
            told,
        });
        Ok(())
    }

    /// Continues a wait that began before a death.
    fn late(&mut self, how: &str) -> Result<(), Stop> {
        let queue = self.queue()?;
        let Some(Late {
            semaphore, told, ..
        }) = &self.late
        else {
            return Stop::fail("there is no late wait");
        };
        let waited = match how {
            "waker" => told.recv_timeout(patience()).unwrap_or_else(|_| Ok(())),
            // SAFETY: as above, as far as this late process knows.
            "queue" => unsafe { semaphore.wait_on(&queue) },
            // SAFETY: as above.
            _ => unsafe { semaphore.pending("late") }.map(|_| ()),
        };
        Ok(waited?)
    }

    /// Asks for the right that the plan does not grant: to signal as the waiter, or the reverse.
    fn miscount(&self, what: &str) -> Result<String, Stop> {
        let made = self.made_binary()?;
        let refused = match what {
            "signal" => made.signal_only(self.own()).err(),
            _ => made.wait_only(self.own()).err(),
        };
        match refused {
            Some(error) => Ok(error.to_string()),
            None => Stop::fail(format!("the plan lets it {what}")),
        }
    }
}
