//! A warp: threads that execute in lockstep.

use crate::op::{Address, Atomic, Clock, Instruction, Op, Slot};
use crate::types::{Type, extend};
use crate::{Entry, Fault, Machine};

use super::alu;
use super::rows::{Mask, Rows, any};

/// The threads of a warp.
pub(super) const LANES: usize = 32;

/// Where a thread is that has ended.
const ENDED: u32 = u32::MAX;

/// What a warp reports between instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The time slice is over.
    Slice,
    /// All threads have ended.
    Ended,
    /// `griddepcontrol.launch_dependents`. The slice is not over.
    LaunchDependents,
}

#[derive(Debug)]
pub(super) struct Warp<const W: usize> {
    pub(super) rows: Rows<W>,
    /// The next instruction of each thread.
    next: [u32; W],
    /// How many slices have begun.
    slices: usize,
    /// Whether the warp has executed `griddepcontrol.launch_dependents`.
    pub(super) has_launched: bool,
}

/// Threads of a warp that are at the same instruction.
struct Group<const W: usize> {
    at: u32,
    mask: Mask<W>,
    /// Where threads wait that are further. The groups unite there.
    meet: u32,
}

/// Counts instructions, and calls [`Machine::pause`] now and then.
#[derive(Debug)]
pub(super) struct Pace {
    /// Instructions until the next pause.
    left: u32,
}

/// Instructions between two pauses.
const PAUSE: u32 = 256;

impl Pace {
    pub(super) const fn new() -> Self {
        Self { left: PAUSE }
    }

    fn pause(&mut self, machine: &impl Machine) -> Result<(), Fault> {
        self.left = PAUSE;
        if machine.pause() {
            Err(Fault::Stopped)
        } else {
            Ok(())
        }
    }
}

impl<const W: usize> Warp<W> {
    pub(super) fn new(entry: &Entry) -> Self {
        Self {
            rows: Rows::new(entry.slots.len()),
            next: [ENDED; W],
            slices: 0,
            has_launched: false,
        }
    }

    /// Lets the first `threads` threads begin.
    pub(super) fn begin(&mut self, threads: usize) {
        self.next = [ENDED; W];
        self.next
            .iter_mut()
            .take(threads)
            .for_each(|next| *next = 0);
        self.slices = 0;
        self.has_launched = false;
    }

    /// The group that continues: the one that is furthest behind, so that threads meet again. With
    /// `fair`, another one, so that a thread can wait for a thread that is further.
    fn group(&self, fair: bool) -> Option<Group<W>> {
        let lowest = self.next.iter().copied().min().unwrap_or(ENDED);
        if lowest == ENDED {
            return None;
        }
        let mut at = lowest;
        if fair {
            let lanes = (0..W).map(|lane| self.next[(lane + self.slices) % W]);
            at = lanes
                .into_iter()
                .find(|&next| next != lowest && next != ENDED)
                .unwrap_or(lowest);
        }
        let mask = self.next.map(|next| u64::from(next == at).wrapping_neg());
        let further = self.next.iter().copied().filter(|&next| next > at);
        let meet = further.min().unwrap_or(ENDED);
        Some(Group {
            at,
            mask,
            meet: if at == lowest { meet } else { ENDED },
        })
    }

    fn set_next(&mut self, mask: &Mask<W>, at: u32) {
        for (next, mask) in self.next.iter_mut().zip(mask) {
            if *mask != 0 {
                *next = at;
            }
        }
    }

    /// Executes up to `budget` instructions.
    pub(super) fn run(
        &mut self,
        code: &[Instruction],
        machine: &impl Machine,
        budget: &mut u32,
        pace: &mut Pace,
    ) -> Result<Event, Fault> {
        self.slices = self.slices.wrapping_add(1);
        let mut fair = self.slices.is_multiple_of(2);
        loop {
            let Some(group) = self.group(fair) else {
                return Ok(Event::Ended);
            };
            fair = false;
            if *budget == 0 {
                return Ok(Event::Slice);
            }
            if let Some(event) = self.run_group(code, machine, group, budget, pace)? {
                return Ok(event);
            }
        }
    }

    /// Executes until the group parts or meets others.
    fn run_group(
        &mut self,
        code: &[Instruction],
        machine: &impl Machine,
        group: Group<W>,
        budget: &mut u32,
        pace: &mut Pace,
    ) -> Result<Option<Event>, Fault> {
        let Group { mut at, mask, meet } = group;
        while *budget > 0 && at < meet {
            *budget -= 1;
            pace.left -= 1;
            if pace.left == 0 {
                pace.pause(machine)?;
            }
            let Instruction { guard, op } = code[at as usize];
            let guarded;
            let active = match guard {
                Some(guard) => {
                    guarded = self.rows.guarded(guard, &mask);
                    &guarded
                }
                None => &mask,
            };
            at += 1;
            match op {
                Op::Compute(compute) => alu::compute(&mut self.rows, active, compute),
                Op::Branch { target } => {
                    if guard.is_none() || active == &mask {
                        at = target;
                    } else if any(active) {
                        self.set_next(&mask, at);
                        self.set_next(active, target);
                        return Ok(None);
                    }
                }
                Op::Exit => {
                    self.set_next(&mask, at);
                    self.set_next(active, ENDED);
                    return Ok(None);
                }
                _ if !any(active) => {}
                Op::Load {
                    d,
                    at,
                    ty,
                    width,
                    acquire,
                } => {
                    self.load(machine, active, at, (d, ty, width))?;
                    if acquire {
                        machine.fence();
                    }
                }
                Op::Store {
                    at,
                    a,
                    bytes,
                    release,
                } => {
                    if release {
                        machine.fence();
                    }
                    self.store(machine, active, at, a, bytes)?;
                }
                Op::Atomic {
                    op,
                    ty,
                    d,
                    at,
                    a,
                    b,
                } => {
                    self.atomic(machine, active, at, (op, ty), [a, b], d)?;
                }
                Op::Clock { d, part } => {
                    let time = machine.global_timer();
                    let time = match part {
                        Clock::Whole => time,
                        Clock::Low => time & 0xffff_ffff,
                        Clock::High => time >> 32,
                    };
                    self.rows.put(d, &[time; W], active);
                }
                Op::Trap => return Err(Fault::Trap),
                Op::Fence => machine.fence(),
                Op::Pause => pace.pause(machine)?,
                Op::Wait => {
                    machine.wait_for_dependencies();
                    pace.pause(machine)?;
                }
                Op::LaunchDependents if self.has_launched => {}
                Op::LaunchDependents => {
                    self.has_launched = true;
                    self.set_next(&mask, at);
                    return Ok(Some(Event::LaunchDependents));
                }
            }
        }
        self.set_next(&mask, at);
        Ok(None)
    }

    /// The lanes that take part, each with its address.
    fn addresses(
        &self,
        active: &Mask<W>,
        at: Address,
    ) -> impl Iterator<Item = (usize, u64)> + use<W> {
        let (active, bases) = (*active, *self.rows.row(at.base));
        (0..W)
            .filter(move |&lane| active[lane] != 0)
            .map(move |lane| (lane, bases[lane].wrapping_add_signed(at.offset)))
    }

    fn load(
        &mut self,
        machine: &impl Machine,
        active: &Mask<W>,
        at: Address,
        (d, ty, width): (Slot, Type, u8),
    ) -> Result<(), Fault> {
        let bytes = u32::from(ty.bytes);
        for (lane, address) in self.addresses(active, at) {
            aligned(address, bytes, false)?;
            let value = extend(machine.load(address, bytes)?, ty.bytes, ty.is_signed());
            self.rows.row_mut(d)[lane] = extend(value, width, false);
        }
        Ok(())
    }

    fn store(
        &self,
        machine: &impl Machine,
        active: &Mask<W>,
        at: Address,
        a: Slot,
        bytes: u8,
    ) -> Result<(), Fault> {
        let values = self.rows.row(a);
        for (lane, address) in self.addresses(active, at) {
            aligned(address, u32::from(bytes), true)?;
            machine.store(
                address,
                u32::from(bytes),
                extend(values[lane], bytes, false),
            )?;
        }
        Ok(())
    }

    fn atomic(
        &mut self,
        machine: &impl Machine,
        active: &Mask<W>,
        at: Address,
        (op, ty): (Atomic, Type),
        [a, b]: [Slot; 2],
        d: Option<Slot>,
    ) -> Result<(), Fault> {
        let bytes = u32::from(ty.bytes);
        for (lane, address) in self.addresses(active, at) {
            aligned(address, bytes, true)?;
            let (a, b) = (self.rows.row(a)[lane], self.rows.row(b)[lane]);
            let mut change = |old| ty.truncate(changed(op, ty, old, a, b));
            let old = machine.update(address, bytes, &mut change)?;
            if let Some(d) = d {
                self.rows.row_mut(d)[lane] = ty.truncate(old);
            }
        }
        Ok(())
    }
}

fn aligned(address: u64, bytes: u32, write: bool) -> Result<(), Fault> {
    if address.is_multiple_of(u64::from(bytes)) {
        Ok(())
    } else {
        Err(Fault::Misaligned {
            address,
            bytes,
            write,
        })
    }
}

/// What an atomic operation makes of the value `old`.
fn changed(op: Atomic, ty: Type, old: u64, a: u64, b: u64) -> u64 {
    let less = |x, y| {
        if ty.is_signed() {
            extend(x, ty.bytes, true).cast_signed() < extend(y, ty.bytes, true).cast_signed()
        } else {
            x < y
        }
    };
    match op {
        Atomic::Add => old.wrapping_add(a),
        Atomic::Min => {
            if less(a, old) {
                a
            } else {
                old
            }
        }
        Atomic::Max => {
            if less(old, a) {
                a
            } else {
                old
            }
        }
        Atomic::And => old & a,
        Atomic::Or => old | a,
        Atomic::Xor => old ^ a,
        Atomic::Exchange => a,
        Atomic::CompareExchange => {
            if old == a {
                b
            } else {
                old
            }
        }
        Atomic::Increment => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        Atomic::Decrement => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
    }
}
