//! The kernels of this repository.

use std::sync::atomic::Ordering;

use crate::common::{BASE, Memory, params, run};
use rstest::rstest;
use syncline_software_ptx::{Fault, Launch, Module};

const PRODUCE: &str = include_str!("../../../../../recipes/src/produce.ptx");
const HOLD: &str = include_str!("../../../../../tests/src/workload/hold.ptx");
const DELAY: &str = include_str!("../../../../../tests/src/workload/delay.ptx");
const FAULT: &str = include_str!("../../../../../tests/src/workload/fault.ptx");
const CLOCK: &str = include_str!("../../../../../backend-cuda/src/timing/clock.ptx");
const BEHIND: &str = include_str!("../../../../../backend-cuda/src/timing/behind.ptx");
const EARLY: &str = include_str!("../../../../../backend-cuda/tests/early.ptx");
const KERNELS: &str = include_str!("../../../../../backend-cuda/tests/kernels.ptx");
const WAVE: &str = include_str!("../../../../../demo/src/compute/wave.ptx");

#[test]
fn every_kernel_is_read() {
    let expected: [(&str, &[&str]); 9] = [
        (PRODUCE, &["produce"]),
        (HOLD, &["hold"]),
        (DELAY, &["delay"]),
        (FAULT, &["fault"]),
        (CLOCK, &["show", "stamp"]),
        (BEHIND, &["stamp"]),
        (EARLY, &["early"]),
        (KERNELS, &["delay", "gate", "peek", "fault"]),
        (WAVE, &["step", "delay"]),
    ];
    for (text, names) in expected {
        let module = Module::parse(text).unwrap();
        let found: Vec<_> = module.entries().map(|(name, _)| name).collect();
        assert_eq!(found, names);
    }
}

#[test]
fn parameters_are_laid_out_as_in_c() {
    let module = Module::parse(PRODUCE).unwrap();
    let entry = module.entry("produce").unwrap();
    let places: Vec<_> = entry
        .params()
        .iter()
        .map(|param| (param.offset, param.size))
        .collect();
    assert_eq!(places, [(0, 8), (8, 4), (12, 4), (16, 8)]);
    assert_eq!(entry.params_size(), 24);
}

#[test]
fn produce_makes_the_words_of_its_formula() {
    const COUNT: u32 = 1000;
    for frame in [0, 1, 7, u32::MAX] {
        let memory = Memory::of_words(&[0xdead_beef; COUNT as usize + 24]);
        let values = [BASE, COUNT.into(), frame.into(), 3];
        run(PRODUCE, "produce", [8, 1, 1], [128, 1, 1], &values, &memory).unwrap();
        let words = memory.words();
        for index in 0..COUNT {
            let word = frame.wrapping_mul(0x9E37_79B9).wrapping_add(index);
            let word = word.wrapping_mul(0x85EB_CA6B);
            assert_eq!(
                words[index as usize],
                word ^ word >> 15,
                "word {index} of {frame}"
            );
        }
        assert_eq!(words[COUNT as usize..], [0xdead_beef; 24]);
    }
}

#[test]
fn a_store_to_nothing_is_a_fault() {
    let memory = Memory::new(0);
    let fault = run(FAULT, "fault", [1; 3], [1; 3], &[], &memory);
    assert_eq!(
        fault,
        Err(Fault::Address {
            address: 16,
            bytes: 4,
            write: true
        })
    );
}

#[test]
fn a_kernel_that_spins_can_be_stopped() {
    let memory = Memory::new(8);
    memory.stop_at.store(10, Ordering::Relaxed);
    assert_eq!(
        run(HOLD, "hold", [1; 3], [1; 3], &[BASE], &memory),
        Err(Fault::Stopped)
    );
    assert_eq!(memory.pauses.load(Ordering::Relaxed), 10);
}

#[test]
fn a_kernel_that_spins_ends_when_the_host_writes() {
    let memory = Memory::new(8);
    memory.stop_at.store(u64::MAX, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let kernel = scope.spawn(|| run(HOLD, "hold", [1; 3], [1; 3], &[BASE], &memory));
        while memory.pauses.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        memory.lock()[0] = 1;
        assert_eq!(kernel.join().unwrap(), Ok(()));
    });
}

#[rstest]
#[case::of_the_suite(DELAY, "delay")]
#[case::of_the_cuda_backend(KERNELS, "delay")]
#[case::of_the_demo(WAVE, "delay")]
#[case::that_lets_the_next_kernel_begin(EARLY, "early")]
fn the_clock_ends_a_delay(#[case] text: &str, #[case] name: &str) {
    let memory = Memory::new(0);
    let start = memory.time.load(Ordering::Relaxed);
    run(text, name, [1; 3], [1; 3], &[5000], &memory).unwrap();
    // The first reading, and readings until one is 5000 later.
    assert_eq!(memory.time.load(Ordering::Relaxed), start + 5001);
    assert_eq!(
        memory.launched.load(Ordering::Relaxed),
        u32::from(name == "early")
    );
}

#[test]
fn the_clock_is_shown() {
    let memory = Memory::new(8 * 64);
    let start = memory.time.load(Ordering::Relaxed);
    // The host has asked twice already.
    memory.lock()[0] = 2;
    run(CLOCK, "show", [1; 3], [1; 3], &[BASE], &memory).unwrap();
    let words = memory.longs();
    let readings: Vec<u64> = (start + 1..start + 10).collect();
    assert_eq!(words[8..17], readings);
    assert_eq!(words[24..26], [start + 10, start + 11]);
    assert_eq!(words[26..40], [0; 14]);

    run(CLOCK, "stamp", [1; 3], [1; 3], &[BASE + 8], &memory).unwrap();
    assert_eq!(memory.waited.load(Ordering::Relaxed), 0);
    run(BEHIND, "stamp", [1; 3], [1; 3], &[BASE + 16], &memory).unwrap();
    assert_eq!(memory.waited.load(Ordering::Relaxed), 1);
    run(KERNELS, "peek", [1; 3], [1; 3], &[BASE + 24], &memory).unwrap();
    let words = memory.longs();
    assert_eq!(words[1] + 1, words[2]);
    assert_eq!(words[2] + 1, words[3]);
}

#[test]
fn a_gate_opens() {
    let memory = Memory::of_words(&[1]);
    let start = memory.time.load(Ordering::Relaxed);
    run(KERNELS, "gate", [1; 3], [1; 3], &[BASE], &memory).unwrap();
    assert_eq!(memory.time.load(Ordering::Relaxed), start + 1);
}

#[rstest]
#[case::fitting([1; 3], [1; 3], 0, true)]
#[case::no_blocks([0, 1, 1], [1; 3], 0, false)]
#[case::too_many_blocks([1, 65536, 1], [1; 3], 0, false)]
#[case::no_threads([1; 3], [1, 0, 1], 0, false)]
#[case::too_wide_a_block([1; 3], [1025, 1, 1], 0, false)]
#[case::too_deep_a_block([1; 3], [1, 1, 65], 0, false)]
#[case::too_many_threads([1; 3], [32, 32, 2], 0, false)]
#[case::a_missing_byte_of_parameters([1; 3], [1; 3], 1, false)]
fn a_launch_must_fit(
    #[case] grid: [u32; 3],
    #[case] block: [u32; 3],
    #[case] missing: usize,
    #[case] fits: bool,
) {
    let module = Module::parse(PRODUCE).unwrap();
    let entry = module.entry("produce").unwrap();
    let memory = Memory::new(0);
    let params = params(&entry, &[BASE, 0, 0, 0]);
    let launch = Launch {
        grid,
        block,
        params: params[missing..].to_vec(),
    };
    let ran = entry.run(&launch, &memory);
    assert_eq!(matches!(ran, Err(Fault::Launch(_))), !fits, "{ran:?}");
    assert_eq!(ran.is_ok(), fits, "{ran:?}");
}
