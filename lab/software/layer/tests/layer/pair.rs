//! Two devices of one process, which share only what is exported.

use std::os::fd::{AsFd, OwnedFd};

use ash::vk;
use syncline_software_payload as software;

use crate::Case;
use crate::gpu::{Buffer, Driver, FOR_EVER, Gpu};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("a_timeline_orders_memory", timeline),
    ("without_the_wait_the_data_is_old", without_the_wait),
    ("a_binary_semaphore_orders_memory", binary),
    ("a_wait_before_its_signal", before),
    ("a_temporary_import_ends_with_a_wait", temporary),
    ("a_temporary_import_is_exported", temporary_export),
    ("ping_pong", ping_pong),
];

/// A producer and a consumer that share a buffer. The consumer copies it to its own.
pub(crate) struct Frames {
    pub(crate) producer: Gpu,
    pub(crate) consumer: Gpu,
    written: Buffer,
    shared: Buffer,
    shown: Buffer,
    /// The host signals it to let the producer's queue begin a frame.
    begin: vk::Semaphore,
}

impl Frames {
    fn new(driver: &Driver) -> Self {
        let (producer, consumer) = driver.open_two();
        let written = producer.buffer(None);
        let shared = consumer.buffer(Some(producer.export_memory(&written)));
        let shown = consumer.buffer(None);
        let begin = producer.timeline(0);
        Self {
            producer,
            consumer,
            written,
            shared,
            shown,
            begin,
        }
    }

    /// Draws frame `number` after work that waits for the host.
    fn draw(&self, number: u32, waits: &[(vk::Semaphore, u64)], signal: (vk::Semaphore, u64)) {
        let fill = self.producer.fill(&self.written, number);
        let mut waits = waits.to_vec();
        waits.push((self.begin, number.into()));
        self.producer.submit(&waits, &[fill], &[signal]);
    }

    fn let_begin(&self, number: u32) {
        self.producer.signal(self.begin, number.into());
    }

    /// Copies the shared buffer after the waits.
    fn show(&self, waits: &[(vk::Semaphore, u64)], signals: &[(vk::Semaphore, u64)]) {
        let copy = self.consumer.copy(&self.shared, &self.shown);
        self.consumer.submit(waits, &[copy], signals);
    }

    fn shown(&self) -> u32 {
        self.consumer.idle();
        self.consumer.read(&self.shown)
    }
}

fn timeline(driver: &Driver) {
    let frames = Frames::new(driver);
    let drawn = frames.producer.shared_timeline(0);
    let imported = frames
        .consumer
        .imported_timeline(frames.producer.export(drawn));
    for number in 1..=50 {
        frames.draw(number, &[], (drawn, number.into()));
        frames.show(&[(imported, number.into())], &[]);
        // Only now can the frame be drawn. A copy that did not wait has the frame before it.
        frames.let_begin(number);
        assert_eq!(frames.shown(), number);
    }
}

/// The negative control: the same without the wait.
fn without_the_wait(driver: &Driver) {
    let frames = Frames::new(driver);
    let drawn = frames.producer.shared_timeline(0);
    for number in 1..=10 {
        frames.draw(number, &[], (drawn, number.into()));
        frames.show(&[], &[]);
        assert_eq!(frames.shown(), number - 1);
        frames.let_begin(number);
        frames.producer.wait(drawn, number.into());
    }
}

fn binary(driver: &Driver) {
    let frames = Frames::new(driver);
    let drawn = frames.producer.shared_binary();
    let imported = frames
        .consumer
        .imported_binary(frames.producer.export(drawn));
    for number in 1..=50 {
        frames.draw(number, &[], (drawn, 0));
        frames.show(&[(imported, 0)], &[]);
        frames.let_begin(number);
        assert_eq!(frames.shown(), number);
    }
}

/// Work of the host and of two queues, in the order in which nothing is ready.
fn before(driver: &Driver) {
    let (one, other) = driver.open_two();
    let here = one.shared_timeline(0);
    let there = other.imported_timeline(one.export(here));
    for round in 0..20 {
        let value = round * 3;
        std::thread::scope(|threads| {
            let waiter = threads.spawn(|| other.wait(there, value + 3));
            one.submit(&[(here, value + 2)], &[], &[(here, value + 3)]);
            other.submit(&[(there, value + 1)], &[], &[(there, value + 2)]);
            let none = vk::SemaphoreWaitFlags::empty();
            let waited = one.try_wait(&[(here, value + 1)], none, 0);
            assert_eq!(waited, Err(vk::Result::TIMEOUT));
            other.signal(there, value + 1);
            waiter.join().unwrap();
        });
        assert_eq!(one.value(here), value + 3);
    }
}

/// The first wait is for the temporary payload, and the next for the permanent one.
fn temporary(driver: &Driver) {
    let (one, other) = driver.open_two();
    let (kept, lent) = (one.shared_binary(), one.shared_binary());
    let waits = other.imported_binary(one.export(kept));
    let flags = vk::SemaphoreImportFlags::TEMPORARY;
    let counted = other.timeline(0);
    for round in 0..10 {
        let count = round * 2;
        other.import(waits, one.export(lent), flags);
        other.submit(&[(waits, 0)], &[], &[(counted, count + 1)]);
        other.submit(&[(waits, 0)], &[], &[(counted, count + 2)]);
        one.submit(&[], &[], &[(lent, 0)]);
        other.wait(counted, count + 1);
        // The permanent payload has no signal yet.
        let none = vk::SemaphoreWaitFlags::empty();
        let waited = other.try_wait(&[(counted, count + 2)], none, 0);
        assert_eq!(waited, Err(vk::Result::TIMEOUT));
        one.submit(&[], &[], &[(kept, 0)]);
        other.wait(counted, count + 2);
    }
    // A semaphore of the driver that takes a temporary payload is the driver's again after it.
    let own = other.binary();
    other.import(own, one.export(lent), flags);
    one.submit(&[], &[], &[(lent, 0)]);
    other.submit(&[(own, 0)], &[], &[(counted, 100)]);
    other.submit(&[], &[], &[(own, 0)]);
    other.submit(&[(own, 0)], &[], &[(counted, 101)]);
    let none = vk::SemaphoreWaitFlags::empty();
    other.try_wait(&[(counted, 101)], none, FOR_EVER).unwrap();
}

/// A temporary payload is exported until a wait takes it.
fn temporary_export(driver: &Driver) {
    let (one, other) = driver.open_two();
    let (kept, lent) = (one.shared_binary(), one.shared_binary());
    let waits = other.shared_binary();
    let none = vk::SemaphoreImportFlags::empty();
    other.import(waits, one.export(kept), none);
    other.import(waits, one.export(lent), vk::SemaphoreImportFlags::TEMPORARY);
    let page = |fd: OwnedFd| software::Semaphore::open(fd.as_fd()).unwrap();
    let exported = page(other.export(waits));
    one.submit(&[], &[], &[(lent, 0)]);
    one.idle();
    assert_eq!(exported.value(), 1);
    other.submit(&[(waits, 0)], &[], &[]);
    other.idle();
    let exported = page(other.export(waits));
    assert_eq!(exported.value(), 0);
    one.submit(&[], &[], &[(kept, 0)]);
    one.idle();
    assert_eq!(exported.value(), 1);
}

/// Both queues in turn, without the host. Prints the time of a hop.
fn ping_pong(driver: &Driver) {
    let (one, other) = driver.open_two();
    let here = one.shared_timeline(0);
    let there = other.imported_timeline(one.export(here));
    let rounds = 500;
    let start = std::time::Instant::now();
    for round in 0..rounds {
        one.submit(&[(here, round * 2)], &[], &[(here, round * 2 + 1)]);
        other.submit(&[(there, round * 2 + 1)], &[], &[(there, round * 2 + 2)]);
    }
    one.wait(here, rounds * 2);
    let hop = start.elapsed() / u32::try_from(rounds * 2).unwrap();
    println!("ping-pong on {}: {hop:?} a hop", driver.name);
}
