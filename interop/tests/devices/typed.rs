//! Accessors of the backends' own types, and the pair of CUDA and Vulkan on one GPU.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use syncline::prelude::*;
use syncline::{Device, Queue, host};

/// Checks that the error names the backend that was asked for.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
fn refused<T>(answer: Result<T, Error>, backend: &str) {
    match answer.map(drop) {
        Err(Error::Unsupported { asked, reason, .. }) => {
            assert!(asked.contains(backend), "{asked}");
            assert!(reason.contains("of the wanted backend"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

/// Work of another backend is refused. The submission signals nothing, and the queue goes on.
#[test]
fn accessors_refuse_another_backend() {
    let own = host::Device::new();
    let device = Device::from(own.clone());
    assert_eq!(device.host().unwrap().id(), own.id());
    assert_eq!(
        host::Device::try_from(device.clone()).unwrap().id(),
        own.id()
    );
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let line = device.timeline("line").unwrap();
    assert!(host::Queue::try_from(queue.clone()).is_ok());
    #[cfg(any(feature = "cuda", feature = "vulkan"))]
    let memory = syncline::Buffer::host_visible(&device, 64).unwrap();
    #[cfg(feature = "cuda")]
    {
        use syncline::cuda;
        refused(device.cuda(), "CUDA");
        refused(cuda::Device::try_from(device.clone()), "CUDA");
        refused(cuda::Queue::try_from(queue.clone()), "CUDA");
        refused(memory.cuda(), "CUDA");
        refused(cuda::Buffer::try_from(memory.clone()), "CUDA");
        let work = |r: &mut syncline::Recorder<'_>| r.cuda().map(drop);
        refused(queue.submit(&[], work, &[line.signal_at(1)]), "CUDA");
    }
    #[cfg(feature = "vulkan")]
    {
        use syncline::vulkan;
        refused(device.vulkan(), "Vulkan");
        refused(vulkan::Device::try_from(device.clone()), "Vulkan");
        refused(vulkan::Queue::try_from(queue.clone()), "Vulkan");
        refused(memory.vulkan(), "Vulkan");
        refused(vulkan::Buffer::try_from(memory.clone()), "Vulkan");
        let work = |r: &mut syncline::Recorder<'_>| r.vulkan().map(drop);
        refused(queue.submit(&[], work, &[line.signal_at(1)]), "Vulkan");
    }
    let runs = |r: &mut syncline::Recorder<'_>| {
        r.host()?.run(|| ());
        Ok(())
    };
    queue.submit(&[], runs, &[line.signal_at(1)]).unwrap();
    line.at(1).wait(std::time::Duration::from_secs(20)).unwrap();
    let _: &Queue = &queue;
}

/// The semaphore is Vulkan's, also if the device was chosen at run time.
#[cfg(all(feature = "cuda", feature = "vulkan"))]
#[test]
fn a_binary_semaphore_is_of_one_backend() {
    use syncline::{BinarySemaphore, cuda, vulkan};
    let _alone = crate::alone();
    let inventory = Inventory::probe(&ProbeOptions::default());
    let Ok(device) = inventory.select("vulkan").and_then(|found| found.open()) else {
        return println!("skipped: there is no Vulkan device");
    };
    let semaphore = device.binary_semaphore("acquired").unwrap();
    assert_eq!(semaphore.vulkan().unwrap().object(), semaphore.object());
    refused(semaphore.cuda(), "CUDA");
    refused(cuda::BinarySemaphore::try_from(semaphore.clone()), "CUDA");
    let own = vulkan::BinarySemaphore::try_from(semaphore.clone()).unwrap();
    let again = BinarySemaphore::from(own);
    assert_eq!(again.object(), semaphore.object());
}

/// Both devices of a pair are one GPU. Without one, the error tells why.
#[cfg(all(feature = "cuda", feature = "vulkan"))]
#[test]
fn a_pair_is_one_gpu() {
    let _alone = crate::alone();
    let inventory = Inventory::probe(&ProbeOptions::default());
    let cuda = || inventory.of(syncline::info::BackendKind::Cuda);
    let is_pair = |of: &syncline::Found| {
        let mut vulkan = inventory.of(syncline::info::BackendKind::Vulkan);
        vulkan.any(|other| other.info().same_gpu(of.info()))
    };
    match inventory.pair() {
        Ok((cuda, vulkan)) => {
            assert!(cuda.info().same_gpu(vulkan.info()));
            let link = share(&cuda, &vulkan).unwrap();
            let buffer = link.buffer(64).unwrap();
            let (_, _): (&syncline::cuda::Buffer, &syncline::vulkan::Buffer) =
                (buffer.left(), buffer.right());
        }
        Err(Error::NoSuchDevice { asked, have, .. }) => {
            assert!(!cuda().any(is_pair), "{asked}, {have}");
            assert!(have.contains("cuda"), "{have}");
        }
        Err(Error::Unavailable { .. }) => assert_eq!(cuda().filter(|of| is_pair(of)).count(), 0),
        Err(other) => panic!("{other}"),
    }
}

/// A number beyond the last device is an error that lists the devices.
#[cfg(feature = "vulkan")]
#[test]
fn a_device_that_does_not_exist_is_an_error() {
    let _alone = crate::alone();
    let Ok(instance) = syncline::vulkan::Instance::load() else {
        return println!("skipped: there is no Vulkan loader");
    };
    let names: Vec<_> = instance.devices().unwrap();
    match syncline::vulkan::Device::open(1000).map(drop) {
        Err(Error::NoSuchDevice { asked, have, .. }) => {
            assert_eq!(asked, "vulkan 1000");
            assert!(
                names.iter().all(|device| have.contains(&device.info.name)),
                "{have}"
            );
        }
        other => panic!("{other:?}"),
    }
}
