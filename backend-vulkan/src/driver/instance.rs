//! The loader and the instance.
#![allow(unsafe_code, reason = "talks to the Vulkan loader")]

use std::ffi::{CString, OsString};
use std::sync::{Arc, OnceLock};

use ash::{ext, vk};
use syncline_core::backend::kit::TeardownGuard;
use syncline_core::internal::MakerProcess;
use syncline_core::{Error, Result, error::Object};

use crate::driver::error::{call_failed, unavailable};
use crate::driver::validation::{self, Messages};

/// Options for creating an [`Instance`].
#[derive(Debug, Clone, Default)]
pub struct InstanceOptions {
    /// Enables `VK_LAYER_KHRONOS_validation`, with synchronization validation if the layer has it.
    ///
    /// See [`Instance::validation_errors`].
    pub validation: bool,
    /// The application's name for drivers.
    pub application_name: String,
}

/// A `VkInstance` and its loader. Cheap to clone. Devices opened from it keep it alive.
///
/// Instances without [options](InstanceOptions) are one `VkInstance`, which is never destroyed. See
/// rule D1.
#[derive(Clone)]
pub struct Instance(Arc<Inner>);

/// A process, its environment, and the instance that was made there. All of them are kept.
///
/// The environment names the drivers and layers. The instance keeps the drivers loaded: a thread
/// that has used a driver calls it once more when the thread ends.
struct Shared {
    maker: MakerProcess,
    environment: Vec<(OsString, OsString)>,
    instance: Instance,
    next: OnceLock<Box<Self>>,
}

/// Never changed, so that a forked child finds no lock that a thread of its parent holds.
static FIRST: OnceLock<Box<Shared>> = OnceLock::new();

struct Inner {
    entry: ash::Entry,
    raw: ash::Instance,
    messenger: Option<Messenger>,
    maker: MakerProcess,
}

struct Messenger {
    functions: ext::debug_utils::Instance,
    raw: vk::DebugUtilsMessengerEXT,
    messages: Arc<Messages>,
}

impl Instance {
    /// Loads the Vulkan loader and creates an instance without validation.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the reason, if there is no loader, no driver, or only one that
    /// is too old.
    pub fn load() -> Result<Self> {
        Self::load_with(&InstanceOptions::default())
    }

    /// Same as [`Instance::load`], with options.
    ///
    /// # Errors
    /// Same errors as [`Instance::load`], and [`Error::Unavailable`] if validation is requested and
    /// the layer is not installed.
    pub fn load_with(options: &InstanceOptions) -> Result<Self> {
        let shared = Self::shared();
        if !options.validation && options.application_name.is_empty() {
            return shared;
        }
        // It keeps the drivers loaded. Without it, this fails in the same way.
        drop(shared);
        Self::of_its_own(options)
    }

    /// Keeps the drivers of this environment loaded until the process ends, if there are any.
    pub(crate) fn keep_drivers_loaded() {
        drop(Self::shared());
    }

    /// The instance of this process and environment. Makes it first, if there is none.
    fn shared() -> Result<Self> {
        let maker = MakerProcess::this();
        let environment: Vec<_> = std::env::vars_os().collect();
        let mut place = &FIRST;
        while let Some(shared) = place.get() {
            if shared.maker == maker && shared.environment == environment {
                return Ok(shared.instance.clone());
            }
            place = &shared.next;
        }
        let instance = Self::of_its_own(&InstanceOptions::default())?;
        let mut made = Box::new(Shared {
            maker,
            environment,
            instance: instance.clone(),
            next: OnceLock::new(),
        });
        // Another thread may have taken the place.
        while let Err(again) = place.set(made) {
            made = again;
            if let Some(other) = place.get() {
                place = &other.next;
            }
        }
        Ok(instance)
    }

    fn of_its_own(options: &InstanceOptions) -> Result<Self> {
        let entry = loader()?;
        // SAFETY: no preconditions.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .map_err(|code| {
                unavailable(format!(
                    "the loader failed: {}",
                    call_failed("vkEnumerateInstanceVersion", code)
                ))
            })?
            .unwrap_or(vk::API_VERSION_1_0);
        if version < vk::API_VERSION_1_2 {
            return Err(unavailable(format!(
                "the loader speaks Vulkan {}.{}, but timeline semaphores need 1.2; update it",
                vk::api_version_major(version),
                vk::api_version_minor(version),
            )));
        }
        Self::create(entry, options)
    }

    fn create(entry: ash::Entry, options: &InstanceOptions) -> Result<Self> {
        let synchronization = options
            .validation
            .then(|| validation::find_layer(&entry))
            .transpose()?;
        let application =
            CString::new(options.application_name.replace('\0', "")).unwrap_or_default();
        let application = vk::ApplicationInfo::default()
            .application_name(&application)
            .engine_name(c"syncline")
            // Version 1.3 has `vkQueueSubmit2`. A loader of version 1.2 takes it, too.
            .api_version(vk::API_VERSION_1_3);
        let messages = Arc::new(Messages::default());
        let mut report = messages.create_info();
        let enabled = [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
        let mut features =
            vk::ValidationFeaturesEXT::default().enabled_validation_features(&enabled);
        let layers = [validation::LAYER.as_ptr()];
        let extensions = [
            ext::debug_utils::NAME.as_ptr(),
            ext::validation_features::NAME.as_ptr(),
        ];

        let mut info = vk::InstanceCreateInfo::default().application_info(&application);
        if let Some(synchronization) = synchronization {
            info = info
                .enabled_layer_names(&layers)
                .enabled_extension_names(&extensions[..1 + usize::from(synchronization)])
                .push_next(&mut report);
            if synchronization {
                info = info.push_next(&mut features);
            }
        }
        // SAFETY: `info` and everything it points to are valid and outlive the call. The messages
        // outlive the instance, which `Inner` destroys before it drops them.
        let raw = unsafe { entry.create_instance(&info, None) }
            .map_err(|code| refused("vkCreateInstance", code))?;
        TeardownGuard::register();
        let mut inner = Inner {
            entry,
            raw,
            messenger: None,
            maker: MakerProcess::this(),
        };
        if synchronization.is_some() {
            let functions = ext::debug_utils::Instance::new(&inner.entry, &inner.raw);
            // SAFETY: the extension is enabled. The messages outlive the messenger.
            let raw =
                unsafe { functions.create_debug_utils_messenger(&messages.create_info(), None) }
                    .map_err(|code| refused("vkCreateDebugUtilsMessengerEXT", code))?;
            inner.messenger = Some(Messenger {
                functions,
                raw,
                messages,
            });
        }
        Ok(Self(Arc::new(inner)))
    }

    /// The errors that the validation layer has reported, without its known false positives.
    ///
    /// Always empty without validation.
    #[must_use]
    pub fn validation_errors(&self) -> Vec<String> {
        self.0
            .messenger
            .as_ref()
            .map_or_else(Vec::new, |messenger| messenger.messages.errors())
    }

    /// The known false positives that the validation layer has reported.
    ///
    /// They can help to explain a failure. One of them says that the layer has stalled the process
    /// for 10 s.
    #[must_use]
    pub fn validation_false_positives(&self) -> Vec<String> {
        self.0
            .messenger
            .as_ref()
            .map_or_else(Vec::new, |messenger| messenger.messages.false_positives())
    }

    /// Notes whether a timeline semaphore that was just created or imported is shared.
    ///
    /// The validation layer's messages about shared ones may be false.
    pub(crate) fn note_semaphore(&self, semaphore: vk::Semaphore, is_shared: bool) {
        if let Some(messenger) = &self.0.messenger {
            messenger.messages.note_semaphore(semaphore, is_shared);
        }
    }

    /// Refuses the use of the instance in a forked child.
    ///
    /// # Errors
    /// [`Error::MadeBeforeFork`].
    pub(crate) fn require_maker(&self) -> Result<()> {
        self.0.maker.require(&Object::new("Vulkan instance", ""))
    }

    /// Refuses the driver of a GPU in a forked child whose parent has made an instance.
    ///
    /// NVIDIA's driver makes no device there, also if the parent has listed its devices only
    /// (`fork.` in `results/h200/probes.txt`). In one run of the suite, the parent's device was
    /// lost later.
    ///
    /// # Errors
    /// [`Error::MadeBeforeFork`].
    pub(crate) fn require_no_older() -> Result<()> {
        let mut place = &FIRST;
        while let Some(shared) = place.get() {
            shared.instance.require_maker()?;
            place = &shared.next;
        }
        Ok(())
    }

    /// The loader's functions.
    #[must_use]
    pub fn entry(&self) -> &ash::Entry {
        &self.0.entry
    }

    /// The instance's functions and its raw handle.
    #[must_use]
    pub fn raw(&self) -> &ash::Instance {
        &self.0.raw
    }
}

/// Loads the Vulkan loader of this machine.
///
/// # Errors
/// [`Error::Unavailable`] if there is none.
pub(crate) fn loader() -> Result<ash::Entry> {
    // Never unloaded, because a thread may drop its handle while the process exits
    // (`TeardownGuard`).
    static LOADER: OnceLock<ash::Entry> = OnceLock::new();
    if let Some(loader) = LOADER.get() {
        return Ok(loader.clone());
    }
    // SAFETY: the loader's initialisers are trusted, as by every Vulkan program.
    let loaded = unsafe { ash::Entry::load() }.map_err(|error| {
        unavailable(format!(
            "the Vulkan loader cannot be used ({error}); install it and a driver (Debian: libvulkan1, and mesa-vulkan-drivers without a GPU)"
        ))
    })?;
    Ok(LOADER.get_or_init(|| loaded).clone())
}

/// The error for a result of `vkCreateInstance`, with a remedy.
fn refused(call: &str, code: vk::Result) -> Error {
    unavailable(match code {
        vk::Result::ERROR_INCOMPATIBLE_DRIVER => {
            format!(
                "the loader found no usable driver ({}); install one \
                 (Debian: mesa-vulkan-drivers, or NVIDIA's), or check VK_DRIVER_FILES",
                call_failed(call, code)
            )
        }
        other => format!("no instance could be made: {}", call_failed(call, other)),
    })
}

impl Drop for Inner {
    fn drop(&mut self) {
        let going = self.maker.is_this().then(TeardownGuard::begin).flatten();
        let Some(_going) = going else {
            // The instance and its layer stay, and the layer may still report messages.
            std::mem::forget(self.messenger.take());
            return;
        };
        // SAFETY: devices and candidates keep an `Arc` of this, so nothing made from the instance
        // is left.
        unsafe {
            if let Some(messenger) = &self.messenger {
                messenger
                    .functions
                    .destroy_debug_utils_messenger(messenger.raw, None);
            }
            self.raw.destroy_instance(None);
        }
    }
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let validation = self.0.messenger.is_some();
        f.debug_struct("Instance")
            .field("validation", &validation)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_has_an_older_instance() {
        if Instance::load().is_err() {
            return;
        }
        assert!(Instance::require_no_older().is_ok());
        // SAFETY: the child calls no driver, and ends below.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = matches!(
                Instance::require_no_older(),
                Err(Error::MadeBeforeFork { .. })
            );
            // SAFETY: the child ends here.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        let mut status = -1;
        // SAFETY: the child's id, and memory for its status.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((ended, status), (child, 0));
    }
}
