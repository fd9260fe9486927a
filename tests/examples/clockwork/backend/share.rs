//! Optional: native sharing. Two devices of one machine use one counter.
#![allow(
    unsafe_code,
    reason = "makes a typed handle of a descriptor, and vouches for it"
)]

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use syncline::{
    Error, Result,
    error::Object,
    handle::{Origin, Rejected, TimelineFd},
};
use syncline_core::backend::{Attachment, Device as _, Sharing};

use super::Device;

// SAFETY: the counter is new, and the handles and the attachment are of it. The UUID is that of the
// machine.
unsafe impl Sharing for Device {
    fn name(&self) -> &Object {
        self.object()
    }

    fn export_timeline(
        &self,
        initial: u64,
        handles: usize,
    ) -> Result<(Attachment, Vec<TimelineFd>)> {
        let counter = self.counter(initial);
        let handles = (0..handles).map(|_| {
            let name = self.machine().export(counter.handle());
            let descriptor = descriptor(name).map_err(|error| self.system("write", &error))?;
            // SAFETY: the descriptor has the name of a counter of this machine.
            Ok(unsafe { TimelineFd::from_fd(descriptor, Origin::of(self.info())) })
        });
        let handles = handles.collect::<Result<_>>()?;
        let home = Attachment::new(self.id(), initial, counter);
        Ok((self.attach(home), handles))
    }

    unsafe fn import_timeline(
        &self,
        handle: TimelineFd,
    ) -> Result<Attachment, Rejected<TimelineFd>> {
        match self.import(&handle) {
            Ok(attachment) => Ok(attachment),
            Err(error) => Err(Rejected { handle, error }),
        }
    }
}

impl Device {
    fn import(&self, handle: &TimelineFd) -> Result<Attachment> {
        let refused = |reason: &str| {
            Error::cannot_share(
                handle.origin().to_string(),
                Origin::of(self.info()).to_string(),
                "a timeline",
                reason,
                None,
            )
        };
        if handle.origin().uuid != self.info().uuid {
            return Err(refused("they are different machines"));
        }
        let name = name(handle.as_fd()).map_err(|error| self.system("read", &error))?;
        let counter = self.machine().import(name);
        let counter = counter.ok_or_else(|| refused("the handle was imported before"))?;
        let imported = Attachment::imported(self.id(), self.port_of(counter));
        Ok(self.attach(imported))
    }

    fn system(&self, call: &'static str, error: &io::Error) -> Error {
        Error::native(
            self.object(),
            call,
            error.raw_os_error().map_or(-1, i64::from),
            error.to_string(),
        )
    }
}

/// A pipe that contains the name of a counter.
fn descriptor(name: u64) -> io::Result<OwnedFd> {
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(&name.to_le_bytes())?;
    Ok(reader.into())
}

/// The name in such a pipe. Never blocks, because the other end is closed.
fn name(descriptor: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::from(descriptor.try_clone_to_owned()?).read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
