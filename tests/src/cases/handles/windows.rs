//! X3, X4, E5: handles of Windows have names, and every device refuses them with the reason.
//!
//! Also the transference of each kind of handle.

#![allow(
    unsafe_code,
    reason = "foreign handles enter only through unsafe constructors"
)]

use syncline::backend::Device as _;
use syncline::{
    Device, Error,
    handle::windows::{
        BinaryWin32, BinaryWin32Kmt, D3d12FenceHandle, TimelineWin32, TimelineWin32Kmt,
        WindowsHandle,
    },
    handle::{HandleKind, Origin, Rejected, Transference},
};

use crate::World;
use crate::case::{Stop, Verdict, check, check_eq, equipped_cases};
use crate::workload::Equipped;

equipped_cases! {
    "handle.of_windows_is_refused": [X3 X4 E5] => refused;
    "handle.tells_its_transference": [X3 D3] => transference;
}

fn refused(world: &World<Equipped>) -> Verdict {
    for side in [&world.left, &world.right] {
        let device = side.library();
        let origin = || Origin::of(side.info());
        // SAFETY: never used as handles, as the case shows.
        unsafe {
            refuses(device, TimelineWin32::from_raw(1, origin()))?;
            refuses(device, BinaryWin32::from_raw(2, origin()))?;
            refuses(device, TimelineWin32Kmt::from_raw(3, origin()))?;
            refuses(device, BinaryWin32Kmt::from_raw(4, origin()))?;
            refuses(device, D3d12FenceHandle::from_raw(5, origin()))?;
        }
        let can = &device.info().capabilities;
        let all = HandleKind::ALL.iter().copied();
        for kind in all.filter(|kind| kind.is_of_windows()) {
            check!(
                !can.exports.contains(&kind) && !can.imports.contains(&kind),
                "{kind}"
            );
            // A kind of Windows is refused as a value, too.
            match device.exportable_binary("for Windows", kind) {
                Ok(_) => return Stop::fail(format!("a semaphore was made for {kind}")),
                Err(error) => says_why(device, kind, &error)?,
            }
        }
    }
    Ok(())
}

fn refuses<H: WindowsHandle>(device: &Device, handle: H) -> Verdict {
    let raw = handle.raw();
    // The success type has no values.
    let Err(Rejected { handle, error }) = device.import_windows(handle);
    check!(handle.raw() == raw, "another handle came back");
    says_why(device, H::KIND, &error)
}

fn says_why(device: &Device, kind: HandleKind, error: &Error) -> Verdict {
    let Error::Unsupported {
        object,
        asked,
        reason,
        ..
    } = error
    else {
        return Stop::fail(format!("{kind} is refused with: {error}"));
    };
    check!(
        object == device.object() && asked.contains(kind.name()) && reason.contains("Windows"),
        "{kind} is refused without saying by whom, what and why: {error}"
    );
    Ok(())
}

/// Each exported or imported kind states its transference: by reference, except for sync files.
fn transference(world: &World<Equipped>) -> Verdict {
    for side in [&world.left, &world.right] {
        let can = &side.info().capabilities;
        for kind in can.exports.iter().chain(&can.imports) {
            let copies = kind.transference() == Transference::Copy;
            check_eq!(copies, (*kind == HandleKind::SyncFd));
            check!(!kind.is_of_windows(), "{kind} is said to be of Windows");
        }
    }
    Ok(())
}
