//! A driver's half that states another backend's device. It got the ports of that device.

use syncline_core::backend::{Batch, Enqueue, Flush, Keep, NoStamp, Waker};
use syncline::{Result, vulkan};

struct Impostor(vulkan::Device);

impl Enqueue for Impostor {
    type Device = vulkan::Device; //~ type mismatch resolving
    type Recorder<'a> = ();
    type Ready<'a> = ();
    type State = ();
    type Stamp = NoStamp;

    fn device(&self) -> &vulkan::Device {
        &self.0
    }

    fn ready(&self) -> Option<()> {
        Some(())
    }

    fn record<W>(&self, (): (), (): &mut (), _: &Batch<'_, Self>, _: &mut Keep, _: W) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut ()) -> Result<()>,
    {
        Ok(())
    }

    fn flush(&self, (): &mut (), _: &dyn Fn() -> Waker) -> Flush {
        Flush::Done
    }
}

fn main() {}
