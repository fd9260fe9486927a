//! Closures that are called once, later, without an allocation if they capture little.

use std::cell::RefCell;
use std::collections::VecDeque;

use smallbox::SmallBox;
use smallbox::space::{S2, S4, S16};

/// Room for 120 bytes of captures.
pub(crate) type Small<T> = SmallBox<T, S16>;

/// Room for 72 bytes.
pub(crate) type Medium<T> = SmallBox<T, [usize; 9]>;

/// What goes into a [`Medium`] without an allocation.
pub(crate) const MEDIUM: usize = size_of::<[usize; 9]>();

/// Room for 32 bytes: a few references.
pub(crate) type Little<T> = SmallBox<T, S4>;

/// What goes into a [`Little`] without an allocation.
pub(crate) const LITTLE: usize = size_of::<S4>();

/// Room for hardly any, for where there are very many.
pub(crate) type Tiny<T> = SmallBox<T, S2>;

/// What goes into a [`Tiny`] without an allocation.
pub(crate) const TINY: usize = size_of::<S2>();

/// A closure for the host, that runs at most once.
pub(crate) trait Job: Send {
    /// Runs it, or does nothing if it has run.
    fn run(&mut self);
}

impl<F: FnOnce() + Send> Job for Option<F> {
    fn run(&mut self) {
        if let Some(job) = self.take() {
            job();
        }
    }
}

/// How many empty lists of closures a thread keeps: work that is recorded may itself submit to other queues.
const SPARES: usize = 4;

/// A list that has room for more than so many is not kept.
const KEPT: usize = 128;

// By the thread, because nothing is locked while work is recorded.
std::thread_local! { static SPARE: RefCell<Vec<VecDeque<Small<dyn Job>>>> = const { RefCell::new(Vec::new()) } }

/// An empty list of closures, with the room of an earlier one if the thread has kept one.
pub(crate) fn take_list() -> VecDeque<Small<dyn Job>> {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
    spare.ok().flatten().unwrap_or_default()
}

/// Keeps the room of an empty list for the thread's next one.
pub(crate) fn give_back_list(list: VecDeque<Small<dyn Job>>) {
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < SPARES && list.capacity() <= KEPT {
            spare.push(list);
        }
    });
}

/// Allocates the list that this thread would otherwise allocate when it first records work for a host queue (H1).
pub(crate) fn prepare_thread() {
    give_back_list(VecDeque::with_capacity(4));
}
