//! The host paints frames, and the application's own Vulkan device shows them in a window of X11.
//!
//! Usage: `window [FRAMES [PICTURE.png]]`. Everything that waits or signals is in this file.

#![allow(unsafe_code, reason = "calls Vulkan as an application does")]

mod swapchain;
mod window;

use std::{sync::Arc, time::Duration};

use swapchain::{Application, Swapchain};
use syncline::prelude::*;
use syncline::vulkan::{self, ash::vk::PipelineStageFlags};
use window::{Stop, arguments, paint};

const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<(), Stop> {
    let (frames, picture) = arguments()?;
    let own = Arc::new(Application::open()?);
    // SAFETY: the handles belong together, and the owner among them destroys them.
    let device = unsafe { vulkan::Device::adopt(own.adopt_info()) }?;
    println!("{}", device.info().name);
    let queue = device.queue(QueueKind::Graphics, "show")?;
    let settle = || {
        queue.idle(PATIENCE)?; // the frames in flight
        own.wait_idle(queue.lock()?.raw()) // presents, which no timeline covers
    };
    let renew = |old: Option<&Swapchain>| -> Result<_, Stop> {
        settle()?;
        let new = Arc::new(Swapchain::new(&own, old)?);
        let buffer = || device.host_buffer(new.bytes(), Default::default());
        Ok((new.clone(), [buffer()?, buffer()?]))
    };
    let (mut swapchain, mut buffers) = renew(None)?;
    let mut painted = device.timeline("painted")?;
    let mut ends = [queue.position().keep(), queue.position().keep()]; // of two frames in flight
    let (mut n, mut acquired) = (1, None);
    while n <= frames && own.window.is_open(n)? {
        let slot = (n % 2) as usize;
        ends[slot].point().wait(PATIENCE)?; // the slot's buffer and semaphore are free again
        acquired = swapchain.acquire(slot, acquired)?;
        let Some(image) = acquired else {
            (swapchain, buffers) = renew(Some(&swapchain))?; // it was out of date
            continue;
        };
        // The consumer first. The submission is held until the host has painted.
        let (to, from) = (swapchain.clone(), buffers[slot].clone());
        let show = move |commands: &mut vulkan::Recorder<'_>| {
            to.draw(commands.command_buffer()?, from.raw(), image);
            // SAFETY: the acquire signals the first. Only the present waits for the second.
            unsafe {
                commands.wait_binary(to.acquired[slot], PipelineStageFlags::TRANSFER);
                commands.signal_binary(to.rendered[image]);
            }
            commands.keep(Arc::new((to, from)));
            Ok(())
        };
        let submitted = queue.submit(&[painted.at(n)], show, &[])?;
        ends[slot] = submitted.end().keep();
        match paint(&buffers[slot], swapchain.width(), n) {
            Ok(()) => painted.signal(n)?,
            Err(reason) => painted.fail(Error::work(reason)), // nothing to show this time
        }
        match submitted.wait_submitted(PATIENCE) {
            Ok(()) => {
                swapchain.present(queue.lock()?.raw(), image)?;
                (n, acquired) = (n + 1, None);
            }
            Err(Error::Skipped { cause, .. }) => {
                println!("frame {n} again: {cause}"); // with the same image and semaphore
                painted = device.timeline_from("painted", n - 1)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    settle()?;
    own.window.save(picture, frames)
}
