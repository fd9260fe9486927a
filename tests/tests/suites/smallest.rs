//! The suite on the backend of `examples/smallest.rs`.

use std::any::Any;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use syncline::Result;
use syncline_conformance::{Settings, Subject, Suite, World};

use crate::common::{Group, group};
use crate::smallest_backend::{Device, Recorder};

/// The device, whose memory is the host's.
#[derive(Clone)]
pub(crate) struct Threads(Device);

type Words = Arc<[AtomicU32]>;

impl Subject for Threads {
    type Device = Device;
    type Buffer = Words;
    type Latch = Arc<(Mutex<bool>, Condvar)>;

    fn device(&self) -> &Device {
        &self.0
    }

    fn buffer(&self, words: usize) -> Result<Words> {
        Ok((0..words).map(|_| AtomicU32::new(0)).collect())
    }

    fn read(buffer: &Words) -> Vec<u32> {
        let words = buffer.iter();
        words.map(|word| word.load(Ordering::Relaxed)).collect()
    }

    fn fill(recorder: &mut Recorder<'_>, buffer: &Words, value: u32) -> Result<()> {
        let buffer = buffer.clone();
        recorder.run(move || {
            for word in &*buffer {
                word.store(value, Ordering::Relaxed);
            }
        });
        Ok(())
    }

    fn copy(recorder: &mut Recorder<'_>, from: &Words, to: &Words) -> Result<()> {
        let (from, to) = (from.clone(), to.clone());
        recorder.run(move || {
            for (from, to) in from.iter().zip(&*to) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        });
        Ok(())
    }

    fn busy(&self, recorder: &mut Recorder<'_>, time: Duration) -> Result<()> {
        recorder.run(move || std::thread::sleep(time));
        Ok(())
    }

    fn keep(recorder: &mut Recorder<'_>, object: Arc<dyn Any + Send + Sync>) {
        recorder.keep(object);
    }

    fn latch(&self) -> Result<Self::Latch> {
        Ok(Self::Latch::default())
    }

    fn block(recorder: &mut Recorder<'_>, latch: &Self::Latch) -> Result<()> {
        let latch = latch.clone();
        recorder.run(move || {
            let open = latch.0.lock().unwrap_or_else(PoisonError::into_inner);
            drop(latch.1.wait_while(open, |open| !*open));
        });
        Ok(())
    }

    fn open(latch: &Self::Latch) -> Result<()> {
        *latch.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        latch.1.notify_all();
        Ok(())
    }
}

/// One device, and two.
pub(crate) struct ThreadsSuite;

impl Suite for ThreadsSuite {
    type Subject = Threads;

    fn subjects(&self) -> Vec<String> {
        vec!["threads".into(), "threads -> threads".into()]
    }

    fn open(&self, subject: &str) -> Result<World<Threads>> {
        let device = || Threads(Device::new());
        Ok(match subject {
            "threads" => World::one(device()),
            _ => World::two(device(), device()),
        })
    }
}

pub(crate) fn trials() -> Group {
    let settings = Settings::default().patient().or_told();
    group("smallest", &ThreadsSuite, &settings)
}
