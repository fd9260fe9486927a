//! Runs each question in a process of its own.

use std::fmt::Display;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::cuda::Code;
use crate::kit::{context, names, time, yes};

/// How many hardware connections a context has.
pub(crate) const MAX_CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
/// How long a question may take, in seconds.
const LIMIT: u64 = 20;

/// A question.
pub(crate) struct Probe {
    /// `family.name`.
    pub(crate) name: String,
    /// Answers the question with [`line()`] and [`answer()`].
    ask: Box<dyn Fn() + Send + Sync>,
}

/// Names, each with what a question is about.
pub(crate) type Table<T> = &'static [(&'static str, T)];

/// Names and questions.
pub(crate) type Questions = Table<fn()>;

/// All questions.
#[derive(Default)]
pub(crate) struct Probes(pub(crate) Vec<Probe>);

impl Probes {
    /// Questions that begin with the primary context.
    pub(crate) fn family(&mut self, family: &str, questions: Questions) {
        self.each(family, questions, |ask| ask());
    }

    /// Questions that begin with nothing.
    pub(crate) fn bare(&mut self, family: &str, questions: Questions) {
        self.each_bare(family, questions, |ask| ask());
    }

    /// The same question about several cases, with the primary context.
    pub(crate) fn each<T: Copy + Send + Sync + 'static>(
        &mut self,
        family: &str,
        cases: &[(&str, T)],
        ask: impl Fn(T) + Copy + Send + Sync + 'static,
    ) {
        self.each_bare(family, cases, move |case| {
            context();
            ask(case);
        });
    }

    /// The same question about several cases, without a context.
    pub(crate) fn each_bare<T: Copy + Send + Sync + 'static>(
        &mut self,
        family: &str,
        cases: &[(&str, T)],
        ask: impl Fn(T) + Copy + Send + Sync + 'static,
    ) {
        for (name, case) in cases {
            let (case, name) = (*case, format!("{family}.{name}"));
            let ask = Box::new(move || ask(case));
            self.0.push(Probe { name, ask });
        }
    }
}

/// Something that can be an answer.
pub(crate) trait Shown {
    fn shown(&self) -> String;
}

macro_rules! shown {
    ($($type:ty)*) => {$(
        impl Shown for $type {
            fn shown(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

shown! { Code &str String u64 usize i32 }

impl Shown for bool {
    fn shown(&self) -> String {
        yes(*self).into()
    }
}

impl<const N: usize> Shown for [Code; N] {
    fn shown(&self) -> String {
        names(self)
    }
}

impl<A: Shown, B: Shown> Shown for (A, B) {
    fn shown(&self) -> String {
        format!("{}, {}", self.0.shown(), self.1.shown())
    }
}

static ASKED: OnceLock<String> = OnceLock::new();

/// Prints one of several answers to the question of this process.
pub(crate) fn line(part: impl Display, answer: impl Shown) {
    if let Some(name) = ASKED.get() {
        print(&format!("{name}.{part}: {}", answer.shown()));
    }
}

/// Prints the answer to the question of this process.
pub(crate) fn answer(answer: impl Shown) {
    if let Some(name) = ASKED.get() {
        print(&format!("{name}: {}", answer.shown()));
    }
}

/// Ends the question of this process with an answer, or with the reason why it cannot be asked.
pub(crate) fn stop(reason: impl Display) -> ! {
    match ASKED.get() {
        Some(name) => print(&format!("{name}: {reason}")),
        None => print(&reason.to_string()),
    }
    leave()
}

fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// Answers a question in this process, and ends the process.
pub(crate) fn ask_here(probe: &Probe) -> ! {
    die_with_parent();
    limit();
    let _ = ASKED.set(probe.name.clone());
    (probe.ask)();
    leave()
}

/// Lets the kernel end this process by a signal after [`LIMIT`].
pub(crate) fn limit() {
    // SAFETY: has no conditions.
    unsafe { libc::alarm(time(LIMIT * 1000).as_secs() as u32) };
}

/// Ends this process without the driver's handlers, which may wait for parked work.
pub(crate) fn leave() -> ! {
    // SAFETY: has no conditions.
    unsafe { libc::_exit(0) }
}

/// Lets the kernel kill this process when its parent ends.
pub(crate) fn die_with_parent() {
    // SAFETY: takes two integers, and the others are not read for this operation.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Runs all of them, some at the same time, and prints the answers in the order of the questions.
pub(crate) fn run(probes: &[Probe], driver: &str, jobs: usize) {
    let next = AtomicUsize::new(0);
    let done: Mutex<(usize, Vec<Option<String>>)> = Mutex::new((0, vec![None; probes.len()]));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(probe) = probes.get(index) else {
                        return;
                    };
                    let answer = ask(probe, driver);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    let (printed, answers) = &mut *done;
                    answers[index] = Some(answer);
                    while let Some(Some(answer)) = answers.get_mut(*printed).map(Option::take) {
                        print(&answer);
                        *printed += 1;
                    }
                }
            });
        }
    });
}

/// Lets a new process answer the question. Returns its lines.
fn ask(probe: &Probe, driver: &str) -> String {
    let name = &probe.name;
    let output = own(driver).and_then(|mut command| {
        command.arg("--answer").arg(name).stdin(Stdio::null());
        // A question about connections sets it itself.
        command.env_remove(MAX_CONNECTIONS).output()
    });
    let output = match output {
        Ok(output) => output,
        Err(error) => return format!("{name}: not asked: {error}"),
    };
    let lines = String::from_utf8_lossy(&output.stdout);
    let lines = lines.trim_end();
    let how = match (output.status.signal(), output.status.code()) {
        // As in a record that was made without more patience.
        (Some(libc::SIGALRM), _) => format!("no answer within {LIMIT} s"),
        (Some(signal), _) => format!("died by signal {signal}"),
        (_, Some(0)) if lines.is_empty() => "ended without an answer".into(),
        (_, Some(0)) => return lines.into(),
        (_, code) => format!("ended with code {}", code.unwrap_or(-1)),
    };
    format!("{lines}\n{name}: {how}").trim_start().into()
}

static DRIVER: OnceLock<String> = OnceLock::new();

/// Keeps the driver's path for the processes that a question starts.
pub(crate) fn keep_driver(driver: &str) {
    let _ = DRIVER.set(driver.into());
}

/// Starts another process that exports an event, with pipes to it.
pub(crate) fn peer() -> Result<Child, String> {
    let driver = DRIVER.get().map_or("libcuda.so.1", String::as_str);
    let mut command = own(driver).map_err(|error| error.to_string())?;
    command.arg("--peer").stdin(Stdio::piped());
    command.spawn().map_err(|error| error.to_string())
}

fn own(driver: &str) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--driver").arg(driver);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    Ok(command)
}
