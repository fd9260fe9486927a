//! X1, X2, X5, X7, X8, Q3: links between two devices, with shared counters and memory.
//!
//! The engine carries signals where two devices share nothing.

/// Lists cases of two devices in two forms.
///
/// One form is for pairs with a native mechanism, and checks the rules of sharing. In the other
/// form the engine carries the signals (Q3).
macro_rules! linked_cases {
    ($($name:literal: [$($rule:ident)+] or [$($relayed:ident)+] => $run:path;)+) => {
        /// The cases of this file.
        pub(super) fn cases() -> Vec<$crate::Case<$crate::workload::Equipped>> {
            vec![$(
                $crate::Case {
                    id: concat!("share.", $name),
                    rules: &[$(stringify!($rule)),+],
                    run: |world| super::natively(world, $run),
                },
                $crate::Case {
                    id: concat!("engine.", $name),
                    rules: &[$(stringify!($relayed)),+],
                    run: |world| super::by_the_engine(world, $run),
                },
            )+]
        }
    };
}

/// Lists cases of two devices with a native mechanism.
#[cfg(feature = "vulkan")]
macro_rules! native_cases {
    ($($id:literal: [$($rule:ident)+] => $run:path;)+) => {
        /// The cases of this file.
        pub(super) fn cases() -> Vec<$crate::Case<$crate::workload::Equipped>> {
            vec![$($crate::Case {
                id: $id,
                rules: &[$(stringify!($rule)),+],
                run: |world| super::natively(world, $run),
            },)+]
        }
    };
}

mod bridge;
mod counter;
#[cfg(feature = "vulkan")]
mod images;
mod life;
pub(crate) mod lost;
#[cfg(feature = "cuda")]
mod made_by_cuda;
mod mechanism;
mod memory;
mod plans;
mod ranges;
#[cfg(feature = "cuda")]
mod two_devices;

use syncline::{Device, Link, Mechanism, SharedBuffer, connect, share};

use crate::case::{Stop, Verdict};
use crate::user::{self, Queue, Timeline};
use crate::workload::Equipped;
use crate::{Case, World, patience};

/// The cases of this family. They need the devices of this project.
#[must_use]
pub fn cases() -> Vec<Case<Equipped>> {
    let files = [
        counter::cases(),
        mechanism::cases(),
        memory::cases(),
        life::cases(),
        lost::cases(),
        plans::cases(),
        ranges::cases(),
        #[cfg(feature = "vulkan")]
        images::cases(),
        #[cfg(feature = "cuda")]
        made_by_cuda::cases(),
        #[cfg(feature = "cuda")]
        two_devices::cases(),
    ];
    files.into_iter().flatten().collect()
}

/// Runs a case if the devices share something, and skips it with the reason otherwise.
fn natively(world: &World<Equipped>, run: fn(&World<Equipped>) -> Verdict) -> Verdict {
    pair_only(world)?;
    let link = linked(world.left.library(), world.right.library());
    if link.mechanism() == Mechanism::Engine {
        return Stop::skip(format!("the two share nothing natively: {}", link.why()));
    }
    run(world)
}

/// Runs a case if the engine has to carry the signals, and skips it with the reason otherwise.
fn by_the_engine(world: &World<Equipped>, run: fn(&World<Equipped>) -> Verdict) -> Verdict {
    pair_only(world)?;
    let link = linked(world.left.library(), world.right.library());
    if link.mechanism() != Mechanism::Engine {
        return Stop::skip(format!("the two are linked by {}", link.mechanism()));
    }
    run(world)
}

/// Links two devices natively, if that is possible, even if the engine would be faster.
pub(super) fn linked(left: &Device, right: &Device) -> Link {
    share(left, right).unwrap_or_else(|_| connect(left, right))
}

/// A link of both sides, with a queue of each.
struct Pair<'w> {
    world: &'w World<Equipped>,
    link: Link,
    queues: [Queue<Equipped>; 2],
}

impl<'w> Pair<'w> {
    fn of(world: &'w World<Equipped>) -> Result<Self, Stop> {
        Ok(Self {
            world,
            link: linked(world.left.library(), world.right.library()),
            queues: [world.left_queue("left")?, world.right_queue("right")?],
        })
    }

    fn line(&self, label: &str) -> syncline::Result<Timeline<Equipped>> {
        Ok(self.world.left.own(self.link.timeline(label)?))
    }

    /// Returns a buffer of both sides, or skips the case if they have no memory in common.
    fn one_buffer(&self, bytes: u64) -> Result<SharedBuffer, Stop> {
        match self.link.buffer_or_relay(bytes)? {
            shared if shared.is_relayed() => Stop::skip("the two have no memory in common"),
            shared => Ok(shared),
        }
    }

    fn devices(&self) -> [&'w user::Device<Equipped>; 2] {
        [&self.world.left, &self.world.right]
    }

    fn idle(&self) -> Verdict {
        Ok(self
            .queues
            .iter()
            .try_for_each(|queue| queue.idle(patience()))?)
    }
}

fn pair_only(world: &World<Equipped>) -> Verdict {
    if world.is_pair() {
        Ok(())
    } else {
        Stop::skip("one device has no other device to share with")
    }
}
