//! The states of the objects that were offered over an endpoint, in both directions.
//!
//! An offer has these steps. The offering side sends the object. The receiving side answers *taken*
//! or *refused*. The offering side sends *settled* once every receiver has taken its object, or
//! *withdrawn* at any time before. Each offer ends with one of these two, even after a refusal. A
//! receiver that has taken the object, and gets no decision until its timeout, then answers
//! *refused*.
//!
//! | message | `OwnOffer`: offered by this side | `PeerOffer`: offered by the peer |
//! |---|---|---|
//! | object | `Awaited` without an answer | `Queued`; `InHand` once a call has it |
//! | taken | `Awaited` with `Taken` | `Taken` |
//! | refused | `Awaited` with `Refused` | `Refused` |
//! | settled or withdrawn | `Over` | `Ended` until the call that has it reads that; otherwise removed |

use std::collections::VecDeque;

use super::wire::Malformed;

/// The most open offers in each direction.
///
/// Also the most ended offers of this side that are remembered.
pub(super) const MAX_OFFERS: usize = 1024;
/// Messages that may come about unknown objects or in a wrong state, before they are an error.
const MAX_STRAYS: usize = 16;

/// The peer's answer to an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Taken,
    /// With the reason.
    Refused(String),
}

/// How an offer of the peer ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Every receiver has taken it.
    Settled,
    /// No receiver has it. The reason is empty if the time was over.
    Withdrawn(String),
}

/// The state of an object that this side has offered.
enum OwnOffer {
    Awaited(Option<Answer>),
    /// The offer has ended. Answers that were under way are ignored.
    Over {
        /// A *taken* may still come, and then a *refused*. If false, only a *refused*.
        may_be_taken: bool,
    },
}

impl OwnOffer {
    const fn is_over(&self) -> bool {
        matches!(self, Self::Over { .. })
    }
}

/// The state of an object that the peer has offered.
enum PeerOffer {
    Queued,
    InHand,
    Taken,
    Refused,
    /// The call that had it ended without a decision of the peer.
    Abandoned,
    Ended(Outcome),
}

/// The offers of one endpoint.
#[derive(Default)]
pub(super) struct Offers {
    own: VecDeque<(u32, OwnOffer)>,
    theirs: Vec<(u32, PeerOffer)>,
    strays: usize,
}

/// Offers of this side.
impl Offers {
    /// Adds an offer. Call before sending it. False if [`MAX_OFFERS`] are open.
    ///
    /// The peer would end the connection if more were open.
    #[must_use]
    pub(super) fn offer(&mut self, number: u32) -> bool {
        let open = self.own.iter().filter(|(_, own)| !own.is_over()).count();
        if open >= MAX_OFFERS {
            return false;
        }
        self.own.push_back((number, OwnOffer::Awaited(None)));
        true
    }

    /// The peer's last answer.
    pub(super) fn answer(&self, number: u32) -> Option<Answer> {
        self.own.iter().find_map(|(of, own)| match own {
            OwnOffer::Awaited(answer) if *of == number => answer.clone(),
            _ => None,
        })
    }

    /// Ends an offer. No call waits for its answer any more.
    pub(super) fn end_own(&mut self, number: u32) {
        let Some(at) = self.own.iter().position(|(of, _)| *of == number) else {
            return;
        };
        let may_be_taken = match self.own.remove(at) {
            Some((_, OwnOffer::Awaited(None))) => true,
            Some((_, OwnOffer::Awaited(Some(Answer::Taken)))) => false,
            _ => return,
        };
        if self.own.iter().filter(|(_, own)| own.is_over()).count() >= MAX_OFFERS
            && let Some(oldest) = self.own.iter().position(|(_, own)| own.is_over())
        {
            self.own.remove(oldest);
        }
        self.own
            .push_back((number, OwnOffer::Over { may_be_taken }));
    }

    /// Removes an offer that was not sent.
    pub(super) fn unsent(&mut self, number: u32) {
        self.own.retain(|(of, _)| *of != number);
    }

    /// Processes an answer of the peer.
    ///
    /// # Errors
    /// After too many messages that fit no state.
    pub(super) fn answered(&mut self, number: u32, answer: Answer) -> Result<(), Malformed> {
        let at = self.own.iter().position(|(of, _)| *of == number);
        let own = at.and_then(|at| self.own.get_mut(at));
        match (own.map(|(_, own)| own), answer) {
            (Some(OwnOffer::Awaited(said @ None)), answer) => *said = Some(answer),
            (Some(OwnOffer::Awaited(said @ Some(Answer::Taken))), refused @ Answer::Refused(_)) => {
                *said = Some(refused);
            }
            (
                Some(OwnOffer::Over {
                    may_be_taken: may @ true,
                }),
                Answer::Taken,
            ) => *may = false,
            (Some(OwnOffer::Over { .. }), Answer::Refused(_)) => {
                self.own.retain(|(of, _)| *of != number);
            }
            _ => return self.stray(),
        }
        Ok(())
    }

    fn stray(&mut self) -> Result<(), Malformed> {
        self.strays += 1;
        if self.strays <= MAX_STRAYS {
            return Ok(());
        }
        let found = format_args!("more than {MAX_STRAYS} that match none");
        Err(Malformed::new("messages that match an open offer", found))
    }
}

/// Offers of the peer.
impl Offers {
    /// Adds an offer of the peer. It waits for a call that asks for it.
    ///
    /// # Errors
    /// If another open offer has the same number, or if there are too many.
    pub(super) fn arrived(&mut self, number: u32) -> Result<(), Malformed> {
        if self.theirs.iter().any(|(of, _)| *of == number) {
            let found = format_args!("number {number} for two");
            return Err(Malformed::new("a number of its own for each object", found));
        }
        if self.theirs.len() >= MAX_OFFERS {
            let found = format_args!("more than {MAX_OFFERS} open offers");
            return Err(Malformed::new("objects to be settled or withdrawn", found));
        }
        self.theirs.push((number, PeerOffer::Queued));
        Ok(())
    }

    fn peer_offer(&mut self, number: u32) -> Option<&mut PeerOffer> {
        let mut theirs = self.theirs.iter_mut();
        theirs.find_map(|(of, offer)| (*of == number).then_some(offer))
    }

    fn end_theirs(&mut self, number: u32) {
        self.theirs.retain(|(of, _)| *of != number);
    }

    /// Notes that a call has received the object.
    pub(super) fn in_hand(&mut self, number: u32) {
        if let Some(offer @ PeerOffer::Queued) = self.peer_offer(number) {
            *offer = PeerOffer::InHand;
        }
    }

    /// Notes that this side takes the object. Call before sending the answer.
    pub(super) fn take(&mut self, number: u32) {
        if let Some(offer @ PeerOffer::InHand) = self.peer_offer(number) {
            *offer = PeerOffer::Taken;
        }
    }

    /// Notes that this side refuses the object that a call has. Call before sending the answer.
    pub(super) fn refuse(&mut self, number: u32) {
        if let Some(offer @ PeerOffer::InHand) = self.peer_offer(number) {
            *offer = PeerOffer::Refused;
        }
    }

    /// Notes that the call which had the object is done with it.
    pub(super) fn abandon(&mut self, number: u32) {
        match self.peer_offer(number) {
            Some(offer @ (PeerOffer::InHand | PeerOffer::Taken)) => *offer = PeerOffer::Abandoned,
            Some(PeerOffer::Ended(_)) => self.end_theirs(number),
            _ => {}
        }
    }

    /// How the offer has ended. For the call that has the object.
    pub(super) fn ended(&self, number: u32) -> Option<Outcome> {
        self.theirs.iter().find_map(|(of, offer)| match offer {
            PeerOffer::Ended(end) if *of == number => Some(end.clone()),
            _ => None,
        })
    }

    /// Processes the message that every receiver has taken its object.
    ///
    /// # Errors
    /// After too many messages that fit no state.
    pub(super) fn settled(&mut self, number: u32) -> Result<(), Malformed> {
        match self.peer_offer(number) {
            Some(offer @ PeerOffer::Taken) => *offer = PeerOffer::Ended(Outcome::Settled),
            Some(PeerOffer::Abandoned) => self.end_theirs(number),
            _ => return self.stray(),
        }
        Ok(())
    }

    /// Processes a withdrawal. True if the object is still queued and must be removed.
    ///
    /// # Errors
    /// After too many messages that fit no state.
    pub(super) fn withdrawn(&mut self, number: u32, reason: String) -> Result<bool, Malformed> {
        match self.peer_offer(number) {
            Some(PeerOffer::Queued) => {
                self.end_theirs(number);
                return Ok(true);
            }
            Some(offer @ (PeerOffer::InHand | PeerOffer::Taken)) => {
                *offer = PeerOffer::Ended(Outcome::Withdrawn(reason));
            }
            Some(PeerOffer::Refused | PeerOffer::Abandoned) => self.end_theirs(number),
            _ => self.stray()?,
        }
        Ok(false)
    }
}
