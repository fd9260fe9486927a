//! Commands of streams and nodes of graphs.

use std::sync::Arc;

use crate::code::Answer;
use crate::copy::Copy;
use crate::engine::{Engine, Ticket};
use crate::event::Event;
use crate::external::{SignalSemaphore, WaitSemaphore};
use crate::fill::Fill;
use crate::graph::{Executable, Launched};
use crate::host_thread::HostFunction;
use crate::kernel::KernelLaunch;
use crate::mark::Mark;
use crate::memory_op::MemoryOp;
use crate::news;
use crate::progress::Progress;

/// One command.
#[derive(Clone)]
pub(crate) enum Operation {
    /// Records the event. Its submitted form is a [`Record`](Operation::Record).
    RecordEvent(Arc<Event>),
    Record(Mark),
    /// In a graph: waits for the latest record of the event at each launch. Its submitted form is a
    /// [`Wait`](Operation::Wait).
    WaitAtLaunch(Arc<Event>),
    /// Waits for one record of an event.
    Wait(Mark),
    /// Waits for a command of another stream. The driver adds it for the legacy default stream.
    WaitProgress(Arc<Progress>, u64),
    HostFunction(HostFunction),
    Fill(Fill),
    Copy(Copy),
    Kernel(Arc<KernelLaunch>),
    MemoryOps(Arc<[MemoryOp]>),
    SignalSemaphores(Arc<[SignalSemaphore]>),
    WaitSemaphores(Arc<[WaitSemaphore]>),
    /// Its submitted form is a [`Graph`](Operation::Graph).
    LaunchGraph(Arc<Executable>),
    Graph(Arc<Launched>),
}

impl Operation {
    /// Returns how much of its stream's in-flight budget the unsubmitted command needs.
    ///
    /// Commands that only order streams need none.
    pub(crate) fn cost(&self) -> usize {
        match self {
            Self::RecordEvent(event) => event.is_timed().into(),
            Self::Wait(_) | Self::WaitAtLaunch(_) | Self::HostFunction(_) => 0,
            _ => 1,
        }
    }

    /// Returns its kind as a node of a graph, a value of `CUgraphNodeType`.
    pub(crate) const fn kind(&self) -> u32 {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy(_) => 1,
            Self::Fill(_) => 2,
            Self::HostFunction(_) => 3,
            Self::LaunchGraph(_) | Self::Graph(_) => 4,
            Self::Wait(_) | Self::WaitProgress(..) | Self::WaitAtLaunch(_) => 6,
            Self::Record(_) | Self::RecordEvent(_) => 7,
            Self::SignalSemaphores(_) => 8,
            Self::WaitSemaphores(_) => 9,
            Self::MemoryOps(_) => 12,
        }
    }

    /// The parts of a batch: how many there are, and which of them are waits.
    pub(crate) fn parts(&self) -> Vec<bool> {
        match self {
            Self::MemoryOps(all) => all.iter().map(MemoryOp::is_wait).collect(),
            _ => vec![false; self.semaphores()],
        }
    }

    /// The number of semaphores of a signal or wait operation.
    pub(crate) fn semaphores(&self) -> usize {
        match self {
            Self::SignalSemaphores(all) => all.len(),
            Self::WaitSemaphores(all) => all.len(),
            _ => 0,
        }
    }

    /// Returns the command as submitted, with the present state of events, semaphores and graphs.
    ///
    /// Call this only when nothing can refuse the command any more.
    pub(crate) fn submitted(self, engine: &Arc<Engine>) -> Self {
        match self {
            Self::RecordEvent(event) => Self::Record(event.new_record()),
            Self::WaitAtLaunch(event) => Self::Wait(event.latest_or_reached()),
            Self::SignalSemaphores(all) => {
                Self::SignalSemaphores(all.iter().map(SignalSemaphore::submitted).collect())
            }
            Self::WaitSemaphores(all) => {
                Self::WaitSemaphores(all.iter().map(WaitSemaphore::submitted).collect())
            }
            Self::LaunchGraph(executable) => Self::Graph(executable.submitted(engine)),
            other => other,
        }
    }

    /// Runs the command. An error is the sticky error of the context.
    ///
    /// `begins` is called when a kernel begins.
    pub(crate) fn run(&self, engine: &Arc<Engine>, ticket: Ticket, begins: impl Fn()) -> Answer {
        let life = &engine.life;
        match self {
            Self::Wait(mark) => mark.wait(life),
            Self::WaitProgress(progress, number) => {
                news::wait_until(|| progress.has_reached(*number) || life.is_over());
            }
            Self::HostFunction(host) => host.run(engine)?,
            Self::Graph(launched) => launched.run(ticket)?,
            Self::Kernel(launch) => {
                if engine.connections.pass(ticket, false, life) {
                    begins();
                    launch.run(engine)?;
                }
            }
            // These run only in their submitted forms.
            Self::RecordEvent(_) | Self::WaitAtLaunch(_) | Self::LaunchGraph(_) => {}
            other => {
                let waits = other.waits();
                if !engine.connections.pass(ticket, waits, life) {
                    return Ok(());
                }
                let run = other.run_connected(engine);
                if waits {
                    engine.connections.leave(ticket);
                }
                run?;
            }
        }
        Ok(())
    }

    /// Makes its signals of semaphores, if it has any.
    pub(crate) fn signal(&self) {
        if let Self::SignalSemaphores(all) = self {
            all.iter().for_each(SignalSemaphore::run);
        }
    }

    /// True if it keeps its connection, because it may wait for another process.
    pub(crate) fn waits(&self) -> bool {
        match self {
            Self::MemoryOps(ops) => ops.iter().any(MemoryOp::is_wait),
            Self::WaitSemaphores(_) => true,
            _ => false,
        }
    }

    /// Runs a command that needs a hardware connection.
    fn run_connected(&self, engine: &Engine) -> Answer {
        match self {
            Self::Record(mark) => mark.complete(),
            Self::Fill(fill) => fill.run(engine)?,
            Self::Copy(copy) => copy.run(engine)?,
            Self::MemoryOps(ops) => ops.iter().try_for_each(|op| op.run(engine))?,
            Self::SignalSemaphores(_) => self.signal(),
            Self::WaitSemaphores(all) => all.iter().for_each(|one| one.run(&engine.life)),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use std::cell::Cell;

    use syncline_software_ptx::{Launch, Module};

    use super::*;
    use crate::code::Code;
    use crate::context::Context;

    #[test]
    fn a_kernel_does_not_begin_once_its_context_is_over() {
        let text = ".version 6.4 .target sm_60 .address_size 64 .visible .entry stop() { trap; }";
        let entry = Module::parse(text).unwrap().entry("stop").unwrap();
        let launch = Launch {
            grid: [1; 3],
            block: [1; 3],
            params: Vec::new(),
        };
        let kernel = Operation::Kernel(Arc::new(KernelLaunch::new(entry, launch).unwrap()));
        let (context, begun) = (Context::for_tests(), Cell::new(0));
        let run = || {
            let ticket = context.engine.connections.ticket();
            kernel.run(&context.engine, ticket, || begun.set(begun.get() + 1))
        };
        assert_eq!(run(), Err(Code::LAUNCH_FAILED));
        context.engine.life.end();
        assert_eq!((run(), begun.get()), (Ok(()), 1));
    }
}
