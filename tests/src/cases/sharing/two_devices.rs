//! X8: a link of two CUDA devices of one GPU shares memory.

use syncline::backend::Device as _;
use syncline::{Device, Error, cuda};

use super::ranges::{BYTES, both, exchange, parts};
use crate::World;
use crate::case::{Stop, Verdict, check, equipped_cases};
use crate::workload::Equipped;

equipped_cases! {
    "memory.two_cuda_devices_share_it": [X8 Q9] => shared;
}

/// The device is opened a second time. The link's buffer is one allocation, which CUDA exports.
fn shared(world: &World<Equipped>) -> Verdict {
    let Device::Cuda(first) = world.left.library() else {
        return Stop::skip("the device is not CUDA");
    };
    let uuid = first.info().uuid;
    let driver = cuda::Driver::load()?;
    let mut candidates = driver.devices()?.into_iter();
    let Some(same) = candidates.find(|candidate| candidate.info.uuid == uuid) else {
        return Stop::fail("the driver does not list the device any more");
    };
    let second = Equipped::new(same.open()?.into())?;
    let world = World::two(world.left.subject().clone(), second);
    let link = super::linked(world.left.library(), world.right.library());
    let promised = first
        .info()
        .capabilities
        .exports
        .contains(&syncline::handle::HandleKind::MemoryOpaqueFd);
    let whole = match link.buffer(BYTES) {
        Err(Error::CannotShare { what: "memory", .. }) if !promised => {
            return Stop::skip("the device exports no memory");
        }
        whole => whole?,
    };
    check!(
        promised && !whole.is_relayed() && whole.how().contains("exported by one CUDA device"),
        "it is {}",
        whole.how()
    );
    let views = both(&whole);
    exchange(&world, &views, &parts(&views)?)
}
