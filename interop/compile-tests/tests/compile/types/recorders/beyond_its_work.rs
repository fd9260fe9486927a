use std::sync::Mutex;

use syncline::backend::Queue;
use syncline::{Recorder, Result, cuda, host, vulkan};

static ANY: Mutex<Option<Recorder<'static>>> = Mutex::new(None);
static OF_THE_HOST: Mutex<Option<host::Recorder<'static>>> = Mutex::new(None);
static OF_CUDA: Mutex<Option<cuda::Recorder<'static>>> = Mutex::new(None);
static OF_VULKAN: Mutex<Option<vulkan::Recorder<'static>>> = Mutex::new(None);

/// As of the crates `replace_with` and `take_mut`: sound, and safe to call.
fn replace_with<T>(_: &mut T, _: impl FnOnce(T) -> T) {}

fn keep<R>(kept: &Mutex<Option<R>>, recorder: &mut R) -> Result<()> {
    replace_with(recorder, |recorder| kept.lock().unwrap().replace(recorder).unwrap());
    Ok(())
}

fn any(queue: &syncline::Queue) -> Result<()> {
    queue.submit(&[], |recorder| keep(&ANY, recorder), &[]).map(|_| ()) //~ data escapes
}

fn of_the_host(queue: &host::Queue) -> Result<()> {
    queue.submit(&[], |recorder| keep(&OF_THE_HOST, recorder), &[]).map(|_| ()) //~ data escapes
}

fn of_cuda(queue: &cuda::Queue) -> Result<()> {
    queue.submit(&[], |recorder| keep(&OF_CUDA, recorder), &[]).map(|_| ()) //~ data escapes
}

fn of_vulkan(queue: &vulkan::Queue) -> Result<()> {
    queue.submit(&[], |recorder| keep(&OF_VULKAN, recorder), &[]).map(|_| ()) //~ data escapes
}

fn main() {}
