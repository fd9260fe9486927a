//! The rows, by family.

mod alloc;
#[cfg(feature = "vulkan")]
mod batch;
#[cfg(any(feature = "cuda", feature = "vulkan"))]
mod contend;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(all(feature = "cuda", feature = "vulkan"))]
mod external;
#[cfg(feature = "vulkan")]
mod foreign;
mod frame_cpu;
#[cfg(all(feature = "cuda", feature = "vulkan"))]
mod frames;
mod held;
mod host;
mod point;
#[cfg(feature = "cuda")]
mod roundtrip;
mod scale;
#[cfg(feature = "vulkan")]
mod vulkan;
mod wait;
#[cfg(feature = "cuda")]
mod word;

pub(crate) use point::serve;

use crate::row::Row;

/// Every row.
#[must_use]
pub fn all() -> Vec<Row> {
    [
        #[cfg(feature = "cuda")]
        cuda::ROWS,
        #[cfg(feature = "cuda")]
        roundtrip::ROWS,
        #[cfg(feature = "cuda")]
        word::ROWS,
        #[cfg(feature = "vulkan")]
        vulkan::ROWS,
        #[cfg(feature = "vulkan")]
        foreign::ROWS,
        #[cfg(all(feature = "cuda", feature = "vulkan"))]
        external::ROWS,
        #[cfg(feature = "vulkan")]
        batch::ROWS,
        #[cfg(all(feature = "cuda", feature = "vulkan"))]
        frames::ROWS,
        host::ROWS,
        point::ROWS,
        #[cfg(any(feature = "cuda", feature = "vulkan"))]
        contend::ROWS,
        frame_cpu::ROWS,
        wait::ROWS,
        scale::ROWS,
        alloc::ROWS,
        held::ROWS,
    ]
    .concat()
}
