//! How an object goes to other processes: to all of them or to none. What is said meanwhile is in `offers`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use syncline_core::{Error, HandleKind, Result};

use super::Endpoint;
use super::agree::poll_all;
use super::closing::PeerFd;
use super::message::{Content, LABEL, Message, Offer};
use super::offers::{Answer, Outcome};
use super::socket::Deadline;
use super::wire::shortened;

/// For how long, at the least, who has taken an object waits to hear what becomes of it; and then again, once it has said that it waits no longer.
const DECISION: Duration = Duration::from_millis(500);
/// Why an object is refused that came too late.
const TOO_LATE: &str = "it is too late";

/// What one process is sent, with the number that the object has there.
pub(super) struct OutgoingObject<'e> {
    pub(super) peer: &'e Endpoint,
    pub(super) offer: Offer,
    pub(super) fds: Vec<OwnedFd>,
}

/// Offers each process its part, hears that all have taken theirs, and tells them. If one does not, or the patience is over before, it is withdrawn from all.
///
/// Blocks as long as `patience` says, and at most [`DECISION`] longer where a process that has taken it reads nothing.
///
/// # Errors
/// [`Error::Import`] with what the first says that refuses; [`Error::PeerLost`], [`Error::PeerSilent`]. Nobody has it then, but for one case: where all have taken it
/// and one of them then reads nothing, that one is named, and others have it. One that dies there is as one that dies later: no error.
pub(super) fn hand_over(all: &[OutgoingObject<'_>], deadline: Deadline) -> Result<()> {
    let mut offered = Vec::with_capacity(all.len());
    match offer_to_all(all, &mut offered, deadline) {
        Ok(()) => {
            let deadline = deadline.at_least(DECISION);
            let settled = offered.into_iter().map(|offered| offered.settle(deadline));
            // Each is told, whatever became of the one before.
            let settled: Vec<_> = settled.collect();
            settled.into_iter().collect()
        }
        Err(error) => {
            let reason = match error.is_timeout() {
                true => String::new(),
                false => error.to_string(),
            };
            for offered in offered {
                offered.withdraw(&reason);
            }
            Err(error)
        }
    }
}

fn offer_to_all<'e>(
    all: &[OutgoingObject<'e>],
    offered: &mut Vec<SentOffer<'e>>,
    deadline: Deadline,
) -> Result<()> {
    for OutgoingObject { peer, offer, fds } in all {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        offered.push(peer.offer(offer, &fds, deadline)?);
    }
    let taken = |offered: &SentOffer<'_>, deadline| match offered.answer(deadline)? {
        Answer::Taken => Ok(()),
        Answer::Refused(reason) => Err(Error::Import {
            object: offered.endpoint.object().clone(),
            what: format!("{} in {}", offered.description, offered.endpoint.peer()),
            reason,
        }),
    };
    // One that has taken it may die, or run out of patience.
    let check = |offered: &SentOffer<'_>| {
        offered.endpoint.check()?;
        offered.endpoint.connection().pump();
        taken(offered, Deadline::after(Duration::ZERO))
    };
    poll_all(offered, deadline, check, |offered, deadline| {
        taken(offered, deadline)
    })?;
    offered.iter().try_for_each(check)
}

fn describe(content: Content, label: &str) -> String {
    format!("{} \"{}\"", content.name(), shortened(label, LABEL))
}

/// An object that this side has offered, and that is neither settled nor withdrawn. Dropped, it is withdrawn.
pub(super) struct SentOffer<'e> {
    endpoint: &'e Endpoint,
    number: u32,
    /// What it is.
    description: String,
    is_over: bool,
}

impl SentOffer<'_> {
    /// What the other side says of it. Once it was taken, that may change to refused.
    ///
    /// # Errors
    /// [`Error::PeerSilent`] if it has said nothing in time; and what has ended the endpoint.
    pub(super) fn answer(&self, deadline: Deadline) -> Result<Answer> {
        let connection = self.endpoint.connection();
        let received = connection.receive("", deadline, |inbox| inbox.offers.answer(self.number));
        received.map_err(|error| match error.is_timeout() {
            true => connection.silent(format!("say what became of {}", self.description), deadline),
            false => error,
        })
    }

    /// Tells it that everybody has taken it.
    ///
    /// # Errors
    /// [`Error::PeerSilent`], and the system's. If the other side is lost, that is none: it had taken it before.
    pub(super) fn settle(mut self, deadline: Deadline) -> Result<()> {
        self.over();
        let settled = Message::Settled {
            number: self.number,
        };
        match self.endpoint.send(&settled, &[], deadline) {
            Err(error @ (Error::PeerSilent { .. } | Error::Native { .. })) => Err(error),
            _ => Ok(()),
        }
    }

    /// Tells it that nobody is to have it. Does not block: if there is no room, it is told before the next object.
    pub(super) fn withdraw(mut self, reason: &str) {
        self.withdraw_now(reason);
    }

    fn withdraw_now(&mut self, reason: &str) {
        self.over();
        let unsent_withdrawals = self.endpoint.unsent_withdrawals().lock();
        unsent_withdrawals
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(Message::Withdrawn {
                number: self.number,
                reason: reason.into(),
            });
        // Whoever is lost has nothing, and whoever has no room hears of it later.
        let _ = self
            .endpoint
            .send_withdrawals(Deadline::after(Duration::ZERO));
    }

    fn over(&mut self) {
        self.is_over = true;
        let connection = self.endpoint.connection();
        connection.with_inbox(|inbox| inbox.offers.over(self.number));
    }
}

impl Drop for SentOffer<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.withdraw_now("");
        }
    }
}

/// An object of the other side's that a call has in hand. Dropped, it is left: what comes of it then is nobody's.
pub(super) struct ReceivedOffer<'e> {
    endpoint: &'e Endpoint,
    number: u32,
}

impl ReceivedOffer<'_> {
    fn note(&self, note: impl FnOnce(&mut super::offers::Offers, u32)) {
        let connection = self.endpoint.connection();
        connection.with_inbox(|inbox| note(&mut inbox.offers, self.number));
    }

    /// Says why this side does not take it. Whoever does not hear of it has a timeout of its own.
    pub(super) fn refuse(self, reason: &str, deadline: Deadline) {
        self.note(|offers, number| offers.refuse(number));
        let _ = self.say_refused(reason, deadline);
    }

    fn say_refused(&self, reason: &str, deadline: Deadline) -> Result<()> {
        let refused = Message::Refused {
            number: self.number,
            reason: reason.into(),
        };
        self.endpoint.send(&refused, &[], deadline)
    }

    /// Says that this side has taken it, and waits to hear whether all have: as long as `patience` says, and `decision` at the least. After that it says that it waits no
    /// longer, and gives the other side `decision` to say which came first.
    ///
    /// # Errors
    /// Nothing of both was heard; and what has ended the endpoint. Nobody is to keep what was taken.
    pub(super) fn take(self, deadline: Deadline, decision: Duration) -> Result<Outcome> {
        self.note(|offers, number| offers.take(number));
        let taken = Message::Taken {
            number: self.number,
        };
        self.endpoint.send(&taken, &[], deadline)?;
        let wait = |deadline| {
            let connection = self.endpoint.connection();
            connection.receive("say whether all have taken an object", deadline, |inbox| {
                inbox.offers.ended(self.number)
            })
        };
        wait(deadline.at_least(decision)).or_else(|silent| {
            if !silent.is_timeout() {
                return Err(silent);
            }
            let _ = self.say_refused(TOO_LATE, Deadline::after(Duration::ZERO));
            match wait(Deadline::after(decision)) {
                Ok(Outcome::Settled) => Ok(Outcome::Settled),
                Ok(Outcome::Withdrawn(_)) => Err(silent),
                Err(error) if error.is_timeout() => Err(silent),
                Err(error) => Err(error),
            }
        })
    }
}

impl Drop for ReceivedOffer<'_> {
    fn drop(&mut self) {
        self.note(|offers, number| offers.abandon(number));
    }
}

impl Endpoint {
    /// The next number for an object that this side offers; never 0, and below 2^31: in messages about points the highest bit says whose number it is.
    pub(crate) fn next_number(&self) -> u32 {
        let next = &self.connection().next_number;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed) & (u32::MAX >> 1);
            if number != 0 {
                return number;
            }
        }
    }

    /// Sends an object with its descriptors, one for each of its handles, in their order. They are duplicated on the way, and stay the caller's.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it is too large, or has another number of descriptors; and as every call.
    pub(super) fn offer(
        &self,
        offer: &Offer,
        fds: &[BorrowedFd<'_>],
        deadline: Deadline,
    ) -> Result<SentOffer<'_>> {
        if offer.handles.len() != fds.len() {
            return Err(Error::Unsupported {
                object: self.object().clone(),
                asked: format!("send {} descriptors", fds.len()),
                reason: format!("the message tells {}", offer.handles.len()),
            });
        }
        self.send_withdrawals(deadline)?;
        let number = offer.number;
        let connection = self.connection();
        // First, as the answer may be there before the call returns.
        connection.with_inbox(|inbox| inbox.offers.offer(number));
        self.send(&Message::Object(offer.clone()), fds, deadline)
            .inspect_err(|_| connection.with_inbox(|inbox| inbox.offers.unsent(number)))?;
        Ok(SentOffer {
            endpoint: self,
            number,
            description: describe(offer.content, &offer.label),
            is_over: false,
        })
    }

    /// Sends the withdrawals for which there was no room.
    fn send_withdrawals(&self, deadline: Deadline) -> Result<()> {
        let unsent_withdrawals = || {
            self.unsent_withdrawals()
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        loop {
            let Some(next) = unsent_withdrawals().pop_front() else {
                return Ok(());
            };
            if let Err(error) = self.send(&next, &[], deadline) {
                unsent_withdrawals().push_front(next);
                return Err(error);
            }
        }
    }

    /// The object of this kind and label that the other side offers next, once `accept` has made of it what it is to be, and everybody else has taken theirs. What
    /// `accept` makes is dropped otherwise. `None` of it is: that one is too late, and the next is waited for, as after one that was withdrawn because its time was over.
    ///
    /// Blocks as long as `patience` says, and at most twice [`DECISION`] longer where the other side offers something and then says nothing more.
    ///
    /// # Errors
    /// Those of `accept`, which the other side is told; [`Error::Import`] if it comes with opaque handles, or an event, from a process that is not [trusted](Self::trusts_handles), which is
    /// told, too; or if it is withdrawn, with the reason; [`Error::PeerSilent`], with what waits here besides; and what has ended the endpoint.
    pub(super) fn receive_and_settle<T>(
        &self,
        content: Content,
        label: &str,
        deadline: Deadline,
        mut accept: impl FnMut(Offer, Vec<PeerFd>) -> Result<Option<T>>,
    ) -> Result<T> {
        loop {
            let (received, offer, fds) = self.receive_object(content, label, deadline)?;
            match accept(offer, fds) {
                Ok(Some(made)) => match received.take(deadline, DECISION)? {
                    Outcome::Settled => return Ok(made),
                    Outcome::Withdrawn(reason) if reason.is_empty() => {}
                    Outcome::Withdrawn(reason) => {
                        return Err(Error::Import {
                            object: self.object().clone(),
                            what: describe(content, label),
                            reason: format!("it was withdrawn: {reason}"),
                        });
                    }
                },
                Ok(None) => received.refuse(TOO_LATE, deadline),
                Err(error) => {
                    received.refuse(&error.to_string(), deadline);
                    return Err(error);
                }
            }
            if deadline.has_passed() {
                return Err(self.not_offered(content, label, deadline));
            }
        }
    }

    /// The next object of this kind and label, with as many descriptors as it has handles, none of them looked at.
    ///
    /// # Errors
    /// As [`take_over`](Self::take_over).
    pub(super) fn receive_object(
        &self,
        content: Content,
        label: &str,
        deadline: Deadline,
    ) -> Result<(ReceivedOffer<'_>, Offer, Vec<PeerFd>)> {
        let shown = shortened(label, LABEL);
        let connection = self.connection();
        // What was withdrawn meanwhile goes first.
        connection.pump();
        let matches = |offer: &Offer| offer.content == content && offer.label == shown;
        let received =
            connection.receive("offer an object", deadline, |inbox| inbox.object(matches));
        let (offer, descriptors) = received.map_err(|error| match error.is_timeout() {
            true => self.not_offered(content, label, deadline),
            false => error,
        })?;
        let received = ReceivedOffer {
            endpoint: self,
            number: offer.number,
        };
        let mut kinds = offer.handles.iter().map(|handle| handle.kind);
        let opaque = kinds.find(|kind| is_opaque(*kind)).map(HandleKind::name);
        let opaque = opaque.or_else(|| offer.event.map(|_| "event"));
        let Some(opaque) = opaque.filter(|_| !self.trusts_handles()) else {
            return Ok((received, offer, descriptors.into_vec()));
        };
        drop(descriptors);
        let reason = format!(
            "no driver checks it, and {} is not trusted: Endpoint::trust_handles says that it is",
            self.peer(),
        );
        received.refuse(&reason, Deadline::after(Duration::ZERO));
        Err(Error::Import {
            object: self.object().clone(),
            what: format!("{opaque} of \"{}\"", offer.label),
            reason,
        })
    }

    /// It has not come, and what has instead.
    fn not_offered(&self, content: Content, label: &str, deadline: Deadline) -> Error {
        let connection = self.connection();
        let mut others = Vec::new();
        connection.with_inbox(|inbox| {
            let names = inbox
                .objects()
                .map(|other| describe(other.content, &other.label));
            others.extend(names);
        });
        let mut awaited = format!("offer {}", describe(content, label));
        if !others.is_empty() {
            awaited += &format!(" (there is {})", others.join(", "));
        }
        connection.silent(awaited, deadline)
    }
}

/// True for handles whose kind nobody can check.
const fn is_opaque(kind: HandleKind) -> bool {
    !matches!(
        kind,
        HandleKind::CounterMemfd
            | HandleKind::WordsMemfd
            | HandleKind::PollableFd
            | HandleKind::SyncFd
    )
}
