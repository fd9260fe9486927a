//! Stored closures: called once, later, and stored inline if they capture little.

use std::cell::RefCell;
use std::collections::VecDeque;

use smallbox::SmallBox;
use smallbox::space::{S4, S16};

use crate::base::error::Result;

/// A box with inline space for 16 words: 120 bytes of captures on 64-bit targets.
pub(crate) type Inline16<T> = SmallBox<T, S16>;

/// A box with inline space for 4 words: a few references.
pub(crate) type Inline4<T> = SmallBox<T, S4>;

/// The largest value that an [`Inline4`] stores inline, in bytes.
pub(crate) const MAX_INLINE_4: usize = size_of::<S4>();

/// A closure for the host that runs at most once.
pub(crate) trait Job: Send {
    /// Runs the closure. Does nothing if it has run already.
    fn run(&mut self) -> Result<()>;
}

impl<F: FnOnce() -> Result<()> + Send> Job for Option<F> {
    fn run(&mut self) -> Result<()> {
        self.take().map_or(Ok(()), |job| job())
    }
}

/// The largest number of empty lists that a thread keeps.
///
/// More than one, because work that is being recorded may itself submit to other queues.
const MAX_SPARE_LISTS: usize = 4;

/// A list with a larger capacity is not kept.
const MAX_KEPT_CAPACITY: usize = 128;

// Per thread, because no lock is held while work is recorded.
std::thread_local! {
    static SPARE: RefCell<Vec<VecDeque<Inline16<dyn Job>>>> = const { RefCell::new(Vec::new()) }
}

/// An empty list of closures. It has the capacity of an earlier list if the thread has kept one.
pub(crate) fn take_list() -> VecDeque<Inline16<dyn Job>> {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
    spare.ok().flatten().unwrap_or_default()
}

/// Keeps an empty list, so that the thread's next [`take_list`] need not allocate.
pub(crate) fn give_back_list(list: VecDeque<Inline16<dyn Job>>) {
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < MAX_SPARE_LISTS && list.capacity() <= MAX_KEPT_CAPACITY {
            spare.push(list);
        }
    });
}

/// Allocates the list that this thread would allocate at its first record for a host queue (H1).
pub(crate) fn prepare_thread() {
    give_back_list(VecDeque::with_capacity(4));
}
