//! Q6, E5: errors and panics of work are reported with their own texts.

use std::fmt;

use syncline::Error;

use super::unheard;
use crate::case::{Stop, Verdict, cases, check};
use crate::cases::cause;
use crate::{Subject, World, patience};

cases! {
    "work.error_and_panic_text_survive": [Q6 E5] => texts;
}

/// An error of the application, with a source of its own.
#[derive(Debug)]
struct Outer(std::num::ParseIntError);

impl fmt::Display for Outer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the scene is broken")
    }
}

impl std::error::Error for Outer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// The text of work that fails or panics is reported, at once and when it is released.
fn texts<S: Subject>(world: &World<S>) -> Verdict {
    let queue = world.right_queue("right")?;
    #[allow(clippy::panic, reason = "the behaviour under test")]
    let panic = |how: u32| -> syncline::Result<()> {
        match how {
            0 => panic!("a literal"),
            1 => std::panic::panic_any(String::from("a text of its own")),
            _ => std::panic::panic_any(7_u32),
        }
    };
    for (how, text) in [(0, "a literal"), (1, "a text of its own"), (2, "")] {
        let (gate, line) = (world.timeline("gate")?, world.timeline("line")?);
        let (at_once, later) = unheard(|| {
            let at_once = queue
                .submit(&[], move |_| panic(how), &[line.signal_at(1)])
                .map(drop);
            let held = queue.submit(&[gate.at(1)], move |_| panic(how), &[line.signal_at(1)]);
            let opened = held.map(drop).and_then(|()| gate.signal(1));
            (at_once, opened.and_then(|()| line.at(1).wait(patience())))
        });
        for ended in [at_once, later] {
            let Err(error) = ended else {
                return Stop::fail("work that panics is a success");
            };
            let inner = match &error {
                Error::Failed { cause, .. } => cause,
                error => error,
            };
            let Error::WorkPanicked {
                queue: named,
                message,
                ..
            } = inner
            else {
                return Stop::fail(format!("work that panics is: {error}"));
            };
            check!(
                if text.is_empty() {
                    !message.is_empty()
                } else {
                    message == text
                },
                "panicked with {text:?}, told as {message:?}"
            );
            check!(named == queue.object(), "it panicked on {named}");
            check!(error.to_string().contains(message.as_str()));
        }
    }
    let (gate, line) = (world.timeline("gate")?, world.timeline("line")?);
    let fails = || {
        Err("nine"
            .parse::<u8>()
            .map_or_else(|e| Error::work(Outer(e)), |_| cause("")))
    };
    let at_once = queue
        .submit(&[], move |_| fails(), &[line.signal_at(1)])
        .map(drop);
    queue.submit(&[gate.at(1)], move |_| fails(), &[line.signal_at(1)])?;
    gate.signal(1)?;
    for ended in [at_once, line.at(1).wait(patience())] {
        let Err(error) = ended else {
            return Stop::fail("work that fails is a success");
        };
        let text = error.to_string();
        for part in ["the scene is broken", "invalid digit"] {
            check!(text.matches(part).count() == 1, "{part:?}: {text}");
        }
        let Error::Work(own) = error.root() else {
            return Stop::fail(format!("work that fails is: {error}"));
        };
        let source = own.source();
        check!(
            source.is_some_and(|source| source.is::<std::num::ParseIntError>()),
            "the application's error has the source {source:?}"
        );
    }
    queue.idle(patience())?;
    Ok(())
}
