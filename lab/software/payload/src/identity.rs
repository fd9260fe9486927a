//! Pairs of a software CUDA device and a software Vulkan device that count as one GPU.

/// Length of a device UUID.
pub const UUID_BYTES: usize = 16;

/// A GPU that two software drivers make together: a Vulkan driver, and a device of the CUDA driver.
///
/// The layer replaces the UUID of the Vulkan driver, because one driver's contains its version and
/// the other's is the same for all devices. The CUDA driver returns the same UUIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twin {
    /// Mesa's lavapipe.
    Lavapipe,
    /// Google's SwiftShader.
    SwiftShader,
    /// Any other Vulkan driver. It has no twin among the CUDA devices.
    Other,
}

impl Twin {
    /// The twins that the CUDA driver has devices for, in the order of its devices.
    pub const ALL: [Self; 2] = [Self::Lavapipe, Self::SwiftShader];

    /// Returns the name for reports, and for the environment variable that chooses devices.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lavapipe => "lavapipe",
            Self::SwiftShader => "swiftshader",
            Self::Other => "other",
        }
    }

    /// Returns the UUID of this GPU in both drivers. `None` for a driver that keeps its own.
    #[must_use]
    pub const fn uuid(self) -> Option<[u8; UUID_BYTES]> {
        match self {
            Self::Lavapipe => Some(*b"syncline-soft-lp"),
            Self::SwiftShader => Some(*b"syncline-soft-ss"),
            Self::Other => None,
        }
    }
}
