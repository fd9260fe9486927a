//! Claims: values that a submission of the program's own signals.

use std::sync::{Mutex, TryLockError};

use syncline::backend::Device as _;
use syncline::{Claim, KeptPoint};

use crate::handle::{Handle, sl_claim, sl_device, sl_timeline};
use crate::raw::CUstream;
use crate::result::{Refused, call, out, sl_result};
use crate::timeline::limit;

/// A claim, and what can be asked of it without waiting for other calls.
pub(crate) struct ClaimOfC {
    /// Locked by a call that submits. It may call the program, so no other call waits for it.
    claim: Mutex<Claim>,
    /// The point before it. Does not keep the timeline's handles.
    predecessor: KeptPoint,
    /// The id of the timeline's name.
    timeline: u64,
}

impl ClaimOfC {
    fn with(&self, body: impl FnOnce(&mut Claim) -> syncline::Result<()>) -> Result<(), Refused> {
        let mut claim = match self.claim.try_lock() {
            Ok(claim) => claim,
            Err(TryLockError::Poisoned(claim)) => claim.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Refused::Claim),
        };
        Ok(body(&mut claim)?)
    }
}

/// Claims a value for a submission that the program makes itself.
///
/// Only the claim may signal the value now. The submission waits for the predecessor of the claim
/// (sl_claim_predecessor) and signals the value. `waited` is the highest value of the same timeline
/// that the submission also waits for, or 0. Free the claim with sl_claim_free.
///
/// Does not block. SL_ERROR_INVALID_VALUE if the value is claimed already or reached, and
/// SL_ERROR_UNSUPPORTED for a timeline of the host, which no driver signals.
#[unsafe(no_mangle)]
pub extern "C" fn sl_timeline_claim(
    timeline: sl_timeline,
    value: u64,
    waited: u64,
    claim: *mut sl_claim,
) -> sl_result {
    call(|| {
        let claim = out(claim, "claim")?;
        let timeline = timeline.get()?;
        let timeline = timeline.own()?;
        let made = timeline.claim_after(value, waited)?;
        claim.set(sl_claim::new(ClaimOfC {
            predecessor: timeline.at(made.predecessor()).keep(),
            timeline: timeline.object().id(),
            claim: Mutex::new(made),
        }));
        Ok(())
    })
}

/// The value before a claim. The submission waits for it.
///
/// The wait is not needed if the same queue of the driver signals that value.
#[unsafe(no_mangle)]
pub extern "C" fn sl_claim_predecessor(claim: sl_claim, value: *mut u64) -> sl_result {
    call(|| {
        let value = out(value, "value")?;
        value.set(claim.get()?.predecessor.point().value());
        Ok(())
    })
}

/// Blocks until the predecessor of a claim is pending, at most `nanoseconds`.
///
/// Then the program's submission may go to the driver. If it goes earlier, the signals could come
/// out of order. Same errors as sl_point_wait.
#[unsafe(no_mangle)]
pub extern "C" fn sl_claim_wait_ready(claim: sl_claim, nanoseconds: u64) -> sl_result {
    call(|| {
        // The claim ends when another thread frees it, and not after this wait.
        let predecessor = claim.get()?.predecessor.clone();
        Ok(predecessor.point().wait_pending(limit(nanoseconds))?)
    })
}

/// Says that the submission of a claim is with the driver of `device`. Its value is pending now.
///
/// Submissions that were held for the value go to their drivers on the calling thread. If `device`
/// is lost, the timeline fails. A null `device` stands for any device of the timeline. Call it
/// after a successful submission and before sl_claim_free. A second call does nothing.
///
/// SL_ERROR_NOT_READY if the predecessor is not pending (sl_claim_wait_ready), or while another
/// call submits the claim. SL_ERROR_UNSUPPORTED for a timeline of a CUDA device, for which
/// sl_claim_submit_cuda is. After an error the claim is as before.
#[unsafe(no_mangle)]
pub extern "C" fn sl_claim_submitted(claim: sl_claim, device: sl_device) -> sl_result {
    call(|| {
        let claim = claim.get()?;
        match device.id {
            0 => claim.with(Claim::submitted),
            _ => {
                let device = device.get()?.id();
                claim.with(|claim| claim.submitted_on(device))
            }
        }
    })
}

/// Signals a claimed value behind all that the program has added to a CUDA stream.
///
/// `device` is a CUDA device, and `timeline` the one of the claim. The call adds the signal to the
/// stream, and says that the claim is submitted: sl_claim_submitted is not needed. For an adopted
/// word it also writes the word, so do not use it if your own work does. It blocks while
/// another thread submits to the stream or has locked it. `stream` need not be adopted, and must
/// not be the per-thread default stream.
///
/// SL_ERROR_NOT_READY if the predecessor is not pending (sl_claim_wait_ready). SL_ERROR_CAPTURE
/// while the stream is captured. After an error the claim is as before.
///
/// # Safety
///
/// `stream` is a live stream of the device's context, or null for the legacy default stream. No
/// other thread begins or ends a capture of it during the call, except while it has the stream
/// locked. The timeline of a link is kept until the stream has made the signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_claim_submit_cuda(
    claim: sl_claim,
    timeline: sl_timeline,
    device: sl_device,
    stream: CUstream,
) -> sl_result {
    call(|| {
        let (claim, timeline, device) = (claim.get()?, timeline.get()?, device.get()?);
        if timeline.object().id() != claim.timeline {
            let what = format!("is {}, which the claim is not of", timeline.object());
            return Err(Refused::argument("timeline", what));
        }
        let (device, timeline) = (device.cuda()?, timeline.own()?);
        // SAFETY: the claim is of the timeline, which C keeps. The rest by the contract of this
        // function.
        claim.with(|claim| unsafe { device.submit_claimed(timeline, claim, stream) })
    })
}

/// Frees a claim. If it was not submitted, it is withdrawn: its value can be claimed again.
///
/// Never free it between a successful submission and sl_claim_submitted: the driver would signal a
/// value that something else may claim, and what is held for it would start late. That is no error.
#[unsafe(no_mangle)]
pub extern "C" fn sl_claim_free(claim: sl_claim) -> sl_result {
    call(|| claim.free())
}
