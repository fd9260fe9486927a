//! Values that others signal, and that the application promises.

use loom::thread;
use syncline_model::backend::{Attachment, ByEngine, Port};
use syncline_model::{Result, Timeline};

use crate::driver::device;
use crate::interrupted;

/// A counter that others have signalled to 1.
struct Signalled;

impl Port for Signalled {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(1))
    }

    fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
        Ok(())
    }
}

/// The counter shows a value, and one thread promises it while another polls.
///
/// The claim of the promise is no claim of the engine that the counter has passed.
#[test]
fn a_poll_against_a_promise() {
    interrupted(5, || {
        let home = Attachment::new(device(), 0, Signalled).signalled_elsewhere(true);
        let line = Timeline::new("line", 0, |_| Ok([home].into_iter().collect())).unwrap();
        let other = line.clone();
        let polls = thread::spawn(move || other.at(1).is_reached());
        line.signalled_by_others(1).unwrap();
        assert!(polls.join().unwrap().unwrap());
        assert_eq!(line.value().unwrap(), 1);
    });
}
