//! Negotiation between processes.
//!
//! Each process gets the needs of all parties and computes the result. Then the processes compare
//! their results.

use std::time::Duration;

use syncline_core::backend::kit::MutexGuard;
use syncline_core::{Error, Result};

use super::connection::naming_lost;
use super::endpoint::Endpoint;
use super::message::{MAX_MESSAGE, Message};
use super::parties::{Agreed, write_links, write_parties};
use super::poll::Deadline;
use super::wire::{Writer, digest};
use crate::any::Device;
#[cfg(doc)]
use crate::negotiate::Conflict;
use crate::negotiate::{Made, Party, Plan, Process, Requirements, negotiate};

/// How long one of several peers is waited for before the next is polled.
const POLL_SLICE: Duration = Duration::from_millis(50);

/// What the peer must do first, for timeout errors.
const AWAITED_NEEDS: &str = "say what it needs";

impl Requirements {
    /// Adds that this process has endpoints to `peers`. See [`Endpoint::negotiate`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use syncline::negotiate::{Party, Requirements};
    /// # use syncline::process::Endpoint;
    /// # fn agree(middle: &Endpoint, third: &Endpoint) -> syncline::Result<()> {
    /// // The process behind `middle` negotiates with this process and with the one behind `third`.
    /// let own = Requirements::from(Party::threads().signals()).reaching(&[third]);
    /// let plan = middle.negotiate(own, Duration::from_secs(5))?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn reaching(self, peers: &[&Endpoint]) -> Self {
        let this = Process::this();
        let peers = peers.iter();
        peers.fold(self, |needs, peer| needs.linked(this, *peer.peer()))
    }
}

impl Endpoint {
    /// Negotiates one plan for the parties of this process and of the peer.
    ///
    /// Both processes call this, each with its own parties, and both get the same plan. The peer
    /// may itself negotiate with further processes. No object is made. Waits up to `timeout` for
    /// the peer.
    ///
    /// Each side computes the plan from the same needs
    /// ([`negotiate`]). Then the sides compare a digest of needs and
    /// plan, so that different versions of this library detect different results. There can be up
    /// to 32 parties in total. After an error, both sides can call this again.
    ///
    /// The home of the plan needs an endpoint to each other process. Each side reports only this
    /// endpoint. A process that also has endpoints to further processes of the plan reports them
    /// with [`Requirements::reaching`], so that it can be the home. Up to 32 endpoints can be
    /// reported.
    ///
    /// # Errors
    /// * [`Error::Conflict`] if the needs are incompatible, with the same [`Conflict`] on both
    ///   sides.
    /// * [`Error::Unsupported`] if `own` has a party of another process, too many parties, or a
    ///   party that no message can carry: one of an unknown backend, or with a name of more than
    ///   256 bytes. Also if the endpoint is already negotiating. Nothing was sent then. The same
    ///   error if both processes together have too many parties or endpoints.
    /// * [`Error::Message`] if the peer sends parties of this process, or has found another result.
    ///   The endpoint stays usable.
    /// * [`Error::PeerSilent`], and the errors of [`Endpoint::check`].
    pub fn negotiate(&self, own: impl Into<Requirements>, timeout: Duration) -> Result<Plan> {
        negotiate_among(own, &[self], timeout)
    }

    /// Negotiates a plan with the peer, and makes its timeline.
    ///
    /// Both processes call this with the same label and with the needs of their own parties. This
    /// is [`negotiate`](Self::negotiate) followed by [`Plan::make_across`] from the value 0.
    /// `devices` has the devices of the parties. Waits up to `timeout` for each of the two.
    ///
    /// Keep the result as long as the timeline is used. Only one process may signal the timeline.
    /// For two directions make two timelines, in the same order in both processes.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use syncline::{Device, host, negotiate::Party, process::Endpoint};
    /// # const PATIENCE: Duration = Duration::from_secs(30);
    /// # fn produce(peer: &Endpoint) -> syncline::Result<()> {
    /// let device = Device::from(host::Device::new());
    /// let own = Party::of(&device);
    /// let needs = own.clone().signals(); // and `own.clone().waits()` in the other process
    /// let frames = peer.timeline("frames", needs, &[device], PATIENCE)?;
    /// frames.signal_only(own.id())?.signal(1)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of the two calls.
    pub fn timeline(
        &self,
        label: &str,
        own: impl Into<Requirements>,
        devices: &[Device],
        timeout: Duration,
    ) -> Result<Made> {
        let plan = self.negotiate(own, timeout)?;
        plan.make_across(label, 0, devices, &[self], timeout)
    }
}

/// Negotiates one plan for the parties of this process and of several peers.
///
/// This process is in the middle. It collects the needs of all peers and sends each peer the needs
/// of all others. Each peer calls [`Endpoint::negotiate`] on its end. This process reports its
/// endpoints to all `peers`. A peer with endpoints to others reports them with
/// [`Requirements::reaching`].
///
/// # Errors
/// Same errors as [`Endpoint::negotiate`]. Also [`Error::Message`] if a peer sends parties of
/// another peer's process.
pub fn negotiate_among(
    own: impl Into<Requirements>,
    peers: &[&Endpoint],
    timeout: Duration,
) -> Result<Plan> {
    let deadline = Deadline::after(timeout);
    // The negotiation's locks are released before devices are checked.
    naming_lost(negotiate_until(own.into(), peers, deadline), deadline)
}

fn negotiate_until(mut own: Requirements, peers: &[&Endpoint], deadline: Deadline) -> Result<Plan> {
    let mut negotiations = Vec::with_capacity(peers.len());
    for peer in peers {
        only_of_this_process(peer, &own)?;
        negotiations.push(PeerNegotiation::begin(peer)?);
    }
    // The plan is carried out over these endpoints, so they decide which process can be the home.
    own = own.reaching(peers);
    let mut theirs: Vec<Requirements> = Vec::with_capacity(peers.len());
    if let [negotiation] = &mut negotiations[..] {
        // Neither side waits for the other to begin.
        negotiation.send_needs(&own, true, deadline)?;
        theirs.push(negotiation.receive_needs(Some(&own), deadline)?);
    } else {
        // A peer that has sent its needs in an earlier, abandoned round learns of the new round.
        for negotiation in &negotiations {
            negotiation.send_needs(&own, false, deadline)?;
        }
        let check = |negotiation: &PeerNegotiation<'_>| negotiation.endpoint.check();
        theirs = poll_all(
            &mut negotiations,
            deadline,
            check,
            |negotiation, deadline| negotiation.receive_needs(None, deadline),
        )?;
        for (negotiation, needs) in negotiations.iter().zip(&mut theirs) {
            only_of_their_own(negotiation.endpoint, needs.parties(), peers)?;
            // A process may report only its own endpoints.
            needs.keep_links_of(*negotiation.endpoint.peer());
        }
        for (at, negotiation) in negotiations.iter().enumerate() {
            let others = theirs.iter().enumerate().filter(|(other, _)| *other != at);
            let others = others.map(|(_, parties)| parties.clone());
            let all = others.fold(own.clone(), Requirements::and);
            negotiation.send_needs(&all, true, deadline)?;
        }
    }
    let all = theirs.into_iter().fold(own, Requirements::and);
    let answer = negotiate(all.clone());
    for negotiation in &negotiations {
        negotiation.send_answer(&all, answer.as_ref().ok(), deadline)?;
    }
    // A peer that has answered may close its endpoint.
    let check = |_: &PeerNegotiation<'_>| Ok(());
    poll_all(
        &mut negotiations,
        deadline,
        check,
        |negotiation, deadline| negotiation.compare_answer(&all, answer.as_ref().ok(), deadline),
    )?;
    Ok(answer?)
}

/// Polls every item with `ask` until all have answered.
///
/// An error of any item ends it. `check` is called for the items that have answered.
pub(super) fn poll_all<S, T>(
    all: &mut [S],
    deadline: Deadline,
    mut check: impl FnMut(&S) -> Result<()>,
    mut ask: impl FnMut(&mut S, Deadline) -> Result<T>,
) -> Result<Vec<T>> {
    let mut answers: Vec<Option<T>> = all.iter().map(|_| None).collect();
    loop {
        for (one, answer) in all.iter_mut().zip(&mut answers) {
            if answer.is_some() {
                check(one)?;
                continue;
            }
            match ask(one, deadline.at_most(POLL_SLICE)) {
                Ok(found) => *answer = Some(found),
                Err(mut error) if error.is_timeout() => {
                    if deadline.has_passed() {
                        if let Error::PeerSilent { waited, .. } = &mut error {
                            *waited = deadline.waited();
                        }
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if answers.iter().all(Option::is_some) {
            return Ok(answers.into_iter().flatten().collect());
        }
    }
}

fn only_of_this_process(endpoint: &Endpoint, own: &Requirements) -> Result<()> {
    let this = Process::this();
    match own
        .parties()
        .iter()
        .find(|party| party.id().process != this)
    {
        None => Ok(()),
        Some(party) => Err(Error::unsupported(
            endpoint.object(),
            format!("negotiate for {party}"),
            format!("each process speaks for its own parties, and this is {this}"),
        )),
    }
}

/// Refuses parties of a process that another endpoint leads to.
fn only_of_their_own(endpoint: &Endpoint, parties: &[Party], peers: &[&Endpoint]) -> Result<()> {
    let elsewhere = |party: &&Party| {
        let process = party.id().process;
        process != *endpoint.peer() && peers.iter().any(|peer| process == *peer.peer())
    };
    match parties.iter().find(elsewhere) {
        None => Ok(()),
        Some(party) => Err(endpoint.connection().unexpected(
            format!("the needs of {} alone", endpoint.peer()),
            format!("the needs of {party}"),
        )),
    }
}

/// The state of a negotiation over one endpoint.
struct PeerNegotiation<'e> {
    endpoint: &'e Endpoint,
    /// The number of this negotiation. Messages of earlier, abandoned rounds are discarded.
    round: MutexGuard<'e, u32>,
}

impl<'e> PeerNegotiation<'e> {
    fn begin(endpoint: &'e Endpoint) -> Result<Self> {
        endpoint.check()?;
        let Some(round) = endpoint.connection().next_round() else {
            return Err(Error::unsupported(
                endpoint.object(),
                "negotiate",
                "it is doing so already",
            ));
        };
        Ok(Self { endpoint, round })
    }

    /// Sends the needs of this side. `is_all` is false if more needs follow.
    fn send_needs(&self, needs: &Requirements, is_all: bool, deadline: Deadline) -> Result<()> {
        let message = Message::Requirements {
            round: *self.round,
            is_all,
            parties: needs.parties().to_vec(),
            links: needs.links().to_vec(),
        };
        self.endpoint.send(&message, &[], deadline)
    }

    /// Receives all needs of the peer.
    ///
    /// If the peer is in a later round, switches to that round and sends the needs `sent` again.
    fn receive_needs(
        &mut self,
        sent: Option<&Requirements>,
        deadline: Deadline,
    ) -> Result<Requirements> {
        loop {
            let (round, is_all, needs) = self.next(deadline)?;
            if round != *self.round {
                *self.round = round;
                if let Some(sent) = sent {
                    self.send_needs(sent, true, deadline)?;
                }
            }
            if !is_all {
                // The peer may send any number of these.
                if deadline.has_passed() {
                    return Err(self.endpoint.connection().silent(AWAITED_NEEDS, deadline));
                }
                continue;
            }
            let this = Process::this();
            // Compare only the id: the peer could send any start time.
            let is_ours = |party: &&Party| party.id().process.id == this.id;
            return match needs.parties().iter().find(is_ours) {
                None => Ok(needs),
                Some(ours) => Err(self.endpoint.connection().unexpected(
                    "parties of other processes than this",
                    format!("that {ours} needs something"),
                )),
            };
        }
    }

    fn next(&self, deadline: Deadline) -> Result<(u32, bool, Requirements)> {
        let connection = self.endpoint.connection();
        connection.receive(AWAITED_NEEDS, deadline, |inbox| {
            inbox.discard(|message| is_before(message, *self.round));
            let is_needs = |message: &Message| matches!(message, Message::Requirements { .. });
            match inbox.take_message(is_needs)? {
                Message::Requirements {
                    round,
                    is_all,
                    parties,
                    links,
                } => {
                    let needs: Requirements = parties.into_iter().collect();
                    let links = links.into_iter();
                    let needs = links.fold(needs, |needs, (one, other)| needs.linked(one, other));
                    Some((round, is_all, needs))
                }
                _ => None,
            }
        })
    }

    /// Sends the result of this side.
    fn send_answer(
        &self,
        all: &Requirements,
        plan: Option<&Plan>,
        deadline: Deadline,
    ) -> Result<()> {
        let agreed = self.found(all, plan)?;
        self.endpoint.send(&Message::Agreed(agreed), &[], deadline)
    }

    /// Receives the result of the peer, which must be the same.
    fn compare_answer(
        &self,
        all: &Requirements,
        plan: Option<&Plan>,
        deadline: Deadline,
    ) -> Result<()> {
        let connection = self.endpoint.connection();
        let round = *self.round;
        let found = connection.receive("say what it has found", deadline, |inbox| {
            inbox.discard(|message| is_before(message, round));
            let answer = inbox.take_message(|message| matches!(message, Message::Agreed(_)));
            match answer {
                Some(Message::Agreed(agreed)) => Some(Some(agreed)),
                // The peer has abandoned this round. Its messages of the next round are kept.
                _ if inbox.has_message(|message| is_after(message, round)) => Some(None),
                _ => None,
            }
        })?;
        let ours = self.found(all, plan)?;
        match found {
            Some(theirs) if theirs == ours => Ok(()),
            Some(theirs) => Err(connection.unexpected(
                format!(
                    "the answer that this process has found: {}",
                    describe(&ours)
                ),
                describe(&theirs),
            )),
            None => Err(connection.unexpected(
                format!("the answer to round {round}"),
                "the beginning of another round",
            )),
        }
    }

    fn found(&self, all: &Requirements, plan: Option<&Plan>) -> Result<Agreed> {
        let parties = all.parties();
        // The needs fit in one message. The rest is for the result.
        let mut buffer = vec![0; 2 * MAX_MESSAGE];
        let mut to = Writer::new(&mut buffer);
        let written = write_parties(&mut to, parties)
            .and_then(|()| write_links(&mut to, all.links()))
            .and_then(|()| match plan {
                None => to.flag(false),
                Some(plan) => {
                    to.flag(true)?;
                    to.bytes(plan.mechanism().name().as_bytes())?;
                    to.bytes(plan.why().as_bytes())
                }
            });
        written.map_err(|what| self.endpoint.connection().unsendable(what))?;
        let length = to.length();
        Ok(Agreed {
            round: *self.round,
            mechanism: plan.map(Plan::mechanism),
            home: plan.map(|plan| plan.home().id()),
            parties: u32::try_from(parties.len()).unwrap_or(u32::MAX),
            digest: digest(buffer.get(..length).unwrap_or_default()),
        })
    }
}

fn is_before(message: &Message, round: u32) -> bool {
    message.round().is_some_and(|of| of < round)
}

fn is_after(message: &Message, round: u32) -> bool {
    message.round().is_some_and(|of| of > round)
}

fn describe(agreed: &Agreed) -> String {
    let Agreed {
        mechanism,
        home,
        parties,
        digest,
        round: _,
    } = agreed;
    match (mechanism, home) {
        (Some(mechanism), Some(home)) => {
            let (device, process) = (home.device, home.process);
            format!(
                "{mechanism}, made by device {device} of {process}, for {parties} parties ({digest:016x})"
            )
        }
        _ => format!("a conflict between {parties} parties ({digest:016x})"),
    }
}
