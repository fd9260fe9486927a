//! Bridges: the cost of a signal that the host carries on.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use smallvec::SmallVec;
use syncline::backend::{Device as _, Queue as _};
use syncline::{Device, QueueKind, Timeline, WaitMode, vulkan};

use super::{Call, Floor, Row};
use crate::lab::Lab;
use crate::machine::On;
use crate::raw::vulkan::{Calls, Hand, Semaphore};
use crate::side::{Outcome, Side, Stop, timed};

/// Time-out of all waits of this row.
const LONG: Duration = Duration::from_secs(20);

pub(super) const ROWS: &[Row] = &[Row {
    id: "bridge.carry",
    ours: "a submission on the one device signals its side of a bridge, and the host sleeps until the value is reached on the other side",
    raw: "vkQueueSubmit on the one device; a thread that sleeps in vkWaitSemaphores for that, and calls vkSignalSemaphore on the other, for which the host sleeps in vkWaitSemaphores",
    floor: Floor::Side(
        "the same with a second semaphore for vkQueueSubmit to signal, the queue's position, and for each of both waits, as a failure ends it (E1)",
    ),
    limits: &[],
    on: &[On::VulkanPairs],
    variants: &[],
    run: carry,
}];

/// The two semaphores, and the additional ones of the floor on each side.
#[derive(Clone, Copy)]
struct Semaphores {
    from: Semaphore,
    to: Semaphore,
    position: Option<Semaphore>,
    /// Would end the waits of each side early.
    never: Option<[Semaphore; 2]>,
}

struct ByHand<'h> {
    from: &'h Hand,
    to: &'h Hand,
    semaphores: Semaphores,
    value: Cell<u64>,
    is_over: Arc<AtomicBool>,
}

fn wait(calls: &Calls, of: Semaphore, value: u64, never: Option<Semaphore>) -> Outcome<()> {
    match never {
        None => calls.wait(of.raw, value),
        Some(never) => calls.wait_or(of.raw, value, never.raw),
    }
}

impl<'h> ByHand<'h> {
    fn new(from: &'h Hand, to: &'h Hand, careful: bool) -> Outcome<Self> {
        let more = |hand: &Hand| careful.then(|| hand.semaphore(false)).transpose();
        let semaphores = Semaphores {
            from: from.semaphore(false)?,
            to: to.semaphore(false)?,
            position: more(from)?,
            never: more(from)?.zip(more(to)?).map(<[_; 2]>::from),
        };
        Ok(Self {
            from,
            to,
            semaphores,
            value: Cell::new(0),
            is_over: Arc::default(),
        })
    }

    /// The work of the thread that carries each value on.
    fn carrier(&self) -> impl FnOnce() -> Outcome<()> + Send + use<> {
        let (from, to) = (Calls::clone(self.from), Calls::clone(self.to));
        let (of, is_over) = (self.semaphores, self.is_over.clone());
        move || {
            for value in 1.. {
                wait(&from, of.from, value, of.never.map(|[never, _]| never))?;
                if is_over.load(Ordering::Acquire) {
                    break;
                }
                to.signal(of.to.raw, value)?;
            }
            Ok(())
        }
    }

    fn go(&self, n: u64) -> Outcome<Duration> {
        let of = self.semaphores;
        let signals: SmallVec<[_; 2]> = [of.from].into_iter().chain(of.position).collect();
        let raw: SmallVec<[_; 2]> = signals.iter().map(|signal| signal.raw).collect();
        let (first, last) = (self.value.get() + 1, self.value.get() + n);
        for signal in signals.into_iter().chain([of.to]) {
            let hand = if signal.raw == of.to.raw {
                self.to
            } else {
                self.from
            };
            hand.expect(signal, last);
        }
        let queue = self.from.lock()?;
        let took = timed(|| {
            for value in first..=last {
                let values = [value; 2];
                let values = values.get(..raw.len()).unwrap_or_default();
                self.from.submit(&queue, (&[], &[]), (&raw, values))?;
                wait(self.to, of.to, value, of.never.map(|[_, never]| never))?;
            }
            Ok(())
        });
        self.value.set(last);
        took
    }

    /// Ends the carrying thread.
    fn end(&self) -> Outcome<()> {
        self.is_over.store(true, Ordering::Release);
        let value = self.value.get() + 1;
        self.from.signal(self.semaphores.from.raw, value)
    }
}

fn device(call: &Call<'_>, at: usize) -> Outcome<vulkan::Device> {
    match call.machine.device(call.subject.indices[at])? {
        Device::Vulkan(device) => Ok(device),
        #[allow(unreachable_patterns, reason = "reachable with more than one backend")]
        _ => Err(Stop::Failed("that is no Vulkan device".into())),
    }
}

fn carry(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let (left, right) = (device(call, 0)?, device(call, 1)?);
    let sides = Timeline::bridged("carried", 0, [left.port(0), right.port(0)])?;
    let queue = left.queue(QueueKind::Compute, "signalling")?;
    let from = Hand::new(&left, queue.family(), queue.index());
    let beyond = right.queue(QueueKind::Compute, "beyond")?;
    let to = Hand::new(&right, beyond.family(), beyond.index());
    let careless = ByHand::new(&from, &to, false)?;
    let careful = ByHand::new(&from, &to, true)?;
    let mut value = 0;
    thread::scope(|scope| {
        let carriers = [&careless, &careful].map(|hand| scope.spawn(hand.carrier()));
        let raced = lab.race(vec![
            Side::ours(|n| {
                timed(|| {
                    for _ in 0..n {
                        value += 1;
                        queue.submit(&[], |_| Ok(()), &[sides[0].signal_at(value)])?;
                        sides[1].at(value).wait_with(WaitMode::Block, LONG)?;
                    }
                    Ok(())
                })
            }),
            Side::raw(|n| careless.go(n)),
            Side::floor(|n| careful.go(n)),
        ]);
        let ended = careless.end().and(careful.end());
        let carried = carriers.map(|carrier| carrier.join());
        raced?;
        ended?;
        carried.into_iter().try_for_each(|carried| {
            carried.unwrap_or_else(|_| Err(Stop::Failed("a carrier panicked".into())))
        })
    })
}
