//! The application's own Vulkan: instance, surface, device and swapchain.
//!
//! Of Syncline, only what its device is made with is here: `Offer` and `AdoptInfo`.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use syncline::vulkan::ash::{self, khr, vk};
use syncline::vulkan::{AdoptInfo, Offer};

use crate::PATIENCE;
use crate::window::{Stop, Window};

/// The instance, the window's surface, the device, and its only queue.
///
/// If it cannot be opened, the program ends, and nothing is destroyed.
pub(crate) struct Application {
    entry: ash::Entry,
    instance: ash::Instance,
    surfaces: khr::surface::Instance,
    surface: vk::SurfaceKHR,
    physical: vk::PhysicalDevice,
    offer: Offer,
    family: u32,
    device: ash::Device,
    swapchains: khr::swapchain::Device,
    pub(crate) window: Window,
}

impl Application {
    pub(crate) fn open() -> Result<Self, Stop> {
        let window = Window::open(320, 200)?;
        let none = |reason: &dyn std::fmt::Display| Stop::NoDevice(reason.to_string());
        // SAFETY: the loader's initializers are trusted.
        let entry = unsafe { ash::Entry::load() }.map_err(|error| none(&error))?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
        let extensions = [khr::surface::NAME, khr::xcb_surface::NAME].map(CStr::as_ptr);
        let info = vk::InstanceCreateInfo::default()
            .application_info(&application)
            .enabled_extension_names(&extensions);
        // SAFETY: the structure is valid.
        let instance =
            unsafe { entry.create_instance(&info, None) }.map_err(|code| match code {
                vk::Result::ERROR_EXTENSION_NOT_PRESENT => {
                    none(&"no driver has VK_KHR_xcb_surface")
                }
                code => none(&code),
            })?;
        let surfaces = khr::surface::Instance::new(&entry, &instance);
        let info = vk::XcbSurfaceCreateInfoKHR::default()
            .connection(window.connection.get_raw_xcb_connection())
            .window(window.id);
        // SAFETY: the window outlives the surface.
        let surface = unsafe {
            khr::xcb_surface::Instance::new(&entry, &instance).create_xcb_surface(&info, None)
        }?;
        // What Syncline needs of a device, and a queue family that presents.
        let usable = |physical| -> Result<(Offer, u32), String> {
            // SAFETY: the handles are live and of this instance.
            let (offer, extensions, families) = unsafe {
                (
                    Offer::of(&entry, &instance, physical).map_err(|error| error.to_string())?,
                    instance.enumerate_device_extension_properties(physical),
                    instance.get_physical_device_queue_family_properties(physical),
                )
            };
            let extensions = extensions.map_err(|code| code.to_string())?;
            let is_swapchain = |found: &vk::ExtensionProperties| {
                found.extension_name_as_c_str() == Ok(khr::swapchain::NAME)
            };
            if !extensions.iter().any(is_swapchain) {
                return Err("it has no VK_KHR_swapchain".into());
            }
            let family = (0..).zip(families).find(|(family, kind)| {
                // SAFETY: as above, and the surface is of this instance.
                let presents = unsafe {
                    surfaces.get_physical_device_surface_support(physical, *family, surface)
                };
                kind.queue_flags.contains(vk::QueueFlags::GRAPHICS) && presents == Ok(true)
            });
            let (family, _) =
                family.ok_or("it has no graphics queue that presents to the window")?;
            Ok((offer, family))
        };
        let mut refused = Vec::new();
        // SAFETY: the instance is live.
        let devices = unsafe { instance.enumerate_physical_devices() }?;
        let found = devices.into_iter().find_map(|physical| {
            let found = usable(physical).map_err(|reason| refused.push(reason));
            Some((physical, found.ok()?))
        });
        let (physical, (offer, family)) = found.ok_or_else(|| none(&refused.join("; ")))?;
        let extensions = offer.extensions.iter().chain([&khr::swapchain::NAME]);
        let extensions: Vec<_> = extensions.map(|name| name.as_ptr()).collect();
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&[1.0])];
        let mut timelines =
            vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let mut reset = vk::PhysicalDeviceHostQueryResetFeatures::default()
            .host_query_reset(offer.enabled.host_query_reset);
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut timelines)
            .push_next(&mut reset);
        // SAFETY: the structure is valid, and the device offers what it asks for.
        let device =
            unsafe { instance.create_device(physical, &info, None) }.map_err(|code| none(&code))?;
        Ok(Self {
            swapchains: khr::swapchain::Device::new(&instance, &device),
            entry,
            instance,
            surfaces,
            surface,
            physical,
            offer,
            family,
            device,
            window,
        })
    }

    /// What Syncline adopts. This is its owner, and is kept as long as the adopted device.
    pub(crate) fn adopt_info(self: &Arc<Self>) -> AdoptInfo {
        // SAFETY: the device was created with this queue.
        let queue = unsafe { self.device.get_device_queue(self.family, 0) };
        AdoptInfo {
            entry: self.entry.clone(),
            instance: self.instance.clone(),
            physical: self.physical,
            device: self.device.clone(),
            queues: vec![(self.family, 0, queue)],
            owner: Some(self.clone()),
            enabled: self.offer.enabled,
        }
    }

    /// Waits for all work and presents of the queue. The caller has its lock.
    pub(crate) fn wait_idle(&self, queue: vk::Queue) -> Result<(), Stop> {
        // SAFETY: no other thread uses the queue.
        Ok(unsafe { self.device.queue_wait_idle(queue) }?)
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        // SAFETY: this is the owner, so nothing uses the handles any more.
        unsafe {
            self.device.destroy_device(None);
            self.surfaces.destroy_surface(self.surface, None);
            self.instance.destroy_instance(None);
        }
    }
}

/// A swapchain of the window's size, and the semaphores of acquires and presents.
pub(crate) struct Swapchain {
    own: Arc<Application>,
    raw: vk::SwapchainKHR,
    extent: vk::Extent2D,
    images: Vec<vk::Image>,
    /// True once a present has told that a new swapchain is needed.
    is_stale: AtomicBool,
    /// One for each frame in flight.
    pub(crate) acquired: Vec<vk::Semaphore>,
    /// One for each image.
    pub(crate) rendered: Vec<vk::Semaphore>,
}

impl Swapchain {
    /// Makes a swapchain, in place of `old` if there is one. No work of the device is unfinished.
    pub(crate) fn new(own: &Arc<Application>, old: Option<&Self>) -> Result<Self, Stop> {
        let (surface, physical) = (own.surface, own.physical);
        // SAFETY: the handles are live.
        let (can, formats) = unsafe {
            let surfaces = &own.surfaces;
            (
                surfaces.get_physical_device_surface_capabilities(physical, surface)?,
                surfaces.get_physical_device_surface_formats(physical, surface)?,
            )
        };
        let (format, copy) = (
            vk::Format::B8G8R8A8_UNORM,
            vk::ImageUsageFlags::TRANSFER_DST,
        );
        let format = formats.iter().find(|found| found.format == format);
        let format = format.filter(|_| can.supported_usage_flags.contains(copy));
        let format = format.ok_or_else(|| {
            Stop::NoDevice(
                "its images have another format than BGRA, or cannot be copied to".into(),
            )
        })?;
        let most = match can.max_image_count {
            0 => u32::MAX,
            most => most,
        };
        let info = vk::SwapchainCreateInfoKHR::default()
            .surface(surface)
            .min_image_count((can.min_image_count + 1).min(most))
            .image_format(format.format)
            .image_color_space(format.color_space)
            .image_extent(can.current_extent)
            .image_array_layers(1)
            .image_usage(copy)
            .pre_transform(can.current_transform)
            .composite_alpha(vk::CompositeAlphaFlagsKHR::OPAQUE)
            .present_mode(vk::PresentModeKHR::FIFO)
            .clipped(true)
            .old_swapchain(old.map_or(vk::SwapchainKHR::null(), |old| old.raw));
        let vk::Extent2D { width, height } = can.current_extent;
        println!("a swapchain of {width} x {height}");
        // SAFETY: the structure is valid. Nothing uses the images of the old swapchain.
        unsafe {
            let raw = own.swapchains.create_swapchain(&info, None)?;
            let images = own.swapchains.get_swapchain_images(raw)?;
            let semaphore = |_| own.device.create_semaphore(&Default::default(), None);
            Ok(Self {
                acquired: (0..2).map(semaphore).collect::<Result<_, _>>()?,
                rendered: (0..images.len())
                    .map(|_| semaphore(0))
                    .collect::<Result<_, _>>()?,
                own: own.clone(),
                raw,
                extent: can.current_extent,
                images,
                is_stale: AtomicBool::new(false),
            })
        }
    }

    /// The pixels in a row.
    pub(crate) fn width(&self) -> u32 {
        self.extent.width
    }

    /// The bytes of an image.
    pub(crate) fn bytes(&self) -> u64 {
        4 * u64::from(self.extent.width) * u64::from(self.extent.height)
    }

    /// Acquires an image, unless one is `kept`. `None` if the swapchain is out of date.
    pub(crate) fn acquire(&self, slot: usize, kept: Option<usize>) -> Result<Option<usize>, Stop> {
        if kept.is_some() {
            return Ok(kept);
        }
        // Not every driver tells when the window has another size.
        let vk::Extent2D { width, height } = self.extent;
        if self.is_stale.load(Relaxed) || self.own.window.size() != (width, height) {
            return Ok(None);
        }
        let (signal, limit) = (self.acquired[slot], PATIENCE.as_nanos() as u64);
        // SAFETY: the frame that used the semaphore before has ended.
        let made = unsafe {
            let none = vk::Fence::null();
            self.own
                .swapchains
                .acquire_next_image(self.raw, limit, signal, none)
        };
        match made {
            Ok((image, _)) => Ok(Some(image as usize)),
            Err(vk::Result::ERROR_OUT_OF_DATE_KHR) => Ok(None),
            Err(code) => Err(code.into()),
        }
    }

    /// Presents an image. The caller has the queue's lock.
    pub(crate) fn present(&self, queue: vk::Queue, image: usize) -> Result<(), Stop> {
        let (waits, raw, images) = ([self.rendered[image]], [self.raw], [image as u32]);
        let info = vk::PresentInfoKHR::default()
            .wait_semaphores(&waits)
            .swapchains(&raw)
            .image_indices(&images);
        // SAFETY: the signal of the semaphore is submitted. No other thread uses the queue.
        match unsafe { self.own.swapchains.queue_present(queue, &info) } {
            Ok(false) => Ok(()),
            Ok(true) | Err(vk::Result::ERROR_OUT_OF_DATE_KHR) => {
                self.is_stale.store(true, Relaxed);
                Ok(())
            }
            Err(code) => Err(code.into()),
        }
    }

    /// Records a copy of `from` to an image.
    pub(crate) fn draw(&self, commands: vk::CommandBuffer, from: vk::Buffer, image: usize) {
        let (device, image) = (&self.own.device, self.images[image]);
        let (transfer, end) = (
            vk::PipelineStageFlags::TRANSFER,
            vk::PipelineStageFlags::BOTTOM_OF_PIPE,
        );
        let (unknown, target, shown) = (
            vk::ImageLayout::UNDEFINED,
            vk::ImageLayout::TRANSFER_DST_OPTIMAL,
            vk::ImageLayout::PRESENT_SRC_KHR,
        );
        let layers = vk::ImageSubresourceLayers::default()
            .aspect_mask(vk::ImageAspectFlags::COLOR)
            .layer_count(1);
        let range = vk::ImageSubresourceRange::default()
            .aspect_mask(vk::ImageAspectFlags::COLOR)
            .level_count(1)
            .layer_count(1);
        let region = vk::BufferImageCopy::default()
            .image_subresource(layers)
            .image_extent(self.extent.into());
        let written = vk::AccessFlags::TRANSFER_WRITE;
        let change = vk::ImageMemoryBarrier::default()
            .image(image)
            .subresource_range(range);
        let begin = change
            .old_layout(unknown)
            .new_layout(target)
            .dst_access_mask(written);
        let done = change
            .old_layout(target)
            .new_layout(shown)
            .src_access_mask(written);
        let none = vk::DependencyFlags::empty();
        // SAFETY: the commands are being recorded. The submission keeps the buffer and the image.
        unsafe {
            device.cmd_pipeline_barrier(commands, transfer, transfer, none, &[], &[], &[begin]);
            device.cmd_copy_buffer_to_image(commands, from, image, target, &[region]);
            device.cmd_pipeline_barrier(commands, transfer, end, none, &[], &[], &[done]);
        }
    }
}

impl Drop for Swapchain {
    fn drop(&mut self) {
        // SAFETY: the submissions that use them keep this, so they have ended. Presents have ended
        // before a swapchain is replaced.
        unsafe {
            for semaphore in self.acquired.iter().chain(&self.rendered) {
                self.own.device.destroy_semaphore(*semaphore, None);
            }
            self.own.swapchains.destroy_swapchain(self.raw, None);
        }
    }
}
