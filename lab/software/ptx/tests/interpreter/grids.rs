//! How threads of a grid run.

use std::sync::atomic::Ordering;

use crate::common::{BASE, Memory, run};
use syncline_software_ptx::Fault;

/// A module for one kernel with a parameter `to`, whose address is in `%to`.
fn kernel(body: &str) -> String {
    format!(
        ".version 7.8 .target sm_90 .address_size 64
        .visible .entry f(.param .u64 to) {{
            .reg .u64 %to, %at, %long;
            .reg .u32 %r<10>;
            .reg .pred %p<4>;
            ld.param.u64 %to, [to];
            {body}
        }}"
    )
}

#[test]
fn every_thread_has_its_place() {
    let (grid, block) = ([2, 3, 2], [5, 3, 4]);
    let text = kernel(
        "mov.u32 %r0, %ctaid.z; mov.u32 %r1, %nctaid.y; mov.u32 %r2, %ctaid.y;
        mad.lo.u32 %r0, %r0, %r1, %r2; mov.u32 %r1, %nctaid.x; mov.u32 %r2, %ctaid.x;
        mad.lo.u32 %r0, %r0, %r1, %r2;
        mov.u32 %r1, %ntid.z; mov.u32 %r2, %tid.z; mad.lo.u32 %r0, %r0, %r1, %r2;
        mov.u32 %r1, %ntid.y; mov.u32 %r2, %tid.y; mad.lo.u32 %r0, %r0, %r1, %r2;
        mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r0, %r0, %r1, %r2;
        mul.wide.u32 %at, %r0, 4; add.u64 %at, %at, %to;
        mov.u32 %r3, %warpid; mov.u32 %r4, %laneid; mad.lo.u32 %r3, %r3, 32, %r4;
        mad.lo.u32 %r3, %r0, 1000, %r3;
        red.add.u32 [%at], %r3;",
    );
    let threads = 60;
    let memory = Memory::new(4 * 12 * threads as usize);
    run(&text, "f", grid, block, &[BASE], &memory).unwrap();
    let expected: Vec<u32> = (0..12 * threads)
        .map(|at| at * 1000 + at % threads)
        .collect();
    assert_eq!(memory.words(), expected);
}

#[test]
fn threads_of_a_warp_part_and_meet() {
    // Each thread adds its number as often as its number says.
    let text = kernel(
        "mov.u32 %r0, %tid.x; mov.u32 %r1, 0; mov.u32 %r2, 0;
        again: setp.ge.u32 %p0, %r1, %r0; @%p0 bra done;
        add.u32 %r1, %r1, 1; and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 0;
        @%p1 bra even; add.u32 %r2, %r2, %r0; bra again;
        even: mad.lo.u32 %r2, %r0, 1, %r2; bra again;
        done: mul.wide.u32 %at, %r0, 4; add.u64 %at, %at, %to; st.u32 [%at], %r2;",
    );
    let memory = Memory::new(4 * 100);
    run(&text, "f", [1; 3], [100, 1, 1], &[BASE], &memory).unwrap();
    assert_eq!(
        memory.words(),
        (0..100).map(|at| at * at).collect::<Vec<u32>>()
    );
}

#[test]
fn a_lock_passes_through_all_threads() {
    let text = kernel(
        "take: atom.cas.b32 %r0, [%to], 0, 1; setp.ne.u32 %p0, %r0, 0; @%p0 bra take;
        ld.volatile.u32 %r1, [%to+4]; add.u32 %r1, %r1, 1; st.volatile.u32 [%to+4], %r1;
        membar.gl; atom.exch.b32 %r0, [%to], 0;",
    );
    let memory = Memory::new(8);
    run(&text, "f", [3, 1, 1], [64, 1, 1], &[BASE], &memory).unwrap();
    assert_eq!(memory.words(), [0, 192]);
}

#[test]
fn threads_wait_for_later_threads() {
    // Thread n waits until thread n + 1 has written.
    let text = kernel(
        "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
        mad.lo.u32 %r0, %r0, %r1, %r2; mul.wide.u32 %at, %r0, 4; add.u64 %at, %at, %to;
        mov.u32 %r3, %nctaid.x; mul.lo.u32 %r3, %r3, %r1; sub.u32 %r3, %r3, 1;
        setp.eq.u32 %p0, %r0, %r3; @%p0 bra write;
        again: ld.volatile.u32 %r4, [%at+4]; setp.eq.u32 %p1, %r4, 0; @%p1 bra again;
        write: st.volatile.u32 [%at], 1;",
    );
    let memory = Memory::new(4 * 200);
    run(&text, "f", [4, 1, 1], [50, 1, 1], &[BASE], &memory).unwrap();
    assert_eq!(memory.words(), [1; 200]);
}

#[test]
fn faults_name_the_access() {
    let fault = |body: &str| {
        run(
            &kernel(body),
            "f",
            [1; 3],
            [1; 3],
            &[BASE],
            &Memory::new(16),
        )
    };
    let misaligned = |write| {
        Err(Fault::Misaligned {
            address: BASE + 2,
            bytes: 4,
            write,
        })
    };
    assert_eq!(fault("st.u32 [%to+2], 1;"), misaligned(true));
    assert_eq!(fault("ld.u32 %r0, [%to+2];"), misaligned(false));
    assert_eq!(fault("red.add.u32 [%to+2], 1;"), misaligned(true));
    let end = Fault::Address {
        address: BASE + 16,
        bytes: 8,
        write: false,
    };
    assert_eq!(fault("ld.u64 %long, [%to+16];"), Err(end));
    let before = Fault::Address {
        address: BASE - 4,
        bytes: 4,
        write: true,
    };
    assert_eq!(fault("atom.add.u32 %r0, [%to+-4], 1;"), Err(before));
    assert_eq!(fault("trap;"), Err(Fault::Trap));
    assert_eq!(
        fault("setp.ne.u32 %p0, 1, 1; @%p0 trap; @%p0 st.u32 [%to+2], 1;"),
        Ok(())
    );
    assert_eq!(fault("exit; trap;"), Ok(()));
}

#[test]
fn dependents_begin_once_and_after_every_warp() {
    let launched = |body: &str, block: u32| {
        let memory = Memory::new(8);
        run(
            &kernel(body),
            "f",
            [2, 1, 1],
            [block, 1, 1],
            &[BASE],
            &memory,
        )
        .unwrap();
        memory.launched.load(Ordering::Relaxed)
    };
    assert_eq!(launched("ret;", 64), 0);
    let launch = "griddepcontrol.launch_dependents;";
    assert_eq!(launched(launch, 1), 1);
    assert_eq!(launched(&format!("{launch}{launch}"), 64), 1);
    // Thread 0 of each block alone.
    let some = "mov.u32 %r0, %tid.x; setp.ne.u32 %p0, %r0, 0; @%p0 ret;";
    assert_eq!(launched(&format!("{some}{launch}"), 64), 1);
}

#[test]
fn orders_are_fences() {
    let memory = Memory::new(8);
    let text = kernel(
        "ld.relaxed.gpu.u32 %r0, [%to]; st.relaxed.gpu.u32 [%to], %r0;
        ld.volatile.u32 %r0, [%to]; st.volatile.u32 [%to], %r0;",
    );
    run(&text, "f", [1; 3], [1; 3], &[BASE], &memory).unwrap();
    assert_eq!(memory.fences.load(Ordering::Relaxed), 0);
    let text = kernel(
        "ld.acquire.sys.u32 %r0, [%to]; st.release.sys.u32 [%to], %r0;
        membar.sys; fence.acq_rel.gpu;",
    );
    run(&text, "f", [1; 3], [1; 3], &[BASE], &memory).unwrap();
    assert_eq!(memory.fences.load(Ordering::Relaxed), 4);
}

#[test]
fn the_clock_has_halves() {
    let memory = Memory::new(24);
    memory.time.store(0x1_ffff_ffff, Ordering::Relaxed);
    let text = kernel(
        "mov.u32 %r0, %globaltimer_lo; mov.u32 %r1, %globaltimer_hi; mov.u64 %long, %clock64;
        st.u32 [%to], %r0; st.u32 [%to+4], %r1; st.u64 [%to+8], %long;",
    );
    run(&text, "f", [1; 3], [1; 3], &[BASE], &memory).unwrap();
    assert_eq!(memory.longs(), [0x2_ffff_ffff, 0x2_0000_0001, 0]);
}
