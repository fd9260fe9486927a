//! Events, also those of other processes.
#![allow(
    non_snake_case,
    unsafe_code,
    reason = "exports functions of the driver API"
)]

use super::Handle;
use crate::abi::{Out, api};
use crate::code::{Answer, Code};
use crate::current;
use crate::event::{EVENTS, Event};
use crate::shared_event::{IpcHandle, SharedEvent};
use crate::stream::Stream;

/// Returns the milliseconds between two records.
fn elapsed(start: Handle, end: Handle) -> Answer<f32> {
    let (start, end) = (Event::find(start)?, Event::find(end)?);
    Event::elapsed(&start, &end)
}

api! {
    fn cuEventCreate(to: Out<Handle>, flags: u32) {
        to.require()?;
        let event = Event::create(current::context()?, flags)?;
        to.set(EVENTS.add(event))
    }

    fn cuEventDestroy_v2(event: Handle) {
        Event::find(event)?;
        let event = EVENTS.remove(event)?;
        if let Some(shared) = event.shared() {
            shared.note_destroyed();
        }
        Ok(())
    }

    fn cuEventRecord(event: Handle, stream: Handle) {
        Event::find(event)?.record(&Stream::find(stream)?, 0)
    }

    fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: u32) {
        Event::find(event)?.record(&Stream::find(stream)?, flags)
    }

    fn cuEventQuery(event: Handle) {
        Event::find(event)?.query()
    }

    fn cuEventSynchronize(event: Handle) {
        Event::find(event)?.synchronize()
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle) {
        milliseconds.set(elapsed(start, end)?)
    }

    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: Handle, end: Handle) {
        milliseconds.set(elapsed(start, end)?)
    }

    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) {
        Event::find(event)?.waited_for_by(&Stream::find(stream)?, flags)
    }

    fn cuIpcGetEventHandle(handle: Out<IpcHandle>, event: Handle) {
        handle.require()?;
        if event == 0 {
            return Err(Code::INVALID_VALUE);
        }
        current::context()?;
        let event = Event::find(event)?;
        let shared = event.shared().and_then(|shared| shared.handle());
        handle.set(shared.ok_or(Code::INVALID_HANDLE)?)
    }

    fn cuIpcOpenEventHandle(to: Out<Handle>, handle: IpcHandle) {
        to.require()?;
        let context = current::context()?;
        let shared = SharedEvent::open(&handle)?;
        to.set(EVENTS.add(Event::opened(context, shared)))
    }
}
