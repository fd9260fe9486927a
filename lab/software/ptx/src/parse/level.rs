//! The versions of PTX and the targets that they have.

use crate::Refusal;

/// The last version of PTX that is known: CUDA 13.0.
const LAST_VERSION: (u32, u32) = (9, 0);

/// Targets, each with the first version of PTX that has it.
const TARGETS: &[(u32, (u32, u32))] = &[
    (20, (2, 0)),
    (21, (2, 0)),
    (30, (3, 0)),
    (32, (4, 0)),
    (35, (3, 1)),
    (37, (4, 1)),
    (50, (4, 0)),
    (52, (4, 1)),
    (53, (4, 2)),
    (60, (5, 0)),
    (61, (5, 0)),
    (62, (5, 0)),
    (70, (6, 0)),
    (72, (6, 1)),
    (75, (6, 3)),
    (80, (7, 0)),
    (86, (7, 1)),
    (87, (7, 4)),
    (88, (9, 0)),
    (89, (7, 8)),
    (90, (7, 8)),
    (100, (8, 6)),
    (101, (8, 6)),
    (103, (8, 8)),
    (110, (9, 0)),
    (120, (8, 7)),
    (121, (8, 8)),
];

/// The version and the target of a module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    pub(super) version: (u32, u32),
    pub(super) target: u32,
}

impl Level {
    /// Checks the version. The text must be read no further with a version that is not known.
    pub(super) fn check_version(version: (u32, u32)) -> Result<(), Refusal> {
        if version > LAST_VERSION {
            Err(Refusal::Version(version))
        } else {
            Ok(())
        }
    }

    /// Checks that the version has the target. NVIDIA's driver refuses the text otherwise.
    pub(super) fn check_target(self) -> Result<(), Refusal> {
        let Self { version, target } = self;
        let known = TARGETS
            .iter()
            .any(|&(known, first)| known == target && first <= version);
        if known {
            Ok(())
        } else {
            Err(Refusal::Target { version, target })
        }
    }

    pub(super) fn has(self, version: (u32, u32), target: u32) -> bool {
        self.version >= version && self.target >= target
    }

    /// The bytes that the parameters of a kernel may have.
    pub(super) fn max_params(self) -> usize {
        if self.has((8, 1), 70) { 32_764 } else { 4_352 }
    }
}
