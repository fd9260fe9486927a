//! The clockwork backend with a bug, wherever it calls its driver.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use syncline::clock::{Clock, Sample};
use syncline::{
    Error, QueueKind, Result,
    error::Object,
    info::{DeviceId, Info},
};
use syncline_core::backend::Sampler;
use syncline_core::backend::{
    self, Attachment, Backend, Batch, ByEngine, EngineQueue, Enqueue, Flush, Home, Identity,
    InFlightBudget, Keep, NativePoint, Timing, ToWrite, Waker, Watch, Watcher,
};

use super::bugs::Bug;
use super::lock;
use crate::clockwork::clock::Ticks;
use crate::clockwork::device::Port;
use crate::clockwork::driver::{Command, QUEUES, TICK};
use crate::clockwork::queue::{Channel, Stamp};
use crate::clockwork::{Device, Recorder};

/// Largest distance of values of a timeline. There are values beyond it, and on each side of 2⁶³.
const LIMIT: u64 = 3 << 62;

/// A clockwork machine with a bug in its backend, or with none.
#[derive(Clone)]
pub(crate) struct PlantedDevice {
    pub(crate) inner: Device,
    id: DeviceId,
    info: Arc<Info>,
    pub(crate) bug: Bug,
    clock: Clock,
    leaked: Arc<Mutex<Vec<Arc<PlantedStamp>>>>,
}

impl PlantedDevice {
    pub(crate) fn new(inner: Device, bug: Bug) -> Self {
        let mut info = inner.identity().info.clone();
        info.capabilities.max_value_difference = LIMIT;
        let info = Arc::new(info);
        let clock = planted_clock(&inner, bug);
        Self {
            inner,
            id: DeviceId::new::<Self>(),
            info,
            bug,
            clock,
            leaked: Arc::default(),
        }
    }
}

impl Home for PlantedDevice {
    type Enqueue = Planted;

    fn port(&self, initial: u64) -> Result<Attachment> {
        let port = PlantedPort(self.inner.counter(initial), self.bug);
        let attachment = Attachment::new(self.id, initial, port)
            .watched_by(Arc::new(PlantedWatch(self.inner.watch(), self.bug)));
        Ok(match self.bug {
            Bug::DifferenceUnlimited => attachment,
            _ => attachment.with_max_value_difference(LIMIT),
        })
    }
}

impl Backend for PlantedDevice {
    type Queue = EngineQueue<Planted>;
    const QUEUE: &'static str = "planted queue";

    fn identity(&self) -> Identity<'_> {
        Identity {
            id: self.id,
            info: &self.info,
            ..self.inner.identity()
        }
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn enqueue(&self, _: QueueKind, _: &Object) -> Result<Planted> {
        Ok(Planted {
            device: self.clone(),
            inner: Channel::new(&self.inner),
            bug: self.bug,
            count: AtomicU64::new(0),
            late: Mutex::default(),
            ticks: self.inner.ticks(),
            leaked: self.leaked.clone(),
        })
    }

    fn clock(&self) -> Result<Clock> {
        match self.bug {
            Bug::AnotherClockEachTime => Ok(planted_clock(&self.inner, self.bug)),
            Bug::ClockRefused => Err(Error::unsupported(
                self.identity().object,
                "read its clock",
                "it is of no mind to",
            )),
            _ => Ok(self.clock.clone()),
        }
    }
}

fn planted_clock(device: &Device, bug: Bug) -> Clock {
    let ticks = device.ticks();
    Clock::new(
        Object::new("planted clock", ""),
        PlantedTicks { ticks, bug },
    )
}

/// Reads the clock as the clockwork does, with a bug.
struct PlantedTicks {
    ticks: Ticks,
    bug: Bug,
}

impl Sampler for PlantedTicks {
    fn sample(&self) -> Result<Sample> {
        let sample = self.ticks.sample()?;
        Ok(match self.bug {
            Bug::SampleBlocks => {
                let machine = &self.ticks.0;
                for queue in 0..QUEUES {
                    let shown = Arc::new(OnceLock::new());
                    machine.submit(queue, vec![Command::Time(shown.clone())]);
                    while shown.get().is_none() {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                }
                sample
            }
            Bug::DeviationForgotten => {
                // Short, as if the thread had been interrupted.
                let before = self.host_clock().now();
                std::thread::sleep(Duration::from_micros(100));
                Sample {
                    host: before,
                    deviation: 0,
                    ..self.ticks.sample()?
                }
            }
            Bug::DeviationExaggerated => Sample {
                deviation: 1_000_000_000,
                ..sample
            },
            Bug::SampleOfAnotherMoment => Sample {
                host: sample.host - 50_000_000,
                ..sample
            },
            _ => sample,
        })
    }

    fn resolution(&self) -> u64 {
        self.ticks.resolution()
    }
}

/// The error for an object of another type than this file makes.
fn unexpected() -> Error {
    Error::work(std::io::Error::other("an object of another backend"))
}

struct PlantedPort(Port, Bug);

impl backend::Port for PlantedPort {
    fn poll(&self) -> Result<Option<u64>> {
        let value = self.0.poll()?;
        Ok(match self.1 {
            Bug::CounterReadInHalves => value.map(|value| value & u64::from(u32::MAX)),
            Bug::CounterReadAhead => value.map(|value| value + 1),
            _ => value,
        })
    }

    fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()> {
        match self.1 {
            Bug::HostSignalOneShort => self.0.signal(value - 1, by),
            _ => self.0.signal(value, by),
        }
    }
}

struct PlantedWatch(Arc<dyn Watch>, Bug);

impl Watch for PlantedWatch {
    fn watcher(&self) -> &Watcher {
        self.0.watcher()
    }

    fn watch(&self, ports: &[(&dyn backend::Port, u64)], until: Instant) -> Result<()> {
        let ports: Vec<_> = ports
            .iter()
            .filter_map(|&(port, value)| {
                let port: &dyn Any = port;
                let port = &port.downcast_ref::<PlantedPort>()?.0;
                Some((port as &dyn backend::Port, value))
            })
            .collect();
        self.0.watch(&ports, until)
    }

    fn lends(&self) -> bool {
        self.0.lends()
    }

    fn nudge(&self) {
        if self.1 != Bug::NudgesLost {
            self.0.nudge();
        }
    }
}

/// A queue of a machine with a bug.
pub(crate) type PlantedQueue = EngineQueue<Planted>;

/// The clockwork's channel, with a bug in the commands or in how they are handed over.
pub(crate) struct Planted {
    device: PlantedDevice,
    inner: Channel,
    bug: Bug,
    count: AtomicU64,
    /// A list that is handed over with the next one.
    late: Mutex<Option<Vec<Command>>>,
    ticks: Ticks,
    leaked: Arc<Mutex<Vec<Arc<PlantedStamp>>>>,
}

fn wait(recorder: &mut Recorder<'_>, point: NativePoint<'_>, value: u64) -> Result<()> {
    let port = &point.port::<PlantedPort>().ok_or_else(unexpected)?.0;
    recorder.keep(port.keep());
    recorder.list.push(Command::Wait(port.handle(), value));
    Ok(())
}

fn signal(recorder: &mut Recorder<'_>, point: NativePoint<'_>) -> Result<()> {
    let port = &point.port::<PlantedPort>().ok_or_else(unexpected)?.0;
    recorder.keep(port.keep());
    recorder
        .list
        .push(Command::Signal(port.handle(), point.value()));
    Ok(())
}

impl Enqueue for Planted {
    type Device = PlantedDevice;
    type Recorder<'a> = Recorder<'a>;
    type Ready<'a> = ();
    type State = Vec<Command>;
    type Stamp = PlantedStamp;

    fn device(&self) -> &PlantedDevice {
        &self.device
    }

    fn in_flight_budget(&self) -> Option<&Arc<InFlightBudget>> {
        match self.bug {
            Bug::BoundIgnored => None,
            _ => self.inner.in_flight_budget(),
        }
    }

    fn order_domain(&self) -> Option<u64> {
        match self.bug {
            Bug::AllQueuesClaimOneOrder => Some(1),
            _ => self.inner.order_domain(),
        }
    }

    fn ready(&self) -> Option<()> {
        Some(())
    }

    fn record<W>(
        &self,
        (): (),
        list: &mut Vec<Command>,
        batch: &Batch<'_, Self>,
        keep: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()>,
    {
        list.clear();
        let mut recorder = Recorder::new(list, keep);
        let waits = match self.bug {
            Bug::WaitsAreForgotten => &[],
            Bug::OnlyTheFirstWaitCounts => &batch.waits[..batch.waits.len().min(1)],
            _ => batch.waits,
        };
        for &point in waits {
            let value = match self.bug {
                Bug::DeviceWaitsOneShort => point.value() - 1,
                _ => point.value(),
            };
            wait(&mut recorder, point, value)?;
        }
        let begin = recorder.list.len();
        if self.bug == Bug::SignalsBeforeTheWork {
            for &point in batch.signals {
                signal(&mut recorder, point)?;
            }
        }
        if self.bug == Bug::EndBeforeTheWork {
            signal(&mut recorder, batch.end)?;
        }
        let stamp = batch.stamp::<PlantedStamp>();
        let write = |recorder: &mut Recorder<'_>, now: bool| match &stamp {
            Some(stamp) if now => stamp.write(recorder),
            _ => {}
        };
        write(&mut recorder, self.bug == Bug::SignalTimesBeforeTheWork);
        let from = recorder.list.len();
        let worked = work(&mut recorder);
        if let Err(error) = worked {
            if self.bug == Bug::RefusedWorkGoesToTheDriver {
                for &point in batch.signals {
                    signal(&mut recorder, point)?;
                }
                // The engine hands over the queue's next submission at once.
                *lock(&self.late) = Some(std::mem::take(list));
            }
            return Err(error);
        }
        match self.bug {
            Bug::WorkRunsTwice => recorder.list.extend_from_within(from..),
            Bug::WorkIsLost => recorder.list.truncate(from),
            Bug::WorkRunsBackwards => recorder.list[from..].reverse(),
            Bug::WorkBeforeTheWaits => recorder.list.rotate_left(begin),
            _ => {}
        }
        write(&mut recorder, self.bug == Bug::SignalTimesBeforeTheOrder);
        if self.bug != Bug::OrderOfSignalsIgnored {
            for &point in batch.order {
                wait(&mut recorder, point, point.value())?;
            }
        }
        let elsewhere = matches!(
            self.bug,
            Bug::SignalTimesBeforeTheWork
                | Bug::SignalTimesBeforeTheOrder
                | Bug::SignalTimesAreNotWritten
        );
        write(&mut recorder, !elsewhere);
        let signals = match self.bug {
            Bug::SignalsBeforeTheWork => &[],
            Bug::OnlyTheFirstSignalCounts => &batch.signals[..batch.signals.len().min(1)],
            _ => batch.signals,
        };
        for &point in signals {
            signal(&mut recorder, point)?;
        }
        if self.bug != Bug::EndBeforeTheWork {
            signal(&mut recorder, batch.end)?;
        }
        match self.bug {
            Bug::DropFreesEarly => drop(std::mem::take(keep)),
            Bug::KeptForEver => std::mem::forget(std::mem::take(keep)),
            _ => {}
        }
        keep.take_in_flight(list.len() as u64);
        Ok(())
    }

    fn flush(&self, list: &mut Vec<Command>, waker: &dyn Fn() -> Waker) -> Flush {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        match self.bug {
            Bug::LockedQueueWakesNobody if count == 1 => Flush::Busy,
            Bug::ThirdListIsLost if count == 2 => Flush::Done,
            Bug::LaterSubmissionsOvertake => {
                // Every other list is handed over after the next one.
                let late = lock(&self.late).take();
                match late {
                    None => {
                        *lock(&self.late) = Some(std::mem::take(list));
                        Flush::Done
                    }
                    Some(late) => {
                        list.extend(late);
                        self.inner.flush(list, waker)
                    }
                }
            }
            Bug::RefusedWorkGoesToTheDriver => {
                let late = lock(&self.late).take().unwrap_or_default();
                list.splice(..0, late);
                self.inner.flush(list, waker)
            }
            _ => self.inner.flush(list, waker),
        }
    }

    fn stamp(&self, queue: &Object, timing: Timing) -> Result<Arc<PlantedStamp>> {
        let stamp = Arc::new(PlantedStamp {
            inner: self.inner.stamp(queue, timing)?,
            bug: self.bug,
            early: OnceLock::new(),
            at_the_call: self.ticks.now(),
        });
        if self.bug == Bug::ClockedStampsLeak && timing == Timing::Clock {
            lock(&self.leaked).push(stamp.clone());
        }
        Ok(stamp)
    }

    fn write_stamp(recorder: &mut Recorder<'_>, stamp: ToWrite<'_, Self>) -> Result<()> {
        stamp.write(recorder);
        Ok(())
    }
}

/// A time that is read wrongly.
pub(crate) struct PlantedStamp {
    inner: Arc<Stamp>,
    bug: Bug,
    early: OnceLock<Instant>,
    /// The machine's clock when the fence was recorded.
    at_the_call: i64,
}

impl PlantedStamp {
    fn write(&self, recorder: &mut Recorder<'_>) {
        if self.bug == Bug::TimeIsWrittenAtTheCall {
            let _ = self.early.set(Instant::now());
        }
        self.inner.write(recorder);
    }

    /// Returns the time as its lowest 20 bits show it.
    fn cut(&self) -> Result<i64> {
        Ok(self.inner.read()? % ((TICK as i64) << 20))
    }
}

impl backend::Stamp for PlantedStamp {
    fn nanoseconds_since(&self, start: &dyn backend::Stamp) -> Result<i64> {
        let start: &dyn Any = start;
        let start = start.downcast_ref::<Self>().ok_or_else(unexpected)?;
        if let (Some(start), Some(end)) = (start.early.get(), self.early.get()) {
            return Ok(end.duration_since(*start).as_nanos() as i64);
        }
        let right = self.inner.nanoseconds_since(&*start.inner)?;
        Ok(match self.bug {
            Bug::WrongTickPeriod => right / TICK as i64 * (TICK as i64 + 1),
            Bug::TicksForNanoseconds => right / TICK as i64,
            Bug::TicksWrapAround => self.cut()? - start.cut()?,
            Bug::FloatMilliseconds => (f64::from(right as f32 / 1e6) * 1e6) as i64,
            _ => right,
        })
    }

    fn time(&self) -> Result<Option<i64>> {
        let right = self.inner.read()?;
        Ok(Some(match self.bug {
            Bug::ClockedTimesAreTicks => right / TICK as i64,
            Bug::ClockedTimesWrapAround => self.cut()?,
            Bug::ClockedTimesAreOfTheCall => self.at_the_call,
            _ => right,
        }))
    }
}
