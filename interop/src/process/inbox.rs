//! Messages that have arrived and that no call has asked for yet, in memory of fixed size.

use std::collections::VecDeque;

use super::control::{Descriptors, Received};
use super::message::{MAX_MESSAGE, Message, Offer};
use super::offers::{Answer, Offers};
use super::wire::Malformed;

/// Maximum number of points. The reader of the socket makes sure that there is room.
pub(super) const MAX_POINTS: usize = 1024;
/// Maximum number of other messages.
pub(super) const MAX_MESSAGES: usize = 16;

/// A message other than a point, with its descriptors.
#[derive(Debug)]
struct QueuedMessage {
    message: Message,
    descriptors: Descriptors,
}

/// The arrived messages, and the buffer for the next one.
pub(super) struct Inbox {
    buffer: Box<[u8]>,
    points: VecDeque<(u32, u64)>,
    messages: VecDeque<QueuedMessage>,
    offers: Offers,
    /// The sequence number of the next message.
    sequence: u64,
    /// The peer has sent its farewell.
    has_said_goodbye: bool,
}

impl Inbox {
    /// The inbox after the greeting.
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; MAX_MESSAGE].into(),
            points: VecDeque::with_capacity(MAX_POINTS),
            messages: VecDeque::with_capacity(MAX_MESSAGES),
            offers: Offers::default(),
            sequence: 1,
            has_said_goodbye: false,
        }
    }

    /// The buffer for the next message.
    pub(super) fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// The states of offers, in both directions.
    pub(super) const fn offers(&mut self) -> &mut Offers {
        &mut self.offers
    }

    pub(super) fn point(&mut self) -> Option<(u32, u64)> {
        self.points.pop_front()
    }

    /// Takes the first message that `matches`. It has no descriptors.
    pub(super) fn take_message(&mut self, matches: impl Fn(&Message) -> bool) -> Option<Message> {
        self.take(matches).map(|queued| queued.message)
    }

    fn take(&mut self, matches: impl Fn(&Message) -> bool) -> Option<QueuedMessage> {
        let at = self
            .messages
            .iter()
            .position(|queued| matches(&queued.message));
        self.messages.remove(at?)
    }

    /// True if a message `matches`.
    pub(super) fn has_message(&self, matches: impl Fn(&Message) -> bool) -> bool {
        self.messages.iter().any(|queued| matches(&queued.message))
    }

    /// Removes the messages that `is_stale` selects.
    pub(super) fn discard(&mut self, is_stale: impl Fn(&Message) -> bool) {
        self.messages.retain(|queued| !is_stale(&queued.message));
    }

    /// Takes the first object that `matches`, with its descriptors. Its offer is in hand now.
    pub(super) fn object(
        &mut self,
        matches: impl Fn(&Offer) -> bool,
    ) -> Option<(Offer, Descriptors)> {
        let matches =
            |message: &Message| matches!(message, Message::Object(offer) if matches(offer));
        let queued = self.take(matches)?;
        let Message::Object(offer) = queued.message else {
            return None;
        };
        self.offers.in_hand(offer.number);
        Some((offer, queued.descriptors))
    }

    /// The objects that no call has asked for.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Offer> {
        self.messages
            .iter()
            .filter_map(|queued| match &queued.message {
                Message::Object(offer) => Some(offer),
                _ => None,
            })
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.has_said_goodbye
    }

    #[cfg(any(test, fuzzing))]
    pub(super) const fn due(&self) -> u64 {
        self.sequence
    }

    pub(super) fn has_room_for_points(&self) -> bool {
        self.points.len() < MAX_POINTS
    }

    /// True if there is no room for points or no room for other messages.
    pub(super) fn is_full(&self) -> bool {
        !self.has_room_for_points() || self.messages.len() == MAX_MESSAGES
    }

    /// Removes all messages.
    pub(super) fn clear(&mut self) {
        self.points.clear();
        self.messages.clear();
    }

    /// Stores the message in the buffer. The caller has checked its sender.
    ///
    /// False if the message must wait for room for its descriptors. Nothing has changed then.
    ///
    /// # Errors
    /// A description of what is wrong with the message.
    pub(super) fn store(&mut self, received: Received) -> Result<bool, Malformed> {
        let Received {
            bytes,
            is_cut,
            lacks_descriptors,
            from: _,
            descriptors,
        } = received;
        if is_cut {
            let found = format_args!("one of more than {MAX_MESSAGE}");
            return Err(Malformed::new("a message of at most 16384 bytes", found));
        }
        let (sequence, message) = Message::decode(self.buffer.get(..bytes).unwrap_or_default())?;
        let announced = match &message {
            Message::Object(offer) => offer.handles.len(),
            _ => 0,
        };
        if lacks_descriptors && descriptors.len() < announced {
            return Ok(false);
        }
        if lacks_descriptors {
            let expected = "at most 16 descriptors, as many as are told";
            return Err(Malformed::new(expected, "more"));
        }
        self.check_sequence(sequence, &message)?;
        if descriptors.len() != announced {
            let name = message.name();
            let found = format_args!("{} beside {name} that tells {announced}", descriptors.len());
            return Err(Malformed::new("as many descriptors as are told", found));
        }
        if let Some(round) = message.round() {
            // Messages of earlier rounds are stale. The answer of the previous round is not: the
            // peer may have begun the next round behind it.
            let is_next = matches!(message, Message::Requirements { .. });
            self.discard(|message| match message {
                Message::Requirements { round: of, .. } => *of < round,
                Message::Agreed(agreed) => agreed.round < round - u32::from(is_next && round > 0),
                _ => false,
            });
        }
        match message {
            Message::Point { number, value } if self.points.len() < MAX_POINTS => {
                self.points.push_back((number, value));
            }
            Message::Point { .. } => {
                let found = format_args!("more than {MAX_POINTS} that no call has asked for");
                return Err(Malformed::new(
                    "points to be sent as they are asked for",
                    found,
                ));
            }
            Message::Bye => self.has_said_goodbye = true,
            Message::Taken { number } => self.offers.answered(number, Answer::Taken)?,
            Message::Refused { number, reason } => {
                self.offers.answered(number, Answer::Refused(reason))?;
            }
            Message::Settled { number } => self.offers.settled(number)?,
            Message::Withdrawn { number, reason } => {
                if self.offers.withdrawn(number, reason)? {
                    self.discard(
                        |message| matches!(message, Message::Object(offer) if offer.number == number),
                    );
                }
            }
            message if self.messages.len() < MAX_MESSAGES => {
                if let Message::Object(offer) = &message {
                    self.offers.arrived(offer.number)?;
                }
                self.messages.push_back(QueuedMessage {
                    message,
                    descriptors,
                });
            }
            message => {
                let found = format_args!("{}, behind {MAX_MESSAGES} of them", message.name());
                return Err(Malformed::new(
                    "messages to be sent as they are asked for",
                    found,
                ));
            }
        }
        Ok(true)
    }

    fn check_sequence(&mut self, sequence: u64, message: &Message) -> Result<(), Malformed> {
        if sequence != self.sequence {
            let (due, name) = (self.sequence, message.name());
            let found = format_args!("{name} as number {sequence} where {due} is due");
            return Err(Malformed::new("each message once and in its turn", found));
        }
        if self.has_said_goodbye {
            return Err(Malformed::new("nothing after a farewell", message.name()));
        }
        if let Message::Hello { .. } = message {
            return Err(Malformed::new("one greeting", "another"));
        }
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }
}
