//! Sending an object to several processes, to all of them or to none. `offers` has the states.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use syncline_core::{Error, Result, handle::HandleKind};

use super::agree::poll_all;
use super::closing::PeerFd;
use super::connection::naming_lost;
use super::endpoint::Endpoint;
use super::message::{Content, MAX_LABEL, Message, Offer};
use super::offers::{Answer, MAX_OFFERS, Outcome};
use super::poll::Deadline;
use super::wire::shortened;

/// Minimum time for which a process that has taken an object waits for the decision.
///
/// After it has sent a refusal, it waits for this time once more.
const DECISION_TIMEOUT: Duration = Duration::from_millis(500);
/// The reason of a refusal after the deadline.
const TOO_LATE: &str = "it is too late";

/// An object for one peer, with its number at that peer.
pub(super) struct OutgoingObject<'e> {
    pub(super) peer: &'e Endpoint,
    pub(super) offer: Offer,
    pub(super) fds: Vec<OwnedFd>,
}

/// Offers each peer its object, waits until all have taken theirs, and settles all offers.
///
/// If a peer refuses, is lost or is too late, withdraws all offers. Blocks until `deadline`. Blocks
/// at most [`DECISION_TIMEOUT`] longer if a peer that has taken its object stops reading.
///
/// # Errors
/// [`Error::Import`] with the reason of the first refusal. [`Error::PeerLost`].
/// [`Error::PeerSilent`]. No peer has the object then, with one exception. If all peers have taken
/// it and one of them then stops reading, the error names that peer, and the others have the
/// object. A peer that dies after it has taken the object causes no error.
pub(super) fn hand_over(all: &[OutgoingObject<'_>], deadline: Deadline) -> Result<()> {
    naming_lost(offer_and_settle(all, deadline), deadline)
}

fn offer_and_settle(all: &[OutgoingObject<'_>], deadline: Deadline) -> Result<()> {
    let mut offered = Vec::with_capacity(all.len());
    match offer_to_all(all, &mut offered, deadline) {
        Ok(()) => {
            let deadline = deadline.at_least(DECISION_TIMEOUT);
            let settled = offered.into_iter().map(|offered| offered.settle(deadline));
            // Settle every offer, even if one before has failed.
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
        Answer::Refused(reason) => Err(Error::import(
            offered.endpoint.object(),
            format!("{} in {}", offered.description, offered.endpoint.peer()),
            reason,
        )),
    };
    // A peer that has taken its object may die, or refuse it after its deadline.
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

/// What the peer must do, for the timeout error of a call that waits for an object.
const OFFER: &str = "offer an object";

/// True for the timeout error of a call that waited for this, and not for an earlier message.
fn is_silent_about(error: &Error, sought: &str) -> bool {
    matches!(error, Error::PeerSilent { awaited, .. } if awaited == sought)
}

fn describe(content: Content, label: &str) -> String {
    format!("{} \"{}\"", content.name(), shortened(label, MAX_LABEL))
}

/// An offer of this side that is neither settled nor withdrawn. Dropping it withdraws the offer.
pub(super) struct SentOffer<'e> {
    endpoint: &'e Endpoint,
    number: u32,
    /// What it is.
    description: String,
    is_over: bool,
}

impl SentOffer<'_> {
    /// Waits for the peer's answer. The answer may change from taken to refused.
    ///
    /// # Errors
    /// [`Error::PeerSilent`], and the errors of [`Endpoint::check`].
    pub(super) fn answer(&self, deadline: Deadline) -> Result<Answer> {
        let connection = self.endpoint.connection();
        let received = connection.receive("", deadline, |inbox| inbox.offers().answer(self.number));
        let answer = || format!("say what became of {}", self.description);
        received.map_err(|error| match is_silent_about(&error, "") {
            true => connection.silent(answer(), deadline),
            false => error,
        })
    }

    /// Notifies the peer that all peers have taken their object.
    ///
    /// # Errors
    /// [`Error::PeerSilent`] and [`Error::Native`]. The loss of the peer is no error, because the
    /// peer had taken the object before.
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

    /// Withdraws the offer. Does not block.
    ///
    /// If the socket has no room, the withdrawal is sent before the next object.
    pub(super) fn withdraw(mut self, reason: &str) {
        self.withdraw_now(reason);
    }

    fn withdraw_now(&mut self, reason: &str) {
        self.over();
        self.endpoint
            .unsent_withdrawals()
            .lock()
            .push_back(Message::Withdrawn {
                number: self.number,
                reason: reason.into(),
            });
        // A lost peer has no object. A peer without room gets the withdrawal later.
        let _ = self
            .endpoint
            .send_withdrawals(Deadline::after(Duration::ZERO));
    }

    fn over(&mut self) {
        self.is_over = true;
        let connection = self.endpoint.connection();
        connection.with_inbox(|inbox| inbox.offers().end_own(self.number));
    }
}

impl Drop for SentOffer<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.withdraw_now("");
        }
    }
}

/// An offer of the peer that a call has received. Dropping it without an answer abandons it.
pub(super) struct ReceivedOffer<'e> {
    endpoint: &'e Endpoint,
    number: u32,
}

impl ReceivedOffer<'_> {
    fn note(&self, note: impl FnOnce(&mut super::offers::Offers, u32)) {
        let connection = self.endpoint.connection();
        connection.with_inbox(|inbox| note(inbox.offers(), self.number));
    }

    /// Refuses the offer. Errors are ignored, because the peer has its own timeout.
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

    /// Takes the offer and waits until it is settled or withdrawn.
    ///
    /// Waits until `deadline`, and at least for `decision`. Then it sends a refusal and waits for
    /// `decision` once more, because the peer may have settled the offer before.
    ///
    /// # Errors
    /// [`Error::PeerSilent`] without a decision, and the errors of [`Endpoint::check`]. The caller
    /// must drop the object then.
    pub(super) fn take(self, deadline: Deadline, decision: Duration) -> Result<Outcome> {
        self.note(|offers, number| offers.take(number));
        let taken = Message::Taken {
            number: self.number,
        };
        self.endpoint.send(&taken, &[], deadline)?;
        let wait = |deadline| {
            let connection = self.endpoint.connection();
            connection.receive("say whether all have taken an object", deadline, |inbox| {
                inbox.offers().ended(self.number)
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
    /// See [`Connection::next_number`](super::connection::Connection::next_number).
    pub(crate) fn next_number(&self) -> u32 {
        self.connection().next_number()
    }

    /// Sends an object with one descriptor for each of its handles, in their order.
    ///
    /// The kernel duplicates the descriptors. The caller keeps its own.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the message is too large, if the number of descriptors is wrong,
    /// or if [`MAX_OFFERS`] objects are open. [`Error::PeerSilent`], and the errors of
    /// [`Endpoint::check`].
    pub(super) fn offer(
        &self,
        offer: &Offer,
        fds: &[BorrowedFd<'_>],
        deadline: Deadline,
    ) -> Result<SentOffer<'_>> {
        if offer.handles.len() != fds.len() {
            return Err(Error::unsupported(
                self.object(),
                format!("send {} descriptors", fds.len()),
                format!("the message tells {}", offer.handles.len()),
            ));
        }
        self.send_withdrawals(deadline)?;
        let number = offer.number;
        let connection = self.connection();
        // Register the offer first, because the answer may come before the call returns.
        if !connection.with_inbox(|inbox| inbox.offers().offer(number)) {
            return Err(Error::unsupported(
                self.object(),
                "offer another object",
                format!("the peer has not yet taken or refused {MAX_OFFERS}"),
            ));
        }
        self.send(&Message::Object(offer.clone()), fds, deadline)
            .inspect_err(|_| connection.with_inbox(|inbox| inbox.offers().unsent(number)))?;
        Ok(SentOffer {
            endpoint: self,
            number,
            description: describe(offer.content, &offer.label),
            is_over: false,
        })
    }

    /// Sends the withdrawals that the socket had no room for.
    fn send_withdrawals(&self, deadline: Deadline) -> Result<()> {
        let unsent_withdrawals = || self.unsent_withdrawals().lock();
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

    /// Receives the next object of this kind and label, imports it, and waits until it is settled.
    ///
    /// `accept` imports the object. If the offer is not settled, the import is dropped. `None` of
    /// `accept` means that the offer is stale. After a stale offer, and after one that was
    /// withdrawn because of a timeout, waits for the next.
    ///
    /// Blocks until `deadline`, and at most twice [`DECISION_TIMEOUT`] longer if the peer stops
    /// responding.
    ///
    /// # Errors
    /// * The errors of `accept`. The peer gets them as the reason of a refusal.
    /// * [`Error::Import`] if the object has opaque handles or an event and the peer is not
    ///   [trusted](Self::trusts_handles). The peer gets that reason, too. Also if the offer is
    ///   withdrawn.
    /// * [`Error::PeerSilent`], with the objects that were offered instead.
    /// * The errors of [`Endpoint::check`].
    pub(super) fn receive_and_settle<T>(
        &self,
        content: Content,
        label: &str,
        deadline: Deadline,
        accept: impl FnMut(Offer, Vec<PeerFd>) -> Result<Option<T>>,
    ) -> Result<T> {
        let received = self.receive_until_settled(content, label, deadline, accept);
        naming_lost(received, deadline)
    }

    fn receive_until_settled<T>(
        &self,
        content: Content,
        label: &str,
        deadline: Deadline,
        mut accept: impl FnMut(Offer, Vec<PeerFd>) -> Result<Option<T>>,
    ) -> Result<T> {
        loop {
            let (received, offer, fds) = self.receive_object(content, label, deadline)?;
            match accept(offer, fds) {
                Ok(Some(made)) => match received.take(deadline, DECISION_TIMEOUT)? {
                    Outcome::Settled => return Ok(made),
                    Outcome::Withdrawn(reason) if reason.is_empty() => {}
                    Outcome::Withdrawn(reason) => {
                        return Err(Error::import(
                            self.object(),
                            describe(content, label),
                            format!("it was withdrawn: {reason}"),
                        ));
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

    /// Receives the next object of this kind and label, with one unchecked descriptor for each
    /// handle.
    ///
    /// # Errors
    /// Same errors as [`receive_and_settle`](Self::receive_and_settle), apart from those of
    /// `accept`.
    pub(super) fn receive_object(
        &self,
        content: Content,
        label: &str,
        deadline: Deadline,
    ) -> Result<(ReceivedOffer<'_>, Offer, Vec<PeerFd>)> {
        let shown = shortened(label, MAX_LABEL);
        let connection = self.connection();
        // Process withdrawals that have arrived.
        connection.pump();
        let matches = |offer: &Offer| offer.content == content && offer.label == shown;
        let received = connection.receive(OFFER, deadline, |inbox| inbox.object(matches));
        let (offer, descriptors) =
            received.map_err(|error| match is_silent_about(&error, OFFER) {
                true => self.not_offered(content, label, deadline),
                false => error,
            })?;
        let received = ReceivedOffer {
            endpoint: self,
            number: offer.number,
        };
        let mut kinds = offer.handles.iter().map(|handle| handle.kind);
        let opaque = kinds.find(|kind| kind.is_opaque()).map(HandleKind::name);
        let opaque = opaque.or_else(|| offer.event.map(|_| "event"));
        let Some(opaque) = opaque.filter(|_| !self.trusts_handles()) else {
            return Ok((received, offer, descriptors.into_vec()));
        };
        drop(descriptors);
        let reason = format!(
            "no driver checks it, and {} is not trusted: trust its handles first",
            self.peer(),
        );
        received.refuse(&reason, Deadline::after(Duration::ZERO));
        Err(Error::import(
            self.object(),
            format!("{opaque} of \"{}\"", offer.label),
            reason,
        ))
    }

    /// The timeout error, with the objects that were offered instead.
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
