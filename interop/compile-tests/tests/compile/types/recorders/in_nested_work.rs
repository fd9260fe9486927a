use std::cell::RefCell;
use std::mem::swap;

use syncline::backend::Queue as _;
use syncline::{Queue, Recorder, Result};

thread_local! {
    static OUTER: RefCell<Option<Recorder<'static>>> = const { RefCell::new(None) };
}

/// As of the crates `replace_with` and `take_mut`: sound, and safe to call.
fn replace_with<T>(_: &mut T, _: impl FnOnce(T) -> T) {}

fn submit(outer: &Queue, inner: Queue) -> Result<()> {
    let nested = |recorder: &mut Recorder<'_>| {
        OUTER.with_borrow_mut(|outer| { //~ data escapes
            outer.iter_mut().for_each(|outer| swap(outer, recorder));
        });
        Ok(())
    };
    let work = move |recorder: &mut Recorder<'_>| {
        replace_with(recorder, |recorder| {
            OUTER.set(Some(recorder)); //~ data escapes
            let _ = inner.submit(&[], nested, &[]);
            OUTER.take().unwrap()
        });
        Ok(())
    };
    outer.submit(&[], work, &[]).map(|_| ())
}

fn main() {}
