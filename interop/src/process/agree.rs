//! Negotiation between processes: everybody's needs come to everybody, each process finds the answer by itself, and they compare what they found.

use std::fmt;
use std::sync::{MutexGuard, TryLockError};
use std::time::Duration;

use syncline_core::{Error, Result};

use super::Endpoint;
use super::message::{MOST, Message};
use super::parties::{Agreed, MOST_PARTIES, write_links, write_parties};
use super::socket::Patience;
use super::wire::{TooMuch, Writer, digest};
use crate::negotiate::{Conflict, Party, Plan, Process, Requirements, negotiate};

/// For how long one of several is waited for before another has its turn.
const TURN: Duration = Duration::from_millis(50);

/// What the other side is to do first.
const NEEDS: &str = "say what it needs";

/// Why processes have not come to a plan.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Disagreement {
    /// Their needs do not go together, which each of them has found.
    Conflict(Conflict),
    /// They could not find out together.
    Error(Error),
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(conflict) => fmt::Display::fmt(conflict, f),
            Self::Error(error) => fmt::Display::fmt(error, f),
        }
    }
}

/// Has no source: its text is the one of what it holds.
impl std::error::Error for Disagreement {}

impl From<Error> for Disagreement {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Conflict> for Disagreement {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict)
    }
}

impl Requirements {
    /// The same parties, of which this process also tells that it has these endpoints. See [`Endpoint::negotiate`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use syncline::negotiate::{Party, Requirements};
    /// # use syncline::process::Endpoint;
    /// # fn agree(middle: &Endpoint, third: &Endpoint) -> Result<(), syncline::process::Disagreement> {
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
        peers.fold(self, |told, peer| told.linked(this, *peer.peer()))
    }
}

impl Endpoint {
    /// One plan for what this process needs and what the other one does, and those behind it: both call this, each with its own parties, and each
    /// gets the same plan. Nothing is made. Waits up to `timeout` for the other side, which may come to it later.
    ///
    /// Each side computes the answer by itself, from the same needs ([`negotiate`](crate::negotiate::negotiate)), and compares a digest of both with
    /// the other side's: so two versions of this library that would decide differently find out. There may be 32 parties in all.
    /// After an error both call it again.
    ///
    /// The plan's home, the process that makes the object, needs an endpoint to each other process. Each side tells that it
    /// has this endpoint, and of no other. A process that has endpoints to further processes which take part names them by
    /// [`Requirements::reaching`], so that it may be the home, too. At most 32 endpoints are told of in all.
    ///
    /// # Errors
    /// * [`Disagreement::Conflict`], the same on both sides, if the needs do not go together.
    /// * [`Error::Unsupported`] if `own` has a party of another process, one that no message can carry (of a backend outside of this library, or
    ///   with a name of more than 256 bytes), or too many; or if the endpoint is negotiating already. Nothing was sent.
    /// * [`Error::Message`] if the other side tells parties of this process, or has found another answer. The endpoint can be used still.
    /// * [`Error::PeerSilent`], and what ends an endpoint.
    pub fn negotiate(
        &self,
        own: impl Into<Requirements>,
        timeout: Duration,
    ) -> Result<Plan, Disagreement> {
        negotiate_among(own, &[self], timeout)
    }
}

/// One plan for what this process needs and all the others do, with this one in the middle: each of them calls [`Endpoint::negotiate`] on its end. This
/// process hears them all, and tells each what everybody else needs. That it has an endpoint to each of `peers` is told, too. A peer that
/// has endpoints to others says so by [`Requirements::reaching`].
///
/// # Errors
/// As [`Endpoint::negotiate`]. Also [`Error::Message`] if one process tells parties of another.
pub fn negotiate_among(
    own: impl Into<Requirements>,
    peers: &[&Endpoint],
    timeout: Duration,
) -> Result<Plan, Disagreement> {
    let (mut own, patience) = (own.into(), Patience::of(timeout));
    let mut talks = Vec::with_capacity(peers.len());
    for peer in peers {
        only_of_this_process(peer, &own)?;
        talks.push(Talk::begin(peer)?);
    }
    // The plan is carried out over these endpoints, so its home has to be where they lead to all.
    own = own.reaching(peers);
    let mut theirs: Vec<Requirements> = Vec::with_capacity(peers.len());
    if let [talk] = &mut talks[..] {
        // Neither side waits for the other to begin.
        talk.tell(&own, true, patience)?;
        theirs.push(talk.hear(Some(&own), patience)?);
    } else {
        // So that those hear of it who have told what they need in a round that was given up.
        for talk in &talks {
            talk.tell(&own, false, patience)?;
        }
        let still = |talk: &Talk<'_>| talk.endpoint.check();
        theirs = each(&mut talks, patience, still, |talk, patience| {
            talk.hear(None, patience)
        })?;
        for (talk, needs) in talks.iter().zip(&mut theirs) {
            only_of_their_own(talk.endpoint, needs.parties(), peers)?;
            // A process knows its own endpoints alone.
            needs.keep_links_of(*talk.endpoint.peer());
        }
        for (at, talk) in talks.iter().enumerate() {
            let others = theirs.iter().enumerate().filter(|(other, _)| *other != at);
            let others = others.map(|(_, parties)| parties.clone());
            let all = others.fold(own.clone(), Requirements::and);
            talk.tell(&all, true, patience)?;
        }
    }
    let all = theirs.into_iter().fold(own, Requirements::and);
    let answer = negotiate(all.clone());
    for talk in &talks {
        talk.say(&all, answer.as_ref().ok(), patience)?;
    }
    // Who has answered may go.
    let still = |_: &Talk<'_>| Ok(());
    each(&mut talks, patience, still, |talk, patience| {
        talk.compare(&all, answer.as_ref().ok(), patience)
    })?;
    Ok(answer?)
}

/// Asks each, and waits for all answers. What goes wrong with any ends it, also while another is waited for: with one that has answered, what is `still` to be.
pub(super) fn each<S, T>(
    all: &mut [S],
    patience: Patience,
    mut still: impl FnMut(&S) -> Result<()>,
    mut ask: impl FnMut(&mut S, Patience) -> Result<T>,
) -> Result<Vec<T>> {
    let mut answers: Vec<Option<T>> = all.iter().map(|_| None).collect();
    loop {
        for (one, answer) in all.iter_mut().zip(&mut answers) {
            if answer.is_some() {
                still(one)?;
                continue;
            }
            match ask(one, patience.slice(TURN)) {
                Ok(found) => *answer = Some(found),
                Err(mut error) if error.is_timeout() => {
                    if patience.is_over() {
                        if let Error::PeerSilent { waited, .. } = &mut error {
                            *waited = patience.waited();
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
        Some(party) => Err(Error::Unsupported {
            object: endpoint.object().clone(),
            asked: format!("negotiate for {party}"),
            reason: format!("each process speaks for its own parties, and this is {this}"),
        }),
    }
}

/// None of a process that another endpoint leads to.
fn only_of_their_own(endpoint: &Endpoint, parties: &[Party], peers: &[&Endpoint]) -> Result<()> {
    let elsewhere = |party: &&Party| {
        let process = party.id().process;
        process != *endpoint.peer() && peers.iter().any(|peer| process == *peer.peer())
    };
    match parties.iter().find(elsewhere) {
        None => Ok(()),
        Some(party) => Err(endpoint.connection().unexpected(
            format!("what {} itself needs", endpoint.peer()),
            format!("what {party} does"),
        )),
    }
}

/// One endpoint's part of a negotiation.
struct Talk<'e> {
    endpoint: &'e Endpoint,
    /// Which negotiation over this endpoint it is. Somebody may have given up an earlier one; what was sent for that is thrown away.
    round: MutexGuard<'e, u32>,
}

impl<'e> Talk<'e> {
    fn begin(endpoint: &'e Endpoint) -> Result<Self> {
        endpoint.check()?;
        let mut round = match endpoint.connection().rounds.try_lock() {
            Ok(round) => round,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Unsupported {
                    object: endpoint.object().clone(),
                    asked: "negotiate".into(),
                    reason: "it is doing so already".into(),
                });
            }
        };
        *round = round.wrapping_add(1);
        Ok(Self { endpoint, round })
    }

    /// Sends what is needed on this side, or what is known of that so far.
    fn tell(&self, needs: &Requirements, is_all: bool, patience: Patience) -> Result<()> {
        let message = Message::Requirements {
            round: *self.round,
            is_all,
            parties: needs.parties().to_vec(),
            links: needs.links().to_vec(),
        };
        self.endpoint.send(&message, &[], patience)
    }

    /// All that is needed on the other side. If that is in a later round, so is this one from now on, and what was told before is told again.
    fn hear(&mut self, told: Option<&Requirements>, patience: Patience) -> Result<Requirements> {
        loop {
            let (round, is_all, needs) = self.next(patience)?;
            if round != *self.round {
                *self.round = round;
                if let Some(told) = told {
                    self.tell(told, true, patience)?;
                }
            }
            if !is_all {
                // Of these there may be any number.
                if patience.is_over() {
                    return Err(self.endpoint.connection().silent(NEEDS, patience));
                }
                continue;
            }
            let this = Process::this();
            // Whatever it says of its start.
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

    fn next(&self, patience: Patience) -> Result<(u32, bool, Requirements)> {
        let connection = self.endpoint.connection();
        connection.receive(NEEDS, patience, |inbox| {
            inbox.discard(|message| is_before(message, *self.round));
            let is_told = |message: &Message| matches!(message, Message::Requirements { .. });
            match inbox.letter(is_told)?.message {
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

    /// Says what this side has found.
    fn say(&self, all: &Requirements, plan: Option<&Plan>, patience: Patience) -> Result<()> {
        let agreed = self.found(all, plan)?;
        self.endpoint.send(&Message::Agreed(agreed), &[], patience)
    }

    /// Waits for what the other side has found, which has to be the same.
    fn compare(&self, all: &Requirements, plan: Option<&Plan>, patience: Patience) -> Result<()> {
        let connection = self.endpoint.connection();
        let round = *self.round;
        let found = connection.receive("say what it has found", patience, |inbox| {
            inbox.discard(|message| is_before(message, round));
            let answer = inbox.letter(|message| matches!(message, Message::Agreed(_)));
            match answer.map(|letter| letter.message) {
                Some(Message::Agreed(agreed)) => Some(Some(agreed)),
                // It has given this round up. What it has sent for the next stays.
                _ if inbox.has(|message| is_after(message, round)) => Some(None),
                _ => None,
            }
        })?;
        let ours = self.found(all, plan)?;
        match found {
            Some(theirs) if theirs == ours => Ok(()),
            Some(theirs) => Err(connection.unexpected(
                format!("the answer that this process has found: {}", worded(&ours)),
                worded(&theirs),
            )),
            None => Err(connection.unexpected(
                format!("the answer to round {round}"),
                "the beginning of another round",
            )),
        }
    }

    fn found(&self, all: &Requirements, plan: Option<&Plan>) -> Result<Agreed> {
        let parties = all.parties();
        // Twice as much as the needs take, for the answer.
        let mut buffer = vec![0; 2 * MOST];
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
        let too_many = |_| TooMuch {
            what: "parties",
            most: MOST_PARTIES,
        };
        written
            .map_err(too_many)
            .map_err(|what| self.endpoint.connection().unsendable(what))?;
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

fn worded(agreed: &Agreed) -> String {
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

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_disagreement_tells_its_error_once() {
        let error = Error::work(std::io::Error::other("broken"));
        let disagreement = Disagreement::from(error);
        assert_eq!(disagreement.to_string().matches("broken").count(), 1);
        assert!(disagreement.source().is_none());
    }
}
