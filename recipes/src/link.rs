//! Chooses the producer for the Vulkan device.

use syncline::backend::Device as _;
use syncline::{Device, Link, connect, cuda, host, share, vulkan};

use crate::{ProducerKind, Stop};

/// Links the Vulkan device with CUDA if both are one GPU, else with the host. Prints the choice.
///
/// Vulkan is the left side, so that timelines have their home there. So the application's own
/// submissions find a semaphore, whichever the producer is.
///
/// # Errors
/// The reason why CUDA cannot produce, if it was asked for.
pub fn link(
    vulkan: &vulkan::Device,
    cuda: Result<&cuda::Device, &str>,
    asked: Option<ProducerKind>,
) -> Result<Link<vulkan::Device, Device>, Stop> {
    let native = match (asked, cuda) {
        (Some(ProducerKind::Host), _) => Err("asked for".to_owned()),
        (_, Ok(cuda)) => {
            share(vulkan, &Device::from(cuda.clone())).map_err(|error| error.to_string())
        }
        (_, Err(reason)) => Err(reason.to_owned()),
    };
    let (link, because) = match native {
        Ok(link) => (link, String::new()),
        Err(reason) if asked == Some(ProducerKind::Cuda) => return Err(reason.into()),
        Err(reason) => {
            let link = connect(vulkan, &Device::from(host::Device::new()));
            (link, format!(" ({reason})"))
        }
    };
    println!("commit: {}", env!("SYNCLINE_COMMIT"));
    println!(
        "consumer: Vulkan on {}, {}",
        vulkan.info().name,
        vulkan.info().driver
    );
    match link.right() {
        Device::Host(_) => println!("producer: host{because}"),
        other => println!(
            "producer: CUDA on {}, {}",
            other.info().name,
            other.info().driver
        ),
    }
    println!("ordered by: {} ({})", link.mechanism(), link.why());
    Ok(link)
}
