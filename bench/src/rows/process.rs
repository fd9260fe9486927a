//! Two processes of one machine.

use super::partner::{Pace, Partner, Way};
use super::{Call, Floor, Row, Variant};
use crate::lab::Lab;
use crate::machine::On;
use crate::side::Outcome;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "process.pingpong",
        ours: "two processes and two timelines in shared memory, there and back: twice a signal in one, until the wait ends in the other",
        raw: "two futex words in a memfd, with a count of sleepers, so that no wake is made without one, and the same spinning",
        floor: Floor::Side(
            "the same with a time-out for each wait that sleeps, and by futex_waitv(2) for a second word, too, because the death of the other process ends it (P3)",
        ),
        limits: &[],
        on: &[On::Host],
        variants: &[
            Variant::new("spinning first", SPINNING),
            Variant::new("sleeping at once", SLEEPING),
        ],
        run: pingpong,
    },
    Row {
        id: "process.point",
        ours: "a point over an endpoint to another process, which receives it and sends one back",
        raw: "sendmsg(2) and recvmsg(2) of 32 bytes over a SOCK_SEQPACKET socket, both block",
        floor: Floor::Side(
            "the same, recvmsg(2) without blocking and poll(2) with a time-out, as every wait has one, and the credentials of the sender (SO_PASSCRED, P1)",
        ),
        limits: &[],
        on: &[On::Host],
        variants: &[],
        run: point,
    },
];

pub(super) const SPINNING: u64 = 0;
pub(super) const SLEEPING: u64 = 1;

/// How the waits of a variant begin.
pub(super) const fn pace(n: u64) -> Pace {
    match n {
        SLEEPING => Pace::SLEEPING,
        _ => Pace::SPINNING,
    }
}

fn pingpong(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let partner = Partner::process(&call.machine.host(call.subject)?, pace(call.n))?;
    lab.race(partner.sides([Way::Timelines, Way::Words, Way::CarefulWords]))
}

fn point(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let partner = Partner::process(&call.machine.host(call.subject)?, Pace::SLEEPING)?;
    lab.race(partner.sides([Way::Points, Way::Packets, Way::CarefulPackets]))
}
