//! How far each object is that was offered over an endpoint, in either direction: who of both sides
//! speaks next, and which words make no sense.
//!
//! An offer goes so: the object; *taken* or *refused*; then *settled* once everybody has taken it,
//! or *withdrawn*, which whoever offers may say at any time before. Each offer ends with one of
//! those two, also one that was refused. Who has taken it and runs out of patience says *refused*
//! after all.
//!
//! | | `Own`: offered by this side | `Stage`: offered by the other side |
//! |---|---|---|
//! | object | `Awaited`, nothing heard | `Queued`; `InHand` once a call has it |
//! | taken | `Awaited`, `Taken` | `Taken` |
//! | refused | `Awaited`, `Refused` | `Refused` |
//! | settled or withdrawn | `Over` | `Ended`, until the call that has it looks; otherwise gone |

use std::collections::VecDeque;

use super::wire::Malformed;

/// Objects of each side that may be on their way, and own ones that are remembered to be over.
const MAX_OFFERS: usize = 1024;
/// Words that may come about objects which were not offered, or of which they cannot be said.
const MAX_STRAYS: usize = 16;

/// What the other side says of an object that it was offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Taken,
    /// For this reason.
    Refused(String),
}

/// How an offer of the other side ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Everybody has taken it.
    Settled,
    /// Nobody is to have it. Without a reason if the time was over.
    Withdrawn(String),
}

/// An object that this side has offered.
enum OwnOffer {
    Awaited(Option<Answer>),
    /// Answers that were on their way mean nothing any more.
    Over {
        /// Both may come, and not the refusal of what was taken alone.
        may_be_taken: bool,
    },
}

/// An object that the other side has offered.
enum PeerOffer {
    Queued,
    InHand,
    Taken,
    Refused,
    /// Nobody has it in hand any more, whatever was said.
    Abandoned,
    Ended(Outcome),
}

/// Of one endpoint.
#[derive(Default)]
pub(super) struct Offers {
    own: VecDeque<(u32, OwnOffer)>,
    theirs: Vec<(u32, PeerOffer)>,
    strays: usize,
}

/// Of what this side offers.
impl Offers {
    /// It is about to be sent.
    pub(super) fn offer(&mut self, number: u32) {
        self.own.push_back((number, OwnOffer::Awaited(None)));
    }

    /// What has been said of it so far.
    pub(super) fn answer(&self, number: u32) -> Option<Answer> {
        self.own.iter().find_map(|(of, own)| match own {
            OwnOffer::Awaited(answer) if *of == number => answer.clone(),
            _ => None,
        })
    }

    /// Nobody waits for more.
    pub(super) fn over(&mut self, number: u32) {
        let Some(at) = self.own.iter().position(|(of, _)| *of == number) else {
            return;
        };
        let may_be_taken = match self.own.remove(at) {
            Some((_, OwnOffer::Awaited(None))) => true,
            Some((_, OwnOffer::Awaited(Some(Answer::Taken)))) => false,
            _ => return,
        };
        let is_over = |(_, own): &(u32, OwnOffer)| matches!(own, OwnOffer::Over { .. });
        if self.own.iter().filter(|own| is_over(own)).count() >= MAX_OFFERS
            && let Some(oldest) = self.own.iter().position(is_over)
        {
            self.own.remove(oldest);
        }
        self.own
            .push_back((number, OwnOffer::Over { may_be_taken }));
    }

    /// It was not sent.
    pub(super) fn unsent(&mut self, number: u32) {
        self.own.retain(|(of, _)| *of != number);
    }

    /// The other side says so of it.
    ///
    /// # Errors
    /// There were too many such that make no sense.
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
        let found = format_args!("more than {MAX_STRAYS} that cannot be said of theirs");
        Err(Malformed::new("words about objects in their turn", found))
    }
}

/// Of what the other side offers.
impl Offers {
    /// It has come, and waits for who asks for it.
    ///
    /// # Errors
    /// Its number is that of another, or there are too many.
    pub(super) fn arrived(&mut self, number: u32) -> Result<(), Malformed> {
        if self.theirs.iter().any(|(of, _)| *of == number) {
            let found = format_args!("number {number} for two");
            return Err(Malformed::new("a number of its own for each object", found));
        }
        if self.theirs.len() >= MAX_OFFERS {
            let found = format_args!("more than {MAX_OFFERS} that are neither");
            return Err(Malformed::new("objects to be settled or withdrawn", found));
        }
        self.theirs.push((number, PeerOffer::Queued));
        Ok(())
    }

    fn peer_offer(&mut self, number: u32) -> Option<&mut PeerOffer> {
        let mut theirs = self.theirs.iter_mut();
        theirs.find_map(|(of, offer)| (*of == number).then_some(offer))
    }

    fn end(&mut self, number: u32) {
        self.theirs.retain(|(of, _)| *of != number);
    }

    /// A call has it.
    pub(super) fn in_hand(&mut self, number: u32) {
        if let Some(offer @ PeerOffer::Queued) = self.peer_offer(number) {
            *offer = PeerOffer::InHand;
        }
    }

    /// This side is about to say that it has taken it.
    pub(super) fn take(&mut self, number: u32) {
        if let Some(offer @ PeerOffer::InHand) = self.peer_offer(number) {
            *offer = PeerOffer::Taken;
        }
    }

    /// This side is about to refuse what it has in hand.
    pub(super) fn refuse(&mut self, number: u32) {
        if let Some(offer @ PeerOffer::InHand) = self.peer_offer(number) {
            *offer = PeerOffer::Refused;
        }
    }

    /// No call has it any more.
    pub(super) fn abandon(&mut self, number: u32) {
        match self.peer_offer(number) {
            Some(offer @ (PeerOffer::InHand | PeerOffer::Taken)) => *offer = PeerOffer::Abandoned,
            Some(PeerOffer::Ended(_)) => self.end(number),
            _ => {}
        }
    }

    /// How it has ended, for the call that has it.
    pub(super) fn ended(&self, number: u32) -> Option<Outcome> {
        self.theirs.iter().find_map(|(of, offer)| match offer {
            PeerOffer::Ended(end) if *of == number => Some(end.clone()),
            _ => None,
        })
    }

    /// The other side says that everybody has taken it.
    ///
    /// # Errors
    /// There were too many such that make no sense.
    pub(super) fn settled(&mut self, number: u32) -> Result<(), Malformed> {
        match self.peer_offer(number) {
            Some(offer @ PeerOffer::Taken) => *offer = PeerOffer::Ended(Outcome::Settled),
            Some(PeerOffer::Abandoned) => self.end(number),
            _ => return self.stray(),
        }
        Ok(())
    }

    /// The other side gives it up. True if it waits still, and goes with that.
    ///
    /// # Errors
    /// There were too many such that make no sense.
    pub(super) fn withdrawn(&mut self, number: u32, reason: String) -> Result<bool, Malformed> {
        match self.peer_offer(number) {
            Some(PeerOffer::Queued) => {
                self.end(number);
                return Ok(true);
            }
            Some(offer @ (PeerOffer::InHand | PeerOffer::Taken)) => {
                *offer = PeerOffer::Ended(Outcome::Withdrawn(reason));
            }
            Some(PeerOffer::Refused | PeerOffer::Abandoned) => self.end(number),
            _ => self.stray()?,
        }
        Ok(false)
    }
}
