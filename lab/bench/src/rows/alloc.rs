//! Allocations in steady state.

use syncline_conformance::steady::{self, OPERATIONS, TIMES};

use crate::heap;
use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::row::{Call, Question, Row};
use crate::side::{Outcome, Stop};

pub(super) const ROWS: &[Row] = &[Row {
    id: "alloc",
    question: Question::Submission,
    ours: "signals, waits, records, queries and submissions (a host worker's closures capture 64 bytes), each 1000 times after some warm-up: allocations and reallocations of Rust code on all threads; per operation, of the operation with most",
    raw: "(nothing can allocate less)",
    limits: &[Limit::Figure(EACH, 0.0)],
    on: &[On::Each],
    variants: &[],
    run: allocations,
}];

/// The figure for operations that hold nothing. It has a limit.
const EACH: &str = "allocations_each";

/// The figure for those that hold a submission.
const HELD: &str = "allocations_each_held";

fn allocations(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.device(call.subject.indices[0])?;
    let counted = heap::counting(|so_far| -> Outcome<[f64; 2]> {
        let mut most = [0.0_f64; 2];
        for operation in OPERATIONS {
            let counted = steady::count(&device, operation, operation.most, so_far)?;
            // Of the last two windows, because allocations that stop are not part of the steady
            // state.
            let each = counted.each();
            lab.figure(&format!("allocations_each_{}", operation.name), each);
            if each > 0.0 {
                let (name, windows) = (operation.name, counted.windows());
                lab.note(format!(
                    "{name}: {windows:?} allocations in windows of {TIMES}"
                ));
            }
            let most = &mut most[usize::from(operation.most > 0)];
            *most = most.max(each);
        }
        Ok(most)
    });
    let none = || Stop::Skipped("this program has an allocator that does not count".into());
    let [each, held] = counted.ok_or_else(none)??;
    lab.figure(EACH, each);
    lab.figure(HELD, held);
    Ok(())
}
