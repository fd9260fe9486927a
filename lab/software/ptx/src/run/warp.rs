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
    /// How often a group was chosen that is not furthest behind.
    turns: usize,
    /// Instructions since then.
    since_turn: u32,
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
    /// Instructions until the next pause, in which a branch backwards counts as [`LOOP`].
    left: u32,
}

/// Instructions between two pauses.
const PAUSE: u32 = 4096;

/// What a branch backwards counts: a loop may wait for another thread.
const LOOP: u32 = 32;

/// Instructions after which a group that is not furthest behind continues.
const TURN: u32 = 256;

impl Pace {
    pub(super) const fn new() -> Self {
        Self { left: PAUSE }
    }

    #[inline(always)]
    fn spend(&mut self, instructions: u32, machine: &dyn Machine) -> Result<(), Fault> {
        self.left = self.left.saturating_sub(instructions);
        if self.left == 0 {
            self.pause(machine)
        } else {
            Ok(())
        }
    }

    fn pause(&mut self, machine: &dyn Machine) -> Result<(), Fault> {
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
            turns: 0,
            since_turn: 0,
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
        self.turns = 0;
        self.since_turn = 0;
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
            let lanes = (0..W).map(|lane| self.next[(lane + self.turns) % W]);
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
        machine: &dyn Machine,
        budget: &mut u32,
        pace: &mut Pace,
    ) -> Result<Event, Fault> {
        loop {
            let fair = self.since_turn >= TURN;
            if fair {
                self.turns = self.turns.wrapping_add(1);
                self.since_turn = 0;
            }
            let Some(group) = self.group(fair) else {
                return Ok(Event::Ended);
            };
            if *budget == 0 {
                return Ok(Event::Slice);
            }
            let mut turn = TURN.min(*budget);
            *budget -= turn;
            let event = self.run_group(code, machine, group, &mut turn, pace);
            *budget += turn;
            if let Some(event) = event? {
                return Ok(event);
            }
        }
    }

    /// Executes until the group parts or meets others.
    fn run_group(
        &mut self,
        code: &[Instruction],
        machine: &dyn Machine,
        group: Group<W>,
        budget: &mut u32,
        pace: &mut Pace,
    ) -> Result<Option<Event>, Fault> {
        let Group { mut at, mask, meet } = group;
        while *budget > 0 && at < meet {
            *budget -= 1;
            self.since_turn = self.since_turn.saturating_add(1);
            pace.spend(1, machine)?;
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
                    if target < at {
                        pace.spend(LOOP, machine)?;
                    }
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
                Op::Surface(op) => self.surface(machine, active, op)?,
                Op::Texel(op) => self.texel(machine, active, op)?,
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
        machine: &dyn Machine,
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
        machine: &dyn Machine,
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
        machine: &dyn Machine,
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

#[inline(always)]
fn aligned(address: u64, bytes: u32, write: bool) -> Result<(), Fault> {
    // The size is a power of two. A division would be slow.
    if address & u64::from(bytes - 1) == 0 {
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
