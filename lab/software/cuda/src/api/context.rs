//! Contexts.
#![allow(
    non_snake_case,
    unsafe_code,
    reason = "exports functions of the driver API"
)]

use super::Handle;
use crate::abi::{Out, api};
use crate::bug::Bug;
use crate::capture;
use crate::code::Code;
use crate::context::{CONTEXTS, Context};
use crate::current;
use crate::device::{GREATEST_PRIORITY, device, devices};
use crate::table::new_handle;

api! {
    fn cuDevicePrimaryCtxRetain(context: Out<Handle>, ordinal: i32) {
        context.require()?;
        context.set(device(ordinal)?.retain_primary(ordinal)?)
    }

    fn cuDevicePrimaryCtxRelease_v2(ordinal: i32) {
        device(ordinal)?.release_primary()
    }

    fn cuDevicePrimaryCtxReset_v2(ordinal: i32) {
        device(ordinal)?.reset_primary();
        Ok(())
    }

    fn cuCtxCreate_v2(to: Out<Handle>, _flags: u32, ordinal: i32) {
        to.require()?;
        let device = device(ordinal)?;
        device.check()?;
        if Bug::ContextIsPrimary.is_planted() {
            let primary = device.retain_primary(ordinal)?;
            current::push(primary)?;
            return to.set(primary);
        }
        let handle = new_handle();
        let context = Context::new(device, ordinal, handle)?;
        current::push(handle)?;
        CONTEXTS.put(handle, context);
        to.set(handle)
    }

    fn cuCtxDestroy_v2(handle: Handle) {
        devices()?;
        if handle == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let context = CONTEXTS.get(handle).map_err(|_| Code::CONTEXT_IS_DESTROYED)?;
        if context.device.is_primary(handle) {
            return Err(Code::INVALID_CONTEXT);
        }
        // Another thread may have destroyed it since then.
        CONTEXTS.remove(handle).map_err(|_| Code::CONTEXT_IS_DESTROYED)?;
        if current::handle() == handle {
            current::pop()?;
        }
        context.end();
        Ok(())
    }

    fn cuCtxGetCurrent(context: Out<Handle>) {
        devices()?;
        context.set(current::handle())
    }

    fn cuCtxSetCurrent(context: Handle) {
        devices()?;
        // Like NVIDIA's driver, it takes any handle. The calls that use the context refuse it.
        current::set(context)
    }

    fn cuCtxPushCurrent_v2(context: Handle) {
        devices()?;
        if context == 0 {
            return Err(Code::INVALID_VALUE);
        }
        current::push(context)
    }

    fn cuCtxPopCurrent_v2(context: Out<Handle>) {
        devices()?;
        let popped = current::pop()?;
        context.set_if_wanted(popped);
        Ok(())
    }

    fn cuCtxGetDevice(to: Out<i32>) {
        to.set(current::context_even_if_lost()?.ordinal)
    }

    fn cuCtxSynchronize() {
        let context = current::context()?;
        capture::permit_for_all(&context)?;
        context.synchronize()
    }

    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        current::context()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(GREATEST_PRIORITY);
        Ok(())
    }
}
