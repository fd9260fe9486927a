//! An author's `Enqueue` that forwards to another backend's. It passed a `Keep` of its own.

use syncline_core::backend::{Attachment, Batch, Enqueue, Flush, Home, Keep, Waker};
use syncline::{Result, vulkan};

type Feed = <vulkan::Device as Home>::Enqueue;

struct Wrapping(vulkan::Device);

impl Home for Wrapping {
    type Enqueue = Wrapped;

    fn port(&self, initial: u64) -> Result<Attachment> {
        self.0.port(initial)
    }
}

struct Wrapped(Wrapping, Feed);

impl Enqueue for Wrapped {
    type Device = Wrapping;
    type Recorder<'a> = <Feed as Enqueue>::Recorder<'a>;
    type Ready<'a> = <Feed as Enqueue>::Ready<'a>;
    type State = <Feed as Enqueue>::State;
    type Stamp = <Feed as Enqueue>::Stamp;

    fn device(&self) -> &Wrapping {
        &self.0
    }

    fn ready(&self) -> Option<Self::Ready<'_>> {
        self.1.ready()
    }

    fn record<W>(
        &self,
        ready: Self::Ready<'_>,
        state: &mut Self::State,
        batch: &Batch<'_, Self>,
        _: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut Self::Recorder<'a>) -> Result<()>,
    {
        self.1.record(ready, state, batch, &mut Keep::default(), work) //~ mismatched types
    }

    fn flush(&self, state: &mut Self::State, waker: &dyn Fn() -> Waker) -> Flush {
        self.1.flush(state, waker)
    }
}

fn main() {}
