//! A timeline that several processes have, while it lives in this one.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(doc)]
use syncline_core::SignalOnly;
use syncline_core::backend::{Counter, Survivors};
use syncline_core::{Error, KeptPoint, Object, PeerLoss, Point, Result, Signal, WeakTimeline};

use super::{Across, End, Waits};
use crate::negotiate::{Lines as Made, Process};
use crate::process::{Endpoint, Survivor};

/// What one endpoint knows of one timeline: whom to fail if the other process is lost.
pub(super) struct Line {
    endpoint: Object,
    /// The other process, which signals.
    peer: Process,
    /// Its end can be seen.
    watched: bool,
    survivors: Survivors,
    timeline: WeakTimeline,
    counter: Arc<Counter>,
    /// Of a binary semaphore, whose signals it counts.
    waits: Vec<Arc<Waits>>,
}

impl Survivor for Line {
    fn lost(&self, how: &PeerLoss) {
        // Who has left and lives goes on telling by the page what is pending and reached, and when it ends: until it dies, which is told, too.
        let lives = matches!(how, PeerLoss::Left | PeerLoss::ShutOut);
        if lives && self.watched {
            return;
        }
        let cause = Error::PeerLost {
            endpoint: self.endpoint.clone(),
            process: self.peer.id,
            how: *how,
        };
        // What it had said to be pending does not come any more.
        self.timeline
            .lose(&self.counter, cause.clone(), self.survivors);
        for waits in &self.waits {
            waits.lose(&cause);
        }
    }
}

impl Line {
    /// From here on messages can name the timeline, and it is failed if the process that signals it is lost.
    pub(super) fn start(
        across: &Across<'_>,
        lines: Made,
        counter: &Arc<Counter>,
        peers: &[(&Endpoint, u32)],
        ends: &[End],
    ) -> crate::negotiate::Made {
        let home = lines.home();
        let signaller = across.signaller();
        let mut all = Vec::new();
        for &(endpoint, number) in peers {
            let number = Number {
                ours: across.is_home(),
                number,
            };
            for line in lines.all() {
                endpoint.lines().add(number, line.downgrade());
            }
            all.push(Registered {
                endpoint: endpoint.clone(),
                line: None,
                number,
            });
        }
        // Whoever signals may have died in between: it is told at once then.
        let to_signaller = across.peers.iter();
        let to_signaller = to_signaller.copied().find(|peer| *peer.peer() == signaller);
        if let Some(endpoint) = to_signaller.filter(|_| signaller != across.here) {
            let line = Arc::new(Self {
                endpoint: endpoint.object().clone(),
                peer: signaller,
                watched: endpoint.watches_process().is_ok(),
                survivors: match *across.others() {
                    [_] => Survivors::One,
                    _ => Survivors::Several,
                },
                timeline: home.downgrade(),
                counter: counter.clone(),
                waits: ends.iter().filter_map(End::waits).cloned().collect(),
            });
            let survivor: Arc<dyn Survivor> = line;
            endpoint.survive(survivor.clone());
            all.push(Registered {
                endpoint: endpoint.clone(),
                line: Some(survivor),
                number: Number::NONE,
            });
        }
        let kept: Arc<Vec<Registered>> = Arc::new(all);
        let is_bridge = matches!(lines, Made::Each { .. });
        if signaller == across.here || is_bridge {
            return crate::negotiate::Made::across(across.plan.clone(), lines, Some(kept));
        }
        // For as long as there is a point of it, or a queue waits for it.
        home.follow(kept);
        crate::negotiate::Made::across(across.plan.clone(), lines, None)
    }
}

/// That an endpoint knows of a timeline.
struct Registered {
    endpoint: Endpoint,
    line: Option<Arc<dyn Survivor>>,
    number: Number,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.endpoint.lines().remove(self.number);
        if let Some(line) = &self.line {
            self.endpoint.forget(line);
        }
    }
}

/// An object's name in messages: the sender's numbers and the receiver's are two sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    /// This side has given it.
    ours: bool,
    number: u32,
}

/// In messages: the sender has given the number.
const SENDERS: u32 = 1 << 31;

impl Number {
    /// No object's.
    const NONE: Self = Self {
        ours: true,
        number: 0,
    };

    const fn sent(self) -> u32 {
        if self.ours {
            self.number | SENDERS
        } else {
            self.number
        }
    }

    const fn received(number: u32) -> Self {
        Self {
            ours: number & SENDERS == 0,
            number: number & !SENDERS,
        }
    }
}

/// The timelines that an endpoint can name; of a bridge all sides in this process have one name.
#[derive(Default)]
pub(crate) struct Lines(Mutex<Vec<(Number, WeakTimeline)>>);

impl Lines {
    fn list(&self) -> MutexGuard<'_, Vec<(Number, WeakTimeline)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, number: Number, line: WeakTimeline) {
        self.list().push((number, line));
    }

    fn remove(&self, number: Number) {
        let mut list = self.list();
        let (gone, kept) = std::mem::take(&mut *list)
            .into_iter()
            .partition(|(known, _)| *known == number);
        *list = kept;
        drop(list);
        drop::<Vec<_>>(gone);
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = self.list();
        f.debug_list().entries(list.iter().map(|(_, l)| l)).finish()
    }
}

impl Endpoint {
    /// Sends a point of a timeline that was [made](crate::negotiate::Plan::make_across) over this endpoint: a small message of fixed size, for which nothing is
    /// allocated (P2). It may be sent before it is pending, as the page beside the timeline tells that.
    ///
    /// Blocks for `timeout` at the most while the other process reads nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a point of another timeline; [`Error::PeerLost`], [`Error::PeerSilent`].
    pub fn send_point(&self, point: Point<'_>, timeout: Duration) -> Result<()> {
        self.name_and_send(point.value(), timeout, |line| line.has(point))
    }

    /// As [`Endpoint::send_point`], by who may [signal](SignalOnly) and nothing else: the point that this signal reaches.
    ///
    /// # Errors
    /// As there.
    pub fn send_signal(&self, signal: Signal<'_>, timeout: Duration) -> Result<()> {
        self.name_and_send(signal.value(), timeout, |line| line.has_signal(signal))
    }

    fn name_and_send(
        &self,
        value: u64,
        timeout: Duration,
        is_it: impl Fn(&WeakTimeline) -> bool,
    ) -> Result<()> {
        let number = {
            let list = self.lines().list();
            let known = list.iter().find(|(_, line)| is_it(line));
            known.map(|(number, _)| *number)
        };
        match number {
            Some(number) => self.send_point_of(number.sent(), value, timeout),
            None => Err(Error::Unsupported {
                object: self.object().clone(),
                asked: format!("send the value {value} of a timeline"),
                reason: "it was not made over this endpoint, or is gone here".into(),
            }),
        }
    }

    /// The next point that the other process sends, in the order in which it sent them. Nothing is allocated to receive it.
    ///
    /// # Errors
    /// [`Error::PeerSilent`] if none comes in time; [`Error::PeerLost`], once what came before that is received; [`Error::Message`] for a point of a timeline that this
    /// process does not have, or has no more, and the endpoint stays usable; other violations close it.
    pub fn receive_point(&self, timeout: Duration) -> Result<KeptPoint> {
        let (number, value) = self.receive_point_of(timeout)?;
        let number = Number::received(number);
        let known = {
            let list = self.lines().list();
            let mut known = list.iter().filter(|(known, _)| *known == number);
            known.find_map(|(_, line)| line.at(value))
        };
        match known {
            Some(point) => Ok(point),
            None => Err(Error::Message {
                endpoint: self.object().clone(),
                expected: "a point of a timeline that this process has".into(),
                found: format!("one of number {} at {value}", number.number),
            }),
        }
    }
}
