//! The address space of the devices.
//!
//! A device address is no host address. It is in a range of this process that has no access rights,
//! so an access of the host faults. Each allocation has a second address, its alias, which only
//! checked accesses of the driver use. Pinned and registered memory has one address for both sides.
#![allow(unsafe_code, reason = "reserves addresses")]

use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::allocation::{Access, Allocation, MemoryKind};
use crate::code::{Answer, Code};
use crate::context::Context;
use crate::device::Device;
use crate::virtual_memory::{GRANULARITY, Physical, Rights, require_granules};

/// Sizes of the reserved range. The first one that the system grants is used.
const RANGES: [usize; 4] = [1 << 40, 1 << 36, 1 << 33, 1 << 30];
/// Allocations begin at multiples of this, as they do on a GPU.
const ALIGNMENT: u64 = 512;
/// The number of unused addresses after an allocation.
const GUARD: u64 = 4096;

static SPACE: LazyLock<RwLock<Space>> = LazyLock::new(|| RwLock::new(Space::new()));

struct Space {
    begin: u64,
    end: u64,
    /// The address of the next allocation. Addresses are used again only when the range is used up,
    /// so that an access after the free is detected.
    next: u64,
    allocations: BTreeMap<u64, Arc<Allocation>>,
    /// The ranges of `cuMemAddressReserve`: their first addresses and their sizes.
    reserved: BTreeMap<u64, u64>,
}

impl Space {
    fn new() -> Self {
        let reserved = RANGES.into_iter().find_map(|length| {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a new mapping at a place of the system's choice covers no memory of this
            // process.
            let at = unsafe { mmap_anonymous(null_mut(), length, ProtFlags::empty(), flags) };
            at.ok().map(|at| (at.addr() as u64, length as u64))
        });
        let (begin, length) = reserved.unwrap_or_default();
        Self {
            begin,
            end: begin + length,
            next: begin,
            allocations: BTreeMap::new(),
            reserved: BTreeMap::new(),
        }
    }

    /// Returns a free range of addresses. It begins at a multiple of the alignment.
    fn place(&mut self, size: u64, alignment: u64) -> Answer<u64> {
        let needed = size
            .checked_add(GUARD)
            .and_then(|size| size.checked_next_multiple_of(ALIGNMENT))
            .ok_or(Code::OUT_OF_MEMORY)?;
        let mut from = self.next;
        let mut from_begin = false;
        loop {
            let fits = from.checked_next_multiple_of(alignment).and_then(|at| {
                let end = at.checked_add(needed)?;
                (end <= self.end).then_some((at, end))
            });
            let Some((at, end)) = fits else {
                if from_begin {
                    return Err(Code::OUT_OF_MEMORY);
                }
                (from, from_begin) = (self.begin, true);
                continue;
            };
            match self.taken_before(end) {
                Some(taken) if taken > at => from = taken,
                _ => {
                    self.next = end;
                    return Ok(at);
                }
            }
        }
    }

    /// Returns the first free address behind what begins before `end`, and behind its guard.
    fn taken_before(&self, end: u64) -> Option<u64> {
        let allocation = self.allocations.range(..end).next_back();
        let allocation = allocation.map(|(_, known)| known.address + known.size);
        let reserved = self.reserved.range(..end).next_back();
        let reserved = reserved.map(|(address, size)| address + size);
        allocation.max(reserved).map(|taken| taken + GUARD)
    }

    /// Returns the mappings of `cuMemMap` that fill exactly these addresses.
    fn mappings(&self, address: u64, size: u64) -> Answer<Vec<Arc<Allocation>>> {
        let end = address.checked_add(size).ok_or(Code::INVALID_VALUE)?;
        let inside = self.allocations.range(address..end);
        let mut next = address;
        let mut mappings = Vec::new();
        for (_, known) in inside {
            if known.kind != MemoryKind::Virtual || known.address != next {
                return Err(Code::INVALID_VALUE);
            }
            next += known.size;
            mappings.push(known.clone());
        }
        if next != end || mappings.is_empty() {
            return Err(Code::INVALID_VALUE);
        }
        Ok(mappings)
    }

    /// Returns the end of a range that is inside of a reservation.
    fn reserved_end(&self, address: u64, size: u64) -> Answer<u64> {
        let end = address.checked_add(size).ok_or(Code::INVALID_VALUE)?;
        let reservation = self.reserved.range(..=address).next_back();
        let is_reserved = reservation.is_some_and(|(begin, size)| end <= begin + size);
        is_reserved.then_some(end).ok_or(Code::INVALID_VALUE)
    }

    /// Returns the last allocation that begins before the address.
    fn last_before(&self, address: u64) -> Option<&Arc<Allocation>> {
        let before = self.allocations.range(..address).next_back();
        before.map(|(_, known)| known)
    }

    /// Returns the allocation that has the address.
    fn at(&self, address: u64) -> Option<&Arc<Allocation>> {
        let (_, allocation) = self.allocations.range(..=address).next_back()?;
        (address - allocation.address < allocation.size).then_some(allocation)
    }

    fn add(&mut self, allocation: Allocation) {
        self.allocations
            .insert(allocation.address, Arc::new(allocation));
    }
}

fn read<T>(question: impl FnOnce(&Space) -> T) -> T {
    question(&SPACE.read().unwrap_or_else(PoisonError::into_inner))
}

fn change<T>(change: impl FnOnce(&mut Space) -> T) -> T {
    change(&mut SPACE.write().unwrap_or_else(PoisonError::into_inner))
}

/// Allocates device memory.
pub(crate) fn allocate(context: &Context, size: u64) -> Answer<u64> {
    if size == 0 {
        return Err(Code::INVALID_VALUE);
    }
    if size > crate::device::MEMORY {
        return Err(Code::OUT_OF_MEMORY);
    }
    change(|space| {
        let address = space.place(size, ALIGNMENT)?;
        space.add(Allocation::device(context, address, size)?);
        Ok(address)
    })
}

/// Gives memory of another API an address.
///
/// It has the same alignment as in this process. So an aligned access of a device is an aligned
/// access here.
pub(crate) fn map(
    context: &Context,
    size: u64,
    memory: Arc<syncline_software_payload::Memory>,
    offset: usize,
) -> Answer<u64> {
    let at = memory.address().wrapping_add(offset).addr() as u64;
    let excess = at % ALIGNMENT;
    change(|space| {
        let address = space.place(size + excess, ALIGNMENT)? + excess;
        let mapped = Allocation::external(context, address, size, memory, offset);
        space.add(mapped);
        Ok(address)
    })
}

/// Reserves addresses without memory.
pub(crate) fn reserve(size: u64, alignment: u64) -> Answer<u64> {
    change(|space| {
        let address = space.place(size, alignment)?;
        space.reserved.insert(address, size);
        Ok(address)
    })
}

/// Frees reserved addresses, which must be a whole reservation with nothing mapped.
pub(crate) fn free_addresses(address: u64, size: u64) -> Answer {
    change(|space| {
        let is_whole = size > 0 && space.reserved.get(&address) == Some(&size);
        let is_unmapped = || {
            let inside = space.allocations.range(address..address + size);
            inside.count() == 0
        };
        if !is_whole || !is_unmapped() {
            return Err(Code::INVALID_VALUE);
        }
        space.reserved.remove(&address);
        Ok(())
    })
}

/// Maps an allocation at addresses that are reserved and free.
pub(crate) fn map_physical(address: u64, physical: Arc<Physical>) -> Answer {
    let size = physical.size();
    if !address.is_multiple_of(GRANULARITY) {
        return Err(Code::INVALID_VALUE);
    }
    change(|space| {
        let end = space.reserved_end(address, size)?;
        // Mappings are inside a reservation, so one that begins before `address` ends there.
        let before = space.last_before(end);
        if before.is_some_and(|known| known.address + known.size > address) {
            return Err(Code::INVALID_VALUE);
        }
        space.add(Allocation::mapped(address, physical));
        Ok(())
    })
}

/// Removes all mappings in a range of reserved addresses. There need not be any.
pub(crate) fn unmap_physical(address: u64, size: u64) -> Answer {
    require_granules(size)?;
    let gone = change(|space| {
        let end = space.reserved_end(address, size)?;
        let (mut inside, mut at) = (Vec::new(), end);
        // From the last one down, because a mapping that begins before the range may end in it.
        while let Some(known) = space.last_before(at) {
            if known.address + known.size <= address {
                break;
            }
            if known.address < address || known.address + known.size > end {
                return Err(Code::INVALID_VALUE);
            }
            inside.push(known.address);
            at = known.address;
        }
        let mappings: Vec<_> = inside
            .iter()
            .filter_map(|at| space.allocations.remove(at))
            .collect();
        Ok(mappings)
    });
    // Unmapped without the lock.
    gone.map(drop)
}

/// Removes all mappings of this memory.
pub(crate) fn forget_mappings(physical: &Arc<Physical>) {
    change(|space| space.allocations.retain(|_, known| !known.maps(physical)));
}

/// Changes what a device may do with all mappings in a range that they fill.
pub(crate) fn set_rights(address: u64, size: u64, device: &Device, rights: Rights) -> Answer {
    require_granules(size)?;
    let mappings = read(|space| space.mappings(address, size))?;
    // No device reaches memory of another.
    if mappings.iter().any(|mapping| !mapping.is_of(device)) {
        return Err(Code::INVALID_DEVICE);
    }
    for mapping in mappings {
        mapping.set_rights(rights);
    }
    Ok(())
}

/// Returns the number of reserved ranges.
pub(crate) fn count_reserved() -> usize {
    read(|space| space.reserved.len())
}

/// Allocates memory of the host.
pub(crate) fn pin(context: &Context, size: u64, portable: bool) -> Answer<u64> {
    if size == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let pinned = Allocation::pinned(context, size, portable)?;
    let address = pinned.address;
    change(|space| space.add(pinned));
    Ok(address)
}

/// Makes memory of the application reachable.
pub(crate) fn register(
    context: &Context,
    at: *mut u8,
    size: u64,
    portable: bool,
    read_only: bool,
) -> Answer {
    let begin = at.addr() as u64;
    let end = begin.checked_add(size).ok_or(Code::INVALID_VALUE)?;
    if size == 0 || at.is_null() || !is_mapped(begin, end, read_only) {
        return Err(Code::INVALID_VALUE);
    }
    change(|space| {
        let before = space.allocations.range(..end).next_back();
        let overlapped = before.filter(|(_, known)| known.address + known.size > begin);
        match overlapped.map(|(_, known)| known.kind) {
            None => {}
            Some(MemoryKind::Registered { .. }) => {
                return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
            }
            Some(_) => return Err(Code::INVALID_VALUE),
        }
        let kind = MemoryKind::Registered {
            portable,
            read_only,
        };
        space.add(Allocation::registered(context, at, size, kind));
        Ok(())
    })
}

/// True if the process may read all these addresses, and write them unless `read_only`.
fn is_mapped(begin: u64, end: u64, read_only: bool) -> bool {
    let mut at = begin;
    for line in std::fs::read_to_string("/proc/self/maps")
        .unwrap_or_default()
        .lines()
    {
        let Some((from, to, access)) = mapping(line) else {
            return false;
        };
        let fits = access.starts_with(if read_only { "r" } else { "rw" });
        if (from..to).contains(&at) && fits {
            at = to;
        }
    }
    at >= end
}

/// Returns the addresses and the access rights of a line of `/proc/self/maps`: `7f00-7f10 rw-p`.
fn mapping(line: &str) -> Option<(u64, u64, &str)> {
    let mut words = line.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some((address(from)?, address(to)?, words.next()?))
}

/// Removes the allocation that begins at the address, if it is of the right kind.
///
/// The caller has waited for the work of its context.
pub(crate) fn free(address: u64, is_right: impl Fn(MemoryKind) -> bool, missing: Code) -> Answer {
    let freed = change(|space| {
        let known = space.allocations.get(&address);
        if known.is_none_or(|known| !is_right(known.kind)) {
            return Err(missing);
        }
        space.allocations.remove(&address).ok_or(missing)
    });
    // Unmapped without the lock.
    freed.map(drop)
}

/// Returns the context whose allocation begins at the address.
pub(crate) fn owner(address: u64) -> Option<u64> {
    read(|space| space.allocations.get(&address).map(|known| known.context))
}

/// Returns the kind of the allocation that has the address, and whether it begins there.
pub(crate) fn kind(address: u64) -> Option<(MemoryKind, bool)> {
    read(|space| {
        let known = space.at(address)?;
        Some((known.kind, known.address == address))
    })
}

/// Returns the allocation that has the address.
pub(crate) fn allocation(address: u64) -> Option<Arc<Allocation>> {
    read(|space| space.at(address).cloned())
}

/// Returns the allocation of all `length` bytes from the address on, and its address here.
///
/// `None` if contexts of the device do not have this access to them.
pub(crate) fn find(
    device: &Device,
    address: u64,
    length: u64,
    access: Access,
) -> Option<(Arc<Allocation>, *mut u8)> {
    read(|space| {
        let allocation = space.at(address)?;
        let alias = allocation.alias(address, length, access)?;
        let reachable = allocation.is_reachable(device);
        reachable.then(|| (allocation.clone(), alias))
    })
}

/// True if devices have the address, and the host does not.
pub(crate) fn is_device_address(address: u64) -> bool {
    read(|space| (space.begin..space.end).contains(&address))
}

/// Removes all allocations of a context.
pub(crate) fn forget(context: u64) {
    let gone: Vec<_> = change(|space| {
        let of_context: Vec<u64> = space
            .allocations
            .values()
            .filter(|known| known.context == context)
            .map(|known| known.address)
            .collect();
        of_context
            .into_iter()
            .filter_map(|address| space.allocations.remove(&address))
            .collect()
    });
    drop(gone);
}

/// Returns the number of allocations.
pub(crate) fn count() -> usize {
    read(|space| space.allocations.len())
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    /// A device of the tests.
    static DEVICE: LazyLock<Device> =
        LazyLock::new(|| Device::new(syncline_software_payload::Twin::Lavapipe));

    fn small(begin: u64, end: u64) -> Space {
        Space {
            begin,
            end,
            next: begin,
            allocations: BTreeMap::new(),
            reserved: BTreeMap::new(),
        }
    }

    fn add(space: &mut Space, size: u64) -> Answer<u64> {
        let address = space.place(size, ALIGNMENT)?;
        let at = std::ptr::without_provenance_mut(address as usize);
        let context = Context::new(&DEVICE, 0, 16)?;
        let kind = MemoryKind::Registered {
            portable: false,
            read_only: false,
        };
        space.add(Allocation::registered(&context, at, size, kind));
        Ok(address)
    }

    #[test]
    fn addresses_come_again_only_when_all_are_used() {
        let mut space = small(0x1_0000, 0x1_8000);
        assert_eq!(add(&mut space, 100), Ok(0x1_0000));
        assert_eq!(add(&mut space, 0x2000), Ok(0x1_1200));
        space.allocations.remove(&0x1_0000);
        let third = add(&mut space, 0x1000);
        assert_eq!(third, Ok(0x1_4200));
        assert_eq!(add(&mut space, 16), Ok(0x1_6200));
        assert_eq!(add(&mut space, 16), Ok(0x1_0000));
        assert_eq!(add(&mut space, 16), Err(Code::OUT_OF_MEMORY));
        assert_eq!(add(&mut space, u64::MAX), Err(Code::OUT_OF_MEMORY));
    }

    #[test]
    fn addresses_have_the_alignment_that_is_asked_for() {
        let mut space = small(0x1_0100, 0x2_0000);
        assert_eq!(space.place(100, 0x1000), Ok(0x1_1000));
        space.reserved.insert(0x1_1000, 100);
        space.next = space.begin;
        // Behind the reservation and its guard.
        assert_eq!(space.place(0x1000, ALIGNMENT), Ok(0x1_2200));
        assert_eq!(space.place(0x1000, 0x1_0000), Err(Code::OUT_OF_MEMORY));
    }

    #[test]
    fn only_whole_ranges_are_found() {
        let mut space = small(0x1_0000, 0x2_0000);
        assert_eq!(add(&mut space, 100), Ok(0x1_0000));
        assert!(space.at(0x1_0063).is_some());
        assert!(space.at(0x1_0064).is_none());
        assert!(space.at(0xffff).is_none());
        let known = space.at(0x1_0000);
        let alias = known.map(|known| known.alias(0x1_0060, 5, Access::Read));
        assert_eq!(alias, Some(None));
    }
}
