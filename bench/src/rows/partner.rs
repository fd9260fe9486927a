//! The partner of round trips: a thread, or a process of its own.
//!
//! It follows orders that are written to shared words.

use std::cell::Cell;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use syncline::negotiate::{Made, Mechanism, Party, Plan};
use syncline::process::Endpoint;
use syncline::{
    Device, SignalOnly, Timeline, WaitMode, WaitOnly,
    handle::{Rejected, SharedWords},
    host,
};

use crate::raw::child::{self, Kept};
use crate::raw::futex::{Futex, Sleep, Timespec};
use crate::raw::packets::{Care, Packets};
use crate::side::{Outcome, Side, Stop, timed};

/// Time-out of all waits.
const LONG: Duration = Duration::from_secs(20);

/// The same as [`LONG`].
const TIMEOUT: Timespec = Timespec {
    tv_sec: 20,
    tv_nsec: 0,
};

/// Words between two counters, so that each has a cache line of its own.
const STRIDE: usize = 32;
const PING: usize = 0;
const PONG: usize = STRIDE;
/// The number of orders. The words behind it hold the last order.
///
/// They are the side, the number of round trips, and whether waits sleep at once.
const ORDERS: usize = 2 * STRIDE;
const ORDER: [usize; 3] = [ORDERS + 2, ORDERS + 3, ORDERS + 4];
/// The number of orders that the partner has begun.
const BEGUN: usize = 3 * STRIDE;
const BYTES: u64 = 4 * 4 * STRIDE as u64;

/// The kinds of round trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Way {
    /// Two timelines.
    Timelines,
    /// Two futex words.
    Words,
    /// As [`Way::Words`], with waits that a second word and a time-out could end.
    CarefulWords,
    /// Points over an endpoint.
    Points,
    /// Messages of 32 bytes over a socket.
    Packets,
    /// As [`Way::Packets`], with a time-out and with the credentials of the sender.
    CarefulPackets,
    /// Ends the partner.
    End,
}

impl Way {
    const ALL: [Self; 7] = [
        Self::Timelines,
        Self::Words,
        Self::CarefulWords,
        Self::Points,
        Self::Packets,
        Self::CarefulPackets,
        Self::End,
    ];

    const fn care(self) -> Care {
        match self {
            Self::CarefulPackets => Care::Least,
            _ => Care::None,
        }
    }
}

/// How waits of a round trip begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    mode: WaitMode,
    spin: Duration,
}

impl Pace {
    /// With spinning.
    pub(super) const SPINNING: Self = Self {
        mode: WaitMode::Adaptive,
        spin: WaitMode::SPIN,
    };
    /// With sleep.
    pub(super) const SLEEPING: Self = Self {
        mode: WaitMode::Block,
        spin: Duration::ZERO,
    };
}

/// The connections between two processes.
struct Link {
    endpoint: Endpoint,
    packets: Packets,
    /// Kept alive, so that the endpoint can name both timelines.
    _made: [Made; 2],
}

/// One end of the round trips.
///
/// Of each kind it has the counter that it signals and the counter that it waits for.
pub(super) struct End {
    told: SignalOnly,
    heard: WaitOnly,
    words: SharedWords,
    tells: usize,
    hears: usize,
    /// `None` between threads.
    link: Option<Link>,
    /// The second word of careful waits. It never ends one.
    never: AtomicU32,
    /// The number of past round trips of each way.
    gone: [Cell<u64>; Way::ALL.len()],
}

impl End {
    fn new(
        told: SignalOnly,
        heard: WaitOnly,
        words: SharedWords,
        is_first: bool,
        link: Option<Link>,
    ) -> Self {
        let (tells, hears) = if is_first { (PING, PONG) } else { (PONG, PING) };
        Self {
            told,
            heard,
            words,
            tells,
            hears,
            link,
            never: AtomicU32::new(0),
            gone: Default::default(),
        }
    }

    fn futex(&self, at: usize) -> Outcome<Futex<'_>> {
        let words = self.words.words().get(at..);
        let found = words.and_then(Futex::shared);
        found.ok_or_else(|| Stop::Failed("there are too few words".into()))
    }

    fn link(&self) -> Outcome<&Link> {
        let none = || Stop::Failed("it has no other process".into());
        self.link.as_ref().ok_or_else(none)
    }

    /// Prepares this end. To be called on both ends before `go`.
    fn prepare(&self, way: Way) -> Outcome<()> {
        match way {
            Way::Packets | Way::CarefulPackets => self.link()?.packets.prepare(way.care()),
            _ => Ok(()),
        }
    }

    /// Makes `times` round trips. The end with `begins` signals before it waits.
    fn go(&self, way: Way, pace: Pace, times: u64, begins: bool) -> Outcome<()> {
        let gone = &self.gone[way as usize];
        let first = gone.get() + 1;
        gone.set(gone.get() + times);
        let values = first..first + times;
        let (told, heard) = (&self.told, &self.heard);
        let and_back = |tell: &dyn Fn(u64) -> Outcome<()>, hear: &dyn Fn(u64) -> Outcome<()>| {
            values.clone().try_for_each(|value| {
                if begins {
                    tell(value)?;
                    hear(value)
                } else {
                    hear(value)?;
                    tell(value)
                }
            })
        };
        match way {
            Way::Timelines => and_back(&|value| Ok(told.signal(value)?), &|value| {
                Ok(heard.at(value).wait_with(pace.mode, LONG)?)
            }),
            Way::Words | Way::CarefulWords => {
                let (tells, hears) = (self.futex(self.tells)?, self.futex(self.hears)?);
                let sleep = match way {
                    Way::Words => Sleep::Long,
                    _ => Sleep::ForOr(&TIMEOUT, &self.never),
                };
                // Both kinds use the same words.
                let other = self.gone
                    [(Way::Words as usize + Way::CarefulWords as usize) - way as usize]
                    .get();
                and_back(
                    &|value| {
                        tells.signal((value + other) as u32);
                        Ok(())
                    },
                    &|value| {
                        hears.wait((value + other) as u32, pace.spin, sleep);
                        Ok(())
                    },
                )
            }
            Way::Points => {
                let endpoint = &self.link()?.endpoint;
                and_back(
                    &|value| Ok(endpoint.send_point(heard.at(value), LONG)?),
                    &|value| same(endpoint.receive_point(LONG)?.point().value(), value),
                )
            }
            Way::Packets | Way::CarefulPackets => {
                let packets = &self.link()?.packets;
                and_back(&|value| packets.send(value), &|value| {
                    same(packets.receive(way.care())?, value)
                })
            }
            Way::End => Ok(()),
        }
    }

    /// Follows orders until the last one.
    fn serve(&self) -> Outcome<()> {
        let (orders, begun) = (self.futex(ORDERS)?, self.futex(BEGUN)?);
        let words = self.words.words();
        for order in 1.. {
            orders.wait(order, Duration::ZERO, Sleep::Long);
            let [way, times, sleeps] = ORDER.map(|at| words[at].load(Ordering::SeqCst));
            let way = Way::ALL.into_iter().find(|known| *known as u32 == way);
            let Some(way) = way.filter(|way| *way != Way::End) else {
                break;
            };
            let pace = if sleeps == 0 {
                Pace::SPINNING
            } else {
                Pace::SLEEPING
            };
            self.prepare(way)?;
            begun.signal(order);
            self.go(way, pace, times.into(), false)?;
        }
        Ok(())
    }
}

fn same(found: u64, expected: u64) -> Outcome<()> {
    if found == expected {
        return Ok(());
    }
    Err(Stop::Failed(format!("{found} came in place of {expected}")))
}

/// The partner.
enum Other {
    Thread(Option<JoinHandle<Outcome<()>>>),
    Process(#[expect(dead_code, reason = "it lives as long as this")] Kept),
}

/// This end of the round trips, and the thread or process with the other end.
pub(super) struct Partner {
    own: End,
    pace: Pace,
    orders: Cell<u32>,
    other: Other,
}

impl Drop for Partner {
    fn drop(&mut self) {
        // After a failed race the partner may wait for a signal that never comes.
        self.own.told.fail(ended());
        let _ = self.order(Way::End, 0);
        if let Other::Thread(thread) = &mut self.other
            && let Some(thread) = thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn ended() -> syncline::Error {
    syncline::Error::work(Stop::Skipped("the race is over".into()))
}

impl Partner {
    fn new(own: End, pace: Pace, other: Other) -> Self {
        Self {
            own,
            pace,
            orders: Cell::new(0),
            other,
        }
    }

    /// A thread of this process, with two counters in shared memory as the homes of the timelines.
    pub(super) fn thread(device: &host::Device, pace: Pace) -> Outcome<Self> {
        let counter = |label| -> Outcome<Timeline> {
            let (home, _) = device.exportable_port(0)?;
            Ok(Timeline::new(label, 0, |_| {
                Ok([home].into_iter().collect())
            })?)
        };
        let (ping, pong) = (Arc::new(counter("ping")?), Arc::new(counter("pong")?));
        let words = SharedWords::new(BYTES)?;
        let own = End::new(
            ping.signal_only(),
            pong.wait_only(),
            words.clone(),
            true,
            None,
        );
        let thread = thread::spawn(move || {
            End::new(pong.signal_only(), ping.wait_only(), words, false, None).serve()
        });
        Ok(Self::new(own, pace, Other::Thread(Some(thread))))
    }

    /// A process of its own, over the connections that two processes share.
    pub(super) fn process(device: &host::Device, pace: Pace) -> Outcome<Self> {
        let (ours, theirs) = Endpoint::pair()?;
        let (packets, their_packets) = Packets::pair()?;
        let child = child::keep("partner", theirs, their_packets)?;
        let endpoint = Endpoint::open(ours, "row", LONG).map_err(reason)?;
        let [ping, pong] = agreed(device, &endpoint, true)?;
        let words = SharedWords::new(BYTES)?;
        endpoint.send_words("words", &words, LONG)?;
        let party = Party::of(device).id();
        let made = made(device, &endpoint, [&ping, &pong])?;
        let [ping, pong] = &made;
        let (told, heard) = (ping.signal_only(party)?, pong.wait_only(party)?);
        let link = Link {
            endpoint,
            packets: Packets::new(packets),
            _made: made,
        };
        let own = End::new(told, heard, words, true, Some(link));
        Ok(Self::new(own, pace, Other::Process(child)))
    }

    fn order(&self, way: Way, times: u64) -> Outcome<u32> {
        let words = self.own.words.words();
        let sleeps = u32::from(self.pace == Pace::SLEEPING);
        for (at, what) in ORDER.into_iter().zip([way as u32, times as u32, sleeps]) {
            words[at].store(what, Ordering::SeqCst);
        }
        self.orders.set(self.orders.get() + 1);
        self.own.futex(ORDERS)?.signal(self.orders.get());
        Ok(self.orders.get())
    }

    /// Makes `times` round trips. Returns the time since the partner was ready.
    fn go(&self, way: Way, times: u64) -> Outcome<Duration> {
        self.own.prepare(way)?;
        let order = self.order(way, times)?;
        let begun = self.own.futex(BEGUN)?;
        begun.wait(order, Duration::ZERO, Sleep::Long);
        timed(|| self.own.go(way, self.pace, times, true))
    }

    /// The sides of a row: ours, raw and the floor.
    pub(super) fn sides(&self, [ours, raw, floor]: [Way; 3]) -> Vec<Side<'_>> {
        vec![
            Side::ours(move |n| self.go(ours, n)),
            Side::raw(move |n| self.go(raw, n)),
            Side::floor(move |n| self.go(floor, n)),
        ]
    }
}

fn reason<H>(rejected: Rejected<H>) -> Stop {
    rejected.error.into()
}

/// A plan for each direction, first for the timeline that the row's own process signals.
fn agreed(device: &host::Device, endpoint: &Endpoint, is_first: bool) -> Outcome<[Plan; 2]> {
    let plan = |signals: bool| -> Outcome<Plan> {
        let own = Party::of(device);
        let own = if signals { own.signals() } else { own.waits() };
        let plan = endpoint.negotiate(own, LONG)?;
        match plan.mechanism() {
            Mechanism::SharedMemory => Ok(plan),
            other => Err(Stop::Failed(format!("the two agree on {other}"))),
        }
    };
    Ok([plan(is_first)?, plan(!is_first)?])
}

fn made(device: &host::Device, endpoint: &Endpoint, plans: [&Plan; 2]) -> Outcome<[Made; 2]> {
    let devices = [Device::Host(device.clone())];
    let [ping, pong] = plans;
    let make = |plan: &Plan, label| {
        let made = plan.make_across(label, 0, &devices, &[endpoint], LONG);
        made.map_err(Stop::from)
    };
    Ok([make(ping, "ping")?, make(pong, "pong")?])
}

/// The main function of the process that [`Partner::process`] starts.
pub(crate) fn partner() -> Outcome<()> {
    // Ends this process also if the parent is killed.
    let signal = Some(rustix::process::Signal::KILL);
    let _ = rustix::process::set_parent_process_death_signal(signal);
    let theirs = std::io::stdin().as_fd().try_clone_to_owned()?;
    let packets = std::io::stdout().as_fd().try_clone_to_owned()?;
    let device = host::Device::new();
    let endpoint = Endpoint::open(theirs, "partner", LONG).map_err(reason)?;
    let [ping, pong] = agreed(&device, &endpoint, false)?;
    let words = endpoint.receive_words("words", BYTES, LONG)?;
    let party = Party::of(&device).id();
    let made = made(&device, &endpoint, [&ping, &pong])?;
    let [ping, pong] = &made;
    let (told, heard) = (pong.signal_only(party)?, ping.wait_only(party)?);
    let link = Link {
        endpoint,
        packets: Packets::new(packets),
        _made: made,
    };
    End::new(told, heard, words, false, Some(link)).serve()
}
