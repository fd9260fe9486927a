//! What a command does, and a node of a graph.

use std::ffi::c_void;
use std::sync::Arc;

use crate::bug::Bug;
use crate::code::Answer;
use crate::context::Life;
use crate::copy::Copy;
use crate::event::Event;
use crate::external::{SignalSemaphore, WaitSemaphore};
use crate::fill::Fill;
use crate::graph::Launched;
use crate::kernel::KernelLaunch;
use crate::mark::Mark;
use crate::memory_op::MemoryOp;
use crate::news;
use crate::progress::Progress;

/// Where a command runs.
pub(crate) struct Place<'c> {
    pub(crate) life: &'c Life,
    /// The id of the context.
    pub(crate) context: u64,
}

/// One command.
#[derive(Clone)]
pub(crate) enum Operation {
    Record(Mark),
    /// Waits for a record, which was taken when the wait was submitted.
    Wait(Mark),
    /// Waits for a command of another stream. The driver adds it for the legacy default stream.
    WaitProgress(Arc<Progress>, u64),
    /// Of a graph: records the event at each launch.
    RecordAtLaunch(Arc<Event>),
    /// Of a graph: waits at each launch for the latest record of the event.
    WaitAtLaunch(Arc<Event>),
    HostFunction(HostFunction),
    Fill(Fill),
    Copy(Copy),
    Kernel(Arc<KernelLaunch>),
    MemoryOps(Arc<[MemoryOp]>),
    SignalSemaphores(Arc<[SignalSemaphore]>),
    WaitSemaphores(Arc<[WaitSemaphore]>),
    Graph(Arc<Launched>),
}

/// A function of the application, which runs in the order of its stream.
#[derive(Clone, std::marker::Copy)]
pub(crate) struct HostFunction {
    pub(crate) function: extern "C" fn(*mut c_void),
    pub(crate) data: *mut c_void,
}

// SAFETY: the application gives the pointer to its own function, on whichever thread that runs.
#[allow(unsafe_code, reason = "a pointer that only the application follows")]
unsafe impl Send for HostFunction {}
// SAFETY: as for sending.
#[allow(unsafe_code, reason = "as above")]
unsafe impl Sync for HostFunction {}

impl Operation {
    /// How much of its connection's room the command takes. What only orders streams takes none.
    pub(crate) fn room(&self) -> usize {
        match self {
            Self::Record(_)
            | Self::Wait(_)
            | Self::WaitProgress(..)
            | Self::RecordAtLaunch(_)
            | Self::WaitAtLaunch(_)
            | Self::HostFunction(_) => 0,
            Self::MemoryOps(ops) => ops.len(),
            Self::SignalSemaphores(all) => all.len(),
            Self::WaitSemaphores(all) => all.len(),
            Self::Graph(launched) => launched.room().max(1),
            Self::Fill(_) | Self::Copy(_) | Self::Kernel(_) => 1,
        }
    }

    /// The command as it is submitted: what it takes from the present state of events and semaphores is
    /// taken now.
    pub(crate) fn submitted(self) -> Self {
        match self {
            Self::RecordAtLaunch(_) if Bug::LaunchForgetsRecords.is_planted() => self,
            Self::RecordAtLaunch(event) => Self::Record(event.new_record()),
            Self::WaitAtLaunch(event) => Self::Wait(event.latest_or_reached()),
            Self::SignalSemaphores(all) => {
                Self::SignalSemaphores(all.iter().map(SignalSemaphore::submitted).collect())
            }
            Self::WaitSemaphores(all) => {
                Self::WaitSemaphores(all.iter().map(WaitSemaphore::submitted).collect())
            }
            other => other,
        }
    }

    /// Runs the command on the thread of its connection. An error is the sticky error of the context.
    pub(crate) fn run(&self, place: &Place<'_>) -> Answer {
        match self {
            Self::Record(mark) => mark.complete(),
            Self::Wait(mark) => mark.wait(place.life),
            Self::WaitProgress(progress, number) => {
                news::wait_until(|| progress.has_reached(*number) || place.life.is_over());
            }
            // Only as what they are when submitted.
            Self::RecordAtLaunch(_) | Self::WaitAtLaunch(_) => {}
            Self::HostFunction(host) => (host.function)(host.data),
            Self::Fill(fill) => fill.run(place)?,
            Self::Copy(copy) => copy.run(place)?,
            Self::Kernel(launch) => launch.run(place)?,
            Self::MemoryOps(ops) => ops.iter().try_for_each(|op| op.run(place))?,
            Self::SignalSemaphores(all) => all.iter().for_each(SignalSemaphore::run),
            Self::WaitSemaphores(all) => all.iter().for_each(|one| one.run(place.life)),
            Self::Graph(launched) => {
                for operation in launched.operations() {
                    if place.life.is_over() {
                        break;
                    }
                    operation.run(place)?;
                }
            }
        }
        Ok(())
    }
}
