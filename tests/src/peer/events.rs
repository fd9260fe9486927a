//! Commands of both processes for CUDA's own events.

#![allow(
    unsafe_code,
    reason = "receives events, which the other process keeps until they are let go here"
)]

use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::{self, InterprocessEvent};
use syncline::{Device, Error, Fence, KeptPoint, Recorder, Timeline};

use super::half::{Half, SOON, WATCHED};
use crate::case::Stop;
use crate::workload::{Equipped, Latch};
use crate::{Subject as _, patience};

/// The events of one process, and the work that blocks before their records.
#[derive(Default)]
pub(super) struct Events {
    made: Vec<(String, InterprocessEvent)>,
    received: Vec<(String, Fence)>,
    latches: Vec<(String, Latch)>,
    /// Used first, because memory must not be allocated while a stream is blocked.
    spare: Vec<Latch>,
    gate: Option<Timeline>,
}

impl Events {
    /// Releases all blocked work.
    pub(super) fn release(&mut self) -> Result<(), Error> {
        for (_, latch) in self.latches.drain(..) {
            Equipped::open(&latch)?;
        }
        self.gate.take().map_or(Ok(()), |gate| gate.signal(1))
    }

    fn made(&self, label: &str) -> Result<InterprocessEvent, Stop> {
        find(&self.made, label)
    }

    fn received(&self, label: &str) -> Result<Fence, Stop> {
        find(&self.received, label)
    }
}

impl Drop for Events {
    /// No stream stays blocked, even if a case has failed.
    fn drop(&mut self) {
        // An error could not be reported.
        let _ = self.release();
    }
}

fn find<T: Clone>(all: &[(String, T)], label: &str) -> Result<T, Stop> {
    match all.iter().rev().find(|(known, _)| known == label) {
        Some((_, found)) => Ok(found.clone()),
        None => Stop::fail(format!("there is no {label:?}")),
    }
}

/// Returns the time limit for handing an event over. It is short if the handover must not succeed.
fn within(rest: &str) -> Duration {
    match rest {
        "soon" => SOON,
        _ => patience(),
    }
}

/// Skips the case if there are no such events here.
fn or_skip<T>(result: Result<T, Error>) -> Result<T, Stop> {
    match result {
        Err(Error::Unsupported { reason, .. }) => Stop::skip(reason),
        result => Ok(result?),
    }
}

impl Half {
    /// See [`Half::run`]. Returns `None` for other commands.
    pub(super) fn run_with_events(
        &mut self,
        what: &str,
        label: &str,
        rest: &str,
    ) -> Option<Result<String, Stop>> {
        let said = |()| String::new();
        let told = |whether: bool| whether.to_string();
        let done = match what {
            "event" => self.make_event(label).map(said),
            "give" => self.give(label, within(rest)).map(said),
            "early" => self.give_early(label),
            "get" => self.get(label, within(rest)),
            "record" => self.record_behind(label, rest).map(said),
            "work" => self.work_behind(label, rest).map(said),
            "release" => self.release(label).map(said),
            "stay" => self.record_held(label),
            "unhold" => self.unhold(label).map(said),
            "await" => self.wait_in_queue(label).map(|number| number.to_string()),
            "complete" => self.is_complete(label).map(told),
            "brief" => self.waits_briefly(label).map(told),
            "join" => self.join(label).map(said),
            "rerecord" => self.record_received(label),
            "own" => self.import_own(label),
            "forget" => {
                self.events.made.retain(|(known, _)| known != label);
                self.events.received.retain(|(known, _)| known != label);
                Ok(String::new())
            }
            _ => return None,
        };
        Some(done)
    }

    fn cuda(&self) -> Result<cuda::Device, Stop> {
        match self.device.device() {
            Device::Cuda(cuda) => Ok(cuda.clone()),
            other => Stop::skip(format!("{} has no events of CUDA's", other.object())),
        }
    }

    fn make_event(&mut self, label: &str) -> Result<(), Stop> {
        let event = or_skip(self.cuda()?.interprocess_event(label))?;
        self.events.made.push((label.into(), event));
        while self.events.spare.len() < 2 {
            self.events.spare.push(or_skip(self.device.latch())?);
        }
        Ok(())
    }

    fn give(&self, label: &str, timeout: Duration) -> Result<(), Stop> {
        let event = self.events.made(label)?;
        Ok(self.endpoint()?.send_event(&event, label, timeout)?)
    }

    /// Tries to send an event while its record is held.
    fn give_early(&self, label: &str) -> Result<String, Stop> {
        let event = self.events.made(label)?;
        match self.endpoint()?.send_event(&event, label, Duration::ZERO) {
            Ok(()) => Ok("sent".into()),
            Err(Error::TimedOut { .. }) => Ok("late".into()),
            Err(error) => Err(error.into()),
        }
    }

    fn get(&mut self, label: &str, timeout: Duration) -> Result<String, Stop> {
        let (cuda, endpoint) = (self.cuda()?, self.endpoint()?);
        // SAFETY: in the cases this process drops the event, after its waits, before the other one
        // does. No case with events kills a process.
        let received = unsafe { endpoint.receive_event(&cuda, label, timeout) };
        match received {
            Err(Error::CannotShare { .. }) => return Ok("another GPU".into()),
            received => self.events.received.push((label.into(), received?)),
        }
        Ok(String::new())
    }

    /// Returns work that blocks until it is released by this name.
    fn latched(
        &mut self,
        name: &str,
    ) -> Result<impl FnOnce(&mut Recorder<'_>) -> syncline::Result<()> + Send + use<>, Stop> {
        let latch = match self.events.spare.pop() {
            Some(latch) => latch,
            None => or_skip(self.device.latch())?,
        };
        self.events.latches.push((name.into(), latch.clone()));
        Ok(move |r: &mut Recorder<'_>| Equipped::block(r, &latch))
    }

    /// Records after blocked work. Returns once the record is with the driver.
    fn record_behind(&mut self, label: &str, latch: &str) -> Result<(), Stop> {
        let event = self.events.made(label)?;
        let work = self.latched(latch)?;
        let queue = self.queue()?;
        queue.submit(&[], work, &[])?;
        queue.record(event.fence())?;
        Ok(event.position().point().wait_pending(patience())?)
    }

    /// Does the same in one submission.
    fn work_behind(&mut self, label: &str, latch: &str) -> Result<(), Stop> {
        let event = self.events.made(label)?;
        let work = self.latched(latch)?;
        let queue = self.queue()?;
        let work = move |r: &mut Recorder<'_>| {
            work(r)?;
            match r {
                Recorder::Cuda(r) => r.record_event(&event),
                _ => Err(Error::work(std::io::Error::other("no recorder of CUDA's"))),
            }
        };
        let end = queue.submit(&[], work, &[])?.end();
        Ok(end.wait_pending(patience())?)
    }

    fn release(&mut self, name: &str) -> Result<(), Stop> {
        Ok(Equipped::open(&find(&self.events.latches, name)?)?)
    }

    /// Records after a wait that holds the record on the host.
    fn record_held(&mut self, label: &str) -> Result<String, Stop> {
        let event = self.events.made(label)?;
        let gate = self.device.device().timeline("gate")?;
        let queue = self.queue()?;
        queue.submit(&[gate.at(1)], |_| Ok(()), &[])?;
        self.events.gate = Some(gate);
        queue.record(event.fence())?;
        let pending = event.position().point().is_pending()?;
        Ok(if pending { "sent" } else { "held" }.into())
    }

    /// Signals that wait. Returns once the record is with the driver.
    fn unhold(&mut self, label: &str) -> Result<(), Stop> {
        let event = self.events.made(label)?;
        if let Some(gate) = self.events.gate.take() {
            gate.signal(1)?;
        }
        Ok(event.position().point().wait_pending(patience())?)
    }

    /// Makes the queue wait for the fence, and then signal a number that this returns.
    fn wait_in_queue(&mut self, label: &str) -> Result<u64, Stop> {
        let fence = self.events.received(label)?;
        self.queue()?.wait(&fence)?;
        self.submit(KeptPoint::default().point())?;
        Ok(self.submitted)
    }

    fn fence(&self, label: &str) -> Result<Fence, Stop> {
        let own = self.events.made(label).map(|event| event.fence().clone());
        own.or_else(|_| self.events.received(label))
    }

    fn is_complete(&self, label: &str) -> Result<bool, Stop> {
        Ok(self.fence(label)?.is_complete()?)
    }

    /// Whether the event completes within a moment.
    fn waits_briefly(&self, label: &str) -> Result<bool, Stop> {
        match self.fence(label)?.wait(WATCHED) {
            Ok(()) => Ok(true),
            Err(Error::TimedOut { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn join(&self, label: &str) -> Result<(), Stop> {
        Ok(self.fence(label)?.wait(patience())?)
    }

    fn record_received(&mut self, label: &str) -> Result<String, Stop> {
        let fence = self.events.received(label)?;
        match self.queue()?.record(&fence) {
            Err(Error::ForeignFence { fence: of, .. }) if of == *fence.object() => {
                Ok("refused".into())
            }
            Err(error) => Err(error.into()),
            Ok(()) => Ok("recorded".into()),
        }
    }

    fn import_own(&self, label: &str) -> Result<String, Stop> {
        let event = self.events.made(label)?;
        let cuda = self.cuda()?;
        // SAFETY: the event outlives the import, which ends with the call.
        match unsafe { cuda.import_event(event.handle(), "own") } {
            Err(Error::Unsupported { object, .. }) if object == *cuda.object() => {
                Ok("refused".into())
            }
            Err(error) => Err(error.into()),
            Ok(_) => Ok("taken".into()),
        }
    }
}
