//! The format of the messages between two endpoints. Nothing here uses a socket.
//!
//! Each message is one datagram of at most [`MAX_MESSAGE`] bytes. It has a header, and a body whose
//! format depends on the kind. All numbers are little-endian.
//!
//! | header | bytes | |
//! |---|---|---|
//! | magic | 4 | `SYNL` |
//! | version | 2 | [`VERSION`] |
//! | kind | 2 | from 1 |
//! | length | 4 | of the body |
//! | sequence | 8 | from 0, in each direction |
//!
//! | kind | body |
//! |---|---|
//! | 1 hello | process, label |
//! | 2 requirements | round (4), whether that is all (1), count (1), parties, count (1), links |
//! | 3 agreed | round (4), mechanism (1; 0 for a conflict), home (a party or none), count of parties (4), digest (8) |
//! | 4 object | number (4), content (1), label, initial value (8), reached value (8), count (1), descriptors, origin or none, extent or none, event or none |
//! | 5 taken | number (4) |
//! | 6 refused | number (4), reason |
//! | 7 point | number (4), value (8) |
//! | 8 bye | |
//! | 9 settled | number (4) |
//! | 10 withdrawn | number (4), reason; empty if the time was over |
//!
//! The receiver of an *object* answers *taken* or *refused*. The sender ends the offer with
//! *settled* or *withdrawn*. See `offers` for the order.
//!
//! A *process* is its id (4) and its start time (8). A *label*, *reason* or *name* is its length
//! (2) and as many bytes of UTF-8 without control characters. A *link* is two processes. `parties`
//! writes *parties*, *mechanisms* and kinds of handle, and `extent` an *extent*. *Or none* is one
//! byte: 1 if a value follows, otherwise 0. Descriptors travel beside an object and beside no other
//! message (`SCM_RIGHTS` in unix(7)).

use syncline_core::handle::{HandleKind, Origin};

use super::extent::{Extent, Resource};
use super::parties::{
    Agreed, MAX_NAME, handle_from_number, handle_number, read_links, read_parties, read_party_id,
    read_process, read_uuid, write_links, write_parties, write_party_id, write_process, write_uuid,
};
use super::wire::{Malformed, Reader, TooMuch, Writer, shortened};
use crate::negotiate::{Party, PartyId, Process};

/// The first bytes of each message.
pub(crate) const MAGIC: [u8; 4] = *b"SYNL";
/// The version of the message format.
pub(crate) const VERSION: u16 = 6;
/// Bytes of a header.
pub(crate) const HEADER: usize = 20;
/// Maximum bytes of a message, including its header.
pub(crate) const MAX_MESSAGE: usize = 16 * 1024;
/// Bytes of a message with a point, including its header.
pub(crate) const POINT_MESSAGE: usize = HEADER + 12;
/// Maximum number of descriptors beside one message.
pub(crate) const MAX_DESCRIPTORS: usize = 16;
/// Maximum bytes of a label.
pub(crate) const MAX_LABEL: u16 = 64;
/// Maximum bytes of a reason.
pub(crate) const MAX_REASON: u16 = 256;

/// The type of an offered object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Timeline,
    BinarySemaphore,
    DeviceMemory,
    HostMemory,
    CudaEvent,
}

impl Content {
    /// Its name, for errors.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Timeline => "timeline",
            Self::BinarySemaphore => "binary semaphore",
            Self::DeviceMemory => "memory of a device",
            Self::HostMemory => "memory of the host",
            Self::CudaEvent => "event of CUDA's",
        }
    }
}

/// The kind of a descriptor, and the party that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle {
    /// The party that imports it. `None` if it is for the process.
    pub(crate) party: Option<PartyId>,
    pub(crate) kind: HandleKind,
}

/// An offer of an object to another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The number of the object in later messages. Each side numbers its own objects.
    pub(crate) number: u32,
    pub(crate) content: Content,
    /// Shortened to [`MAX_LABEL`] bytes when it is encoded.
    pub(crate) label: String,
    pub(crate) initial: u64,
    pub(crate) reached: u64,
    /// One for each descriptor, in the same order.
    pub(crate) handles: Vec<Handle>,
    pub(crate) origin: Option<Origin>,
    /// `Some` for memory only.
    pub(crate) extent: Option<Extent>,
    /// CUDA's handle of an interprocess event. `Some` for events only.
    pub(crate) event: Option<[u8; 64]>,
}

/// A message between endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    Hello {
        process: Process,
        label: String,
    },
    Requirements {
        round: u32,
        /// False if this process still waits for other needs. It sends all of them later.
        is_all: bool,
        parties: Vec<Party>,
        /// The processes that have an endpoint to each other.
        links: Vec<(Process, Process)>,
    },
    Agreed(Agreed),
    Object(Offer),
    Taken {
        number: u32,
    },
    Refused {
        number: u32,
        reason: String,
    },
    Point {
        number: u32,
        value: u64,
    },
    Bye,
    /// All receivers have taken their object.
    Settled {
        number: u32,
    },
    /// The offer is withdrawn. The reason is empty if the time was over.
    Withdrawn {
        number: u32,
        reason: String,
    },
}

impl Message {
    /// The name of the kind, for errors.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "a greeting",
            Self::Requirements { .. } => "requirements",
            Self::Agreed(_) => "the answer to requirements",
            Self::Object(_) => "an object",
            Self::Taken { .. } => "word that an object was taken",
            Self::Refused { .. } => "word that an object was refused",
            Self::Point { .. } => "a point",
            Self::Bye => "a farewell",
            Self::Settled { .. } => "word that an object is settled",
            Self::Withdrawn { .. } => "word that an object is withdrawn",
        }
    }

    /// The round of the negotiation to which it belongs.
    pub(crate) const fn round(&self) -> Option<u32> {
        match self {
            Self::Requirements { round, .. } | Self::Agreed(Agreed { round, .. }) => Some(*round),
            _ => None,
        }
    }

    const fn kind(&self) -> u16 {
        match self {
            Self::Hello { .. } => 1,
            Self::Requirements { .. } => 2,
            Self::Agreed(_) => 3,
            Self::Object(_) => 4,
            Self::Taken { .. } => 5,
            Self::Refused { .. } => 6,
            Self::Point { .. } => 7,
            Self::Bye => 8,
            Self::Settled { .. } => 9,
            Self::Withdrawn { .. } => 10,
        }
    }

    /// Encodes the message and returns its length. Does not allocate for a point.
    ///
    /// # Errors
    /// The part that is too large.
    pub(crate) fn encode(&self, sequence: u64, into: &mut [u8]) -> Result<usize, TooMuch> {
        let (header, body) = into.split_at_mut_checked(HEADER).ok_or(TooMuch {
            what: "bytes of a message",
            most: 0,
        })?;
        let mut body = Writer::new(body);
        self.write(&mut body)?;
        let length = body.length();
        let mut header = Writer::new(header);
        header.bytes(&MAGIC)?;
        header.u16(VERSION)?;
        header.u16(self.kind())?;
        header.u32(u32::try_from(length).unwrap_or(u32::MAX))?;
        header.u64(sequence)?;
        Ok(HEADER + length)
    }

    fn write(&self, to: &mut Writer<'_>) -> Result<(), TooMuch> {
        match self {
            Self::Hello { process, label } => {
                write_process(to, *process)?;
                to.text("bytes of a label", &shortened(label, MAX_LABEL), MAX_LABEL)
            }
            Self::Requirements {
                round,
                is_all,
                parties,
                links,
            } => {
                to.u32(*round)?;
                to.flag(*is_all)?;
                write_parties(to, parties)?;
                write_links(to, links)
            }
            Self::Agreed(agreed) => agreed.write(to),
            Self::Object(offer) => offer.write(to),
            Self::Taken { number } | Self::Settled { number } => to.u32(*number),
            Self::Refused { number, reason } | Self::Withdrawn { number, reason } => {
                to.u32(*number)?;
                to.text(
                    "bytes of a reason",
                    &shortened(reason, MAX_REASON),
                    MAX_REASON,
                )
            }
            Self::Point { number, value } => {
                to.u32(*number)?;
                to.u64(*value)
            }
            Self::Bye => Ok(()),
        }
    }

    /// Decodes one message of exactly `bytes`, with its sequence number.
    ///
    /// Allocates a small multiple of [`MAX_MESSAGE`] at most, and nothing for a point.
    ///
    /// # Errors
    /// The first part that is invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(u64, Self), Malformed> {
        if bytes.len() > MAX_MESSAGE {
            let length = bytes.len();
            let found = format_args!("{length} bytes");
            return Err(Malformed::new("a message of at most 16384 bytes", found));
        }
        let mut from = Reader::new(bytes);
        let magic: [u8; 4] = from.fixed("a message of this library")?;
        if magic != MAGIC {
            let magic = magic.escape_ascii();
            let found = format_args!("something that begins with {magic}");
            return Err(Malformed::new("a message of this library", found));
        }
        let version = from.u16("the version of a message")?;
        if version != VERSION {
            let found = format_args!("version {version}");
            return Err(Malformed::new("messages of version 6", found));
        }
        let kind = from.u16("the kind of a message")?;
        let length = from.u32("the length of a message")?;
        let sequence = from.u64("the number of a message")?;
        let there = bytes.len() - HEADER;
        if usize::try_from(length) != Ok(there) {
            let found = format_args!("{there} where {length} are told");
            return Err(Malformed::new("as many bytes as a message tells", found));
        }
        let message = Self::read(kind, &mut from)?;
        from.end()?;
        Ok((sequence, message))
    }

    fn read(kind: u16, from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match kind {
            1 => Self::Hello {
                process: read_process(from)?,
                label: from.text("a label", MAX_LABEL)?,
            },
            2 => Self::Requirements {
                round: from.u32("a round")?,
                is_all: from.flag("whether requirements are all")?,
                parties: read_parties(from)?,
                links: read_links(from)?,
            },
            3 => Self::Agreed(Agreed::read(from)?),
            4 => Self::Object(Offer::read(from)?),
            5 => Self::Taken {
                number: from.u32("an object's number")?,
            },
            6 => Self::Refused {
                number: from.u32("an object's number")?,
                reason: from.text("a reason", MAX_REASON)?,
            },
            7 => Self::Point {
                number: from.u32("an object's number")?,
                value: read_value(from)?,
            },
            8 => Self::Bye,
            9 => Self::Settled {
                number: from.u32("an object's number")?,
            },
            10 => Self::Withdrawn {
                number: from.u32("an object's number")?,
                reason: from.text("a reason", MAX_REASON)?,
            },
            other => {
                let found = format_args!("kind {other}");
                return Err(Malformed::new("a message of a known kind", found));
            }
        })
    }
}

impl Offer {
    fn write(&self, to: &mut Writer<'_>) -> Result<(), TooMuch> {
        let Self {
            number,
            content,
            label,
            initial,
            reached,
            handles,
            origin,
            extent,
            event,
        } = self;
        to.u32(*number)?;
        to.u8(match content {
            Content::Timeline => 1,
            Content::BinarySemaphore => 2,
            Content::DeviceMemory => 3,
            Content::HostMemory => 4,
            Content::CudaEvent => 5,
        })?;
        to.text("bytes of a label", &shortened(label, MAX_LABEL), MAX_LABEL)?;
        to.u64(*initial)?;
        to.u64(*reached)?;
        let too_many = TooMuch {
            what: "descriptors",
            most: MAX_DESCRIPTORS,
        };
        let count = u8::try_from(handles.len()).map_err(|_| too_many)?;
        if handles.len() > MAX_DESCRIPTORS {
            return Err(too_many);
        }
        to.u8(count)?;
        for handle in handles {
            to.u8(handle_number(handle.kind))?;
            write_party_id(to, handle.party)?;
        }
        to.flag(origin.is_some())?;
        if let Some(origin) = origin {
            to.text(
                "bytes of a device's name",
                &shortened(&origin.device, MAX_NAME),
                MAX_NAME,
            )?;
            write_uuid(to, origin.uuid)?;
            write_uuid(to, origin.driver_uuid)?;
        }
        to.flag(extent.is_some())?;
        if let Some(extent) = extent {
            extent.write(to)?;
        }
        to.flag(event.is_some())?;
        if let Some(event) = event {
            to.bytes(event)?;
        }
        Ok(())
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let number = from.u32("an object's number")?;
        let content = match from.u8("what an object is")? {
            1 => Content::Timeline,
            2 => Content::BinarySemaphore,
            3 => Content::DeviceMemory,
            4 => Content::HostMemory,
            5 => Content::CudaEvent,
            other => return Err(Malformed::new("a known sort of object", other)),
        };
        let label = from.text("a label", MAX_LABEL)?;
        let initial = read_value(from)?;
        let reached = read_value(from)?;
        if reached < initial {
            let found = format_args!("{reached} after {initial}");
            return Err(Malformed::new("a value that has grown", found));
        }
        let count = usize::from(from.u8("a count of descriptors")?);
        if count > MAX_DESCRIPTORS {
            return Err(Malformed::new("at most 16 descriptors", count));
        }
        let mut handles = Vec::with_capacity(count);
        for _ in 0..count {
            let kind = handle_from_number(from.u8("the kind of a descriptor")?)?;
            let party = read_party_id(from)?;
            handles.push(Handle { party, kind });
        }
        let origin = match from.flag("an origin or none")? {
            false => None,
            true => Some(Origin {
                device: from.text("a device's name", MAX_NAME)?,
                uuid: read_uuid(from)?,
                driver_uuid: read_uuid(from)?,
            }),
        };
        let extent = match from.flag("an extent or none")? {
            false => None,
            true => Some(Extent::read(from)?),
        };
        let is_memory = matches!(content, Content::DeviceMemory | Content::HostMemory);
        if extent.is_some() != is_memory {
            let found = format_args!("{extent:?} for {content:?}");
            return Err(Malformed::new(
                "an extent for memory, and for nothing else",
                found,
            ));
        }
        let is_image = extent.is_some_and(|all| matches!(all.resource, Resource::Image(_)));
        if is_image && content == Content::HostMemory {
            return Err(Malformed::new("words of the host", "an image"));
        }
        let is_whole = content == Content::HostMemory || extent.is_some_and(|all| all.dedicated);
        if let Some(Extent { offset: 1.., .. }) = extent.filter(|_| is_whole) {
            let found = format_args!("{extent:?} for {content:?}");
            return Err(Malformed::new("memory from its start on", found));
        }
        let event = match from.flag("an event or none")? {
            false => None,
            true => Some(from.fixed("an event's handle")?),
        };
        if event.is_some() != (content == Content::CudaEvent) {
            let found = format_args!("another for {content:?}");
            return Err(Malformed::new(
                "a handle for an event, and for nothing else",
                found,
            ));
        }
        Ok(Self {
            number,
            content,
            label,
            initial,
            reached,
            handles,
            origin,
            extent,
            event,
        })
    }
}

/// Reads a value of a timeline.
fn read_value(from: &mut Reader<'_>) -> Result<u64, Malformed> {
    match from.u64("a value")? {
        u64::MAX => Err(Malformed::new("a value below 2^64 - 1", u64::MAX)),
        value => Ok(value),
    }
}
