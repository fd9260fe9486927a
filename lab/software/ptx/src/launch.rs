//! What a launch consists of.

use thiserror::Error;

use crate::Entry;

/// The dimensions and the parameters of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Blocks of the grid: x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block: x, y, z.
    pub block: [u32; 3],
    /// The parameters, each at the offset that [`Param`](crate::Param) says.
    pub params: Vec<u8>,
}

/// Why a launch does not fit its kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A dimension of the grid is 0 or exceeds what GPUs allow.
    #[error("the grid has no block, or more than 2147483647 x 65535 x 65535")]
    Grid,
    /// A dimension of the block is 0 or exceeds what GPUs or the kernel allow.
    #[error("the block has no thread, more than 1024 x 1024 x 64, or more than the kernel allows")]
    Block,
    /// There are fewer bytes of parameters than the kernel has.
    #[error("the parameters are incomplete")]
    Params,
}

/// Threads that a block may have, on every GPU that CUDA supports.
const MAX_THREADS: u64 = 1024;

impl Entry {
    /// Checks that a launch fits this kernel: its dimensions and the size of its parameters.
    ///
    /// # Errors
    ///
    /// What does not fit.
    pub fn check(&self, launch: &Launch) -> Result<(), LaunchError> {
        let within = |value: [u32; 3], limit: [u32; 3]| {
            value
                .iter()
                .zip(limit)
                .all(|(value, limit)| (1..=limit).contains(value))
        };
        if !within(launch.grid, [i32::MAX.cast_unsigned(), 65535, 65535]) {
            return Err(LaunchError::Grid);
        }
        let threads: u64 = launch.block.iter().map(|&side| u64::from(side)).product();
        if !within(launch.block, [1024, 1024, 64]) || threads > MAX_THREADS {
            return Err(LaunchError::Block);
        }
        let allowed = self.max_block.is_none_or(|most| threads <= most);
        let required = self
            .required_block
            .is_none_or(|block| block == launch.block);
        if !allowed || !required {
            return Err(LaunchError::Block);
        }
        if launch.params.len() < self.params_size {
            return Err(LaunchError::Params);
        }
        Ok(())
    }
}
