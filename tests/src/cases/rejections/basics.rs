//! Q5, T2: a submission that is refused, and its effects.

use syncline::Error;

use crate::case::{Verdict, cases, check_eq, check_error};
use crate::cases::{WORDS, cause, filled};
use crate::{Subject, World, patience};

cases! {
    "rejected.after_it_has_recorded": [Q5 Q6] => after_recording;
}

/// Neither the claim of a refused submission stays, nor does the device's counter get its signal.
fn after_recording<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let buffer = world.left.buffer(WORDS)?;
    let to = buffer.clone();
    let refused = left.submit(
        &[],
        move |recorder| {
            S::fill(recorder, &to, 1)?;
            Err(cause("after recording"))
        },
        &[line.signal_at(5)],
    );
    check_error!(refused, Error::Work(_));
    left.submit_empty(&[], &[])?;
    left.idle(patience())?;
    check_eq!(line.value()?, 0);
    right.signal(&line, 1)?;
    left.fill(&[line.at(1)], &buffer, 2, &[line.signal_at(2)])?;
    line.at(2).wait(patience())?;
    check_eq!(line.value()?, 2);
    filled::<S>(&buffer, 2, "buffer")?;
    Ok(())
}
