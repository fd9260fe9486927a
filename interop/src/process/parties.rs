//! Encoding of parties and of the result of a negotiation.

use syncline_core::{
    handle::HandleKind,
    info::{BackendKind, Uuid},
};

use super::wire::{Malformed, Reader, TooMuch, Writer};
use crate::negotiate::{Mechanism, Needs, Party, PartyId, Process, Queues};

/// Maximum number of parties in one message.
pub(crate) const MAX_PARTIES: usize = 32;
/// Maximum bytes of a device's name.
pub(crate) const MAX_NAME: u16 = 256;

/// The result of a negotiation, as one process has computed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) round: u32,
    /// `None` for a conflict.
    pub(crate) mechanism: Option<Mechanism>,
    pub(crate) home: Option<PartyId>,
    pub(crate) parties: u32,
    /// Digest of the encoded needs of all parties, and of the plan.
    pub(crate) digest: u64,
}

impl Agreed {
    pub(super) fn write(&self, to: &mut Writer<'_>) -> Result<(), TooMuch> {
        let Self {
            round,
            mechanism,
            home,
            parties,
            digest,
        } = self;
        to.u32(*round)?;
        to.u8(mechanism.map_or(0, mechanism_number))?;
        write_party_id(to, *home)?;
        to.u32(*parties)?;
        to.u64(*digest)
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let round = from.u32("a round")?;
        let mechanism = match from.u8("a mechanism")? {
            0 => None,
            code => Some(mechanism_from_number(code)?),
        };
        let home = read_party_id(from)?;
        if mechanism.is_some() != home.is_some() {
            let found = format_args!("{mechanism:?} and {home:?}");
            return Err(Malformed::new("a mechanism and a home, or neither", found));
        }
        Ok(Self {
            round,
            mechanism,
            home,
            parties: from.u32("a count of parties")?,
            digest: from.u64("a digest")?,
        })
    }
}

pub(super) fn write_process(to: &mut Writer<'_>, process: Process) -> Result<(), TooMuch> {
    to.u32(process.id)?;
    to.u64(process.started)
}

pub(super) fn read_process(from: &mut Reader<'_>) -> Result<Process, Malformed> {
    let id = from.u32("a process")?;
    let started = from.u64("when a process started")?;
    match i32::try_from(id) {
        Ok(1..) => Ok(Process { id, started }),
        _ => Err(Malformed::new("the id of a process", id)),
    }
}

pub(super) fn write_party_id(to: &mut Writer<'_>, id: Option<PartyId>) -> Result<(), TooMuch> {
    to.flag(id.is_some())?;
    let Some(id) = id else { return Ok(()) };
    write_process(to, id.process)?;
    to.u64(id.device)
}

pub(super) fn read_party_id(from: &mut Reader<'_>) -> Result<Option<PartyId>, Malformed> {
    if !from.flag("a party or none")? {
        return Ok(None);
    }
    Ok(Some(PartyId {
        process: read_process(from)?,
        device: from.u64("a device's number")?,
    }))
}

pub(super) fn write_uuid(to: &mut Writer<'_>, uuid: Option<Uuid>) -> Result<(), TooMuch> {
    to.flag(uuid.is_some())?;
    uuid.map_or(Ok(()), |uuid| to.bytes(&uuid.0))
}

pub(super) fn read_uuid(from: &mut Reader<'_>) -> Result<Option<Uuid>, Malformed> {
    match from.flag("a UUID or none")? {
        true => from.fixed("a UUID").map(|bytes| Some(Uuid(bytes))),
        false => Ok(None),
    }
}

/// Writes the number of parties and each party.
pub(crate) fn write_parties(to: &mut Writer<'_>, parties: &[Party]) -> Result<(), TooMuch> {
    let too_many = TooMuch {
        what: "parties",
        most: MAX_PARTIES,
    };
    let count = u8::try_from(parties.len()).map_err(|_| too_many)?;
    if parties.len() > MAX_PARTIES {
        return Err(too_many);
    }
    to.u8(count)?;
    parties.iter().try_for_each(|party| write_party(to, party))
}

pub(super) fn read_parties(from: &mut Reader<'_>) -> Result<Vec<Party>, Malformed> {
    let count = usize::from(from.u8("a count of parties")?);
    if count > MAX_PARTIES {
        return Err(Malformed::new("at most 32 parties", count));
    }
    let mut parties = Vec::with_capacity(count);
    for _ in 0..count {
        parties.push(read_party(from)?);
    }
    Ok(parties)
}

/// Writes the number of links and both processes of each.
pub(crate) fn write_links(
    to: &mut Writer<'_>,
    links: &[(Process, Process)],
) -> Result<(), TooMuch> {
    let too_many = TooMuch {
        what: "endpoints between processes",
        most: MAX_PARTIES,
    };
    let count = u8::try_from(links.len()).map_err(|_| too_many)?;
    if links.len() > MAX_PARTIES {
        return Err(too_many);
    }
    to.u8(count)?;
    links.iter().try_for_each(|(one, other)| {
        write_process(to, *one)?;
        write_process(to, *other)
    })
}

pub(super) fn read_links(from: &mut Reader<'_>) -> Result<Vec<(Process, Process)>, Malformed> {
    let count = usize::from(from.u8("a count of endpoints")?);
    if count > MAX_PARTIES {
        return Err(Malformed::new("at most 32 endpoints", count));
    }
    let mut links = Vec::with_capacity(count);
    for _ in 0..count {
        links.push((read_process(from)?, read_process(from)?));
    }
    Ok(links)
}

/// Writes a party.
///
/// The format is: process (12), device (8), backend (1; 0 for threads), name, UUID or none, whether
/// it is a partition (1), UUID of the driver or none, kinds of handle that it exports (2) and
/// imports (2), whether it writes timestamps (1), needs (4). An id alone has only process and
/// device.
fn write_party(to: &mut Writer<'_>, party: &Party) -> Result<(), TooMuch> {
    let Party {
        id,
        backend,
        name,
        uuid,
        partition,
        driver_uuid,
        exports,
        imports,
        timestamps,
        queues: _,
        needs,
    } = party;
    write_process(to, id.process)?;
    to.u64(id.device)?;
    to.u8(match backend {
        None => 0,
        Some(BackendKind::Host) => 1,
        Some(BackendKind::Cuda) => 2,
        Some(BackendKind::Vulkan) => 3,
        Some(_) => {
            return Err(TooMuch {
                what: "backends outside of this library",
                most: 0,
            });
        }
    })?;
    if name.chars().any(char::is_control) {
        return Err(TooMuch {
            what: "control characters in a device's name",
            most: 0,
        });
    }
    to.text("bytes of a device's name", name, MAX_NAME)?;
    write_uuid(to, *uuid)?;
    to.flag(*partition)?;
    write_uuid(to, *driver_uuid)?;
    write_handles(to, exports)?;
    write_handles(to, imports)?;
    to.flag(*timestamps)?;
    to.u32(needs.bits())
}

fn read_party(from: &mut Reader<'_>) -> Result<Party, Malformed> {
    let id = PartyId {
        process: read_process(from)?,
        device: from.u64("a device's number")?,
    };
    let backend = match from.u8("a backend")? {
        0 => None,
        1 => Some(BackendKind::Host),
        2 => Some(BackendKind::Cuda),
        3 => Some(BackendKind::Vulkan),
        other => return Err(Malformed::new("a known backend", other)),
    };
    if backend.is_some() != (id.device != 0) {
        let found = format_args!("{backend:?} with device {}", id.device);
        return Err(Malformed::new(
            "a device and its backend, or neither",
            found,
        ));
    }
    Ok(Party {
        id,
        backend,
        name: from.text("a device's name", MAX_NAME)?,
        uuid: read_uuid(from)?,
        partition: from.flag("whether a device is a partition")?,
        driver_uuid: read_uuid(from)?,
        exports: read_handles(from)?,
        imports: read_handles(from)?,
        timestamps: from.flag("whether a party writes times")?,
        queues: backend.map_or_else(Queues::default, queues_of),
        needs: read_needs(from)?,
    })
}

/// The queues of a backend of this library. A message does not carry them.
pub(super) const fn queues_of(backend: BackendKind) -> Queues {
    Queues {
        driver: !matches!(backend, BackendKind::Host),
        native_timelines: !matches!(backend, BackendKind::Cuda),
        binary_semaphores: matches!(backend, BackendKind::Vulkan),
    }
}

fn read_needs(from: &mut Reader<'_>) -> Result<Needs, Malformed> {
    let bits = from.u32("needs")?;
    Needs::from_bits(bits).ok_or_else(|| {
        let unknown = bits & !Needs::all().bits();
        Malformed::new("known needs", format_args!("the bits {unknown:#x}"))
    })
}

/// Writes a set of kinds: bit n stands for the kind n + 1.
fn write_handles(to: &mut Writer<'_>, kinds: &[HandleKind]) -> Result<(), TooMuch> {
    let mut set = 0_u16;
    for kind in kinds {
        set |= 1 << kind.index();
    }
    to.u16(set)
}

fn read_handles(from: &mut Reader<'_>) -> Result<Vec<HandleKind>, Malformed> {
    let set = from.u16("kinds of handle")?;
    let present = (0..16_u8).filter(|bit| set & (1 << bit) != 0);
    present.map(|bit| handle_from_number(bit + 1)).collect()
}

// A set of kinds has 16 bits.
const _: () = assert!(HandleKind::ALL.len() <= 16);

/// The number of a kind of handle, from 1 to 16.
pub(super) const fn handle_number(kind: HandleKind) -> u8 {
    kind.index() as u8 + 1
}

pub(super) fn handle_from_number(number: u8) -> Result<HandleKind, Malformed> {
    let index = usize::from(number).checked_sub(1);
    let kind = index.and_then(|index| HandleKind::ALL.get(index).copied());
    kind.ok_or_else(|| Malformed::new("a known kind of handle", number))
}

/// The number of a mechanism, from 1.
fn mechanism_number(mechanism: Mechanism) -> u8 {
    match mechanism {
        Mechanism::SameDevice => 1,
        Mechanism::ExternalTimeline => 2,
        Mechanism::ExternalBinary => 3,
        Mechanism::SharedMemory => 4,
        Mechanism::Engine => 5,
        Mechanism::Bridge => 6,
    }
}

fn mechanism_from_number(code: u8) -> Result<Mechanism, Malformed> {
    Mechanism::ALL
        .into_iter()
        .find(|mechanism| mechanism_number(*mechanism) == code)
        .ok_or_else(|| Malformed::new("a known mechanism", code))
}
