//! The table of bugs: where each is planted, which rules it breaks, and which case catches it.

/// Where a bug is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the software CUDA driver.
    Cuda,
    /// In the Vulkan layer.
    Layer,
    /// In the second process of a case.
    Peer,
}

/// One side of a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The CUDA device that is one GPU with the Vulkan device.
    Cuda,
    /// The other CUDA device.
    OtherCuda,
    Vulkan,
    Host,
}

/// A bug.
#[derive(Debug)]
pub(crate) struct Planted {
    pub(crate) place: Place,
    /// Its name in the environment variable.
    pub(crate) bug: &'static str,
    /// The rules that it breaks. The case shows each of them.
    pub(crate) rules: &'static [&'static str],
    /// The sides that the case runs on: one device, or two.
    pub(crate) subject: &'static [Side],
    pub(crate) case: &'static str,
    /// A part of the message with which the case fails.
    pub(crate) says: &'static str,
}

const fn planted(
    place: Place,
    bug: &'static str,
    rules: &'static [&'static str],
    subject: &'static [Side],
    case: &'static str,
    says: &'static str,
) -> Planted {
    Planted {
        place,
        bug,
        rules,
        subject,
        case,
        says,
    }
}

use Place::{Cuda as InCuda, Layer as InLayer, Peer as InPeer};
use Side::{Cuda, Host, OtherCuda, Vulkan};

/// All bugs.
#[rustfmt::skip]
pub(crate) const BUGS: &[Planted] = &[
    // --- Devices --------------------------------------------------------------------------------
    planted(InCuda, "release-ends-context", &["D1"], &[Cuda],
        "device.two_users_do_not_meet", "cuStreamQuery returned"),
    planted(InCuda, "uuid-changes", &["D2"], &[Cuda],
        "device.says_what_its_driver_says", "info.uuid is"),
    planted(InCuda, "imports-are-refused", &["D3"], &[Vulkan, Cuda],
        "handle.promised_kinds_work", "to import timeline-opaque-fd"),
    planted(InCuda, "release-ends-context", &["D4"], &[Cuda],
        "device.objects_keep_it_alive", "cuStreamQuery returned"),
    planted(InCuda, "context-is-primary", &["D4"], &[Cuda],
        "adopted.context_and_streams_of_cudarc", "success instead of"),
    planted(InCuda, "query-makes-current", &["D5"], &[Cuda],
        "adopted.current_context_is_left_as_found", "now is"),
    planted(InCuda, "streams-are-blocking", &["D6"], &[Cuda],
        "adopted.made_streams_do_not_meet_the_default_stream", "no stream made here ran"),
    // --- Captures -------------------------------------------------------------------------------
    planted(InCuda, "capture-forgets-edges", &["F7"], &[Cuda],
        "capture.wait_becomes_an_edge", "UNJOINED"),
    planted(InCuda, "launch-forgets-records", &["F7"], &[Cuda],
        "capture.each_launch_records", "`!fence.is_complete()?` is false"),
    planted(InCuda, "node-signals-late", &["F7"], &[Cuda, Vulkan],
        "slot.others_begin_in_the_middle", "`begun.is_ok()` is false"),
    planted(InCuda, "node-keeps-value", &["F7"], &[Cuda, Vulkan],
        "slot.others_begin_in_the_middle", "`begun.is_ok()` is false"),
    planted(InCuda, "node-keeps-value", &["F7"], &[Cuda],
        "slot.waits_in_the_middle", "did not wait in the middle"),
    planted(InCuda, "node-changes-later", &["F7"], &[Cuda, Vulkan],
        "slot.two_launches_in_flight", "the value of the second"),
    planted(InCuda, "node-keeps-value", &["F7", "Q2"], &[Cuda, Vulkan],
        "slot.a_held_launch_keeps_its_values", "timed out"),
    planted(InCuda, "node-keeps-value", &["F7", "Q2"], &[Cuda, Vulkan],
        "slot.two_threads_launch_one_graph", "the value of another thread's launch"),
    planted(InCuda, "fault-is-forgotten", &["F7", "E3"], &[Cuda, Vulkan],
        "slot.lost_in_the_middle", "of a lost device"),
    // --- Failures -------------------------------------------------------------------------------
    planted(InCuda, "fault-is-forgotten", &["E3"], &[Cuda],
        "process.device_lost_with_its_signal_pending", "the device is as it was"),
    planted(InLayer, "forgets-host-signal", &["E3", "P3"], &[Vulkan],
        "process.killed_with_its_signal_pending", "timed out"),
    planted(InCuda, "fault-is-forgotten", &["E3"], &[Cuda, Vulkan],
        "share.lost_with_its_signals_pending", "of a lost device"),
    planted(InCuda, "fault-is-forgotten", &["E3"], &[Cuda, Vulkan],
        "share.lost_with_work_held", "of a lost device"),
    planted(InLayer, "forgets-host-signal", &["E3"], &[Cuda, Vulkan],
        "share.lost_with_its_signals_pending", "timed out"),
    planted(InCuda, "fault-signals", &["E3"], &[Cuda, Vulkan],
        "share.lost_with_its_signals_pending", "of a lost device"),
    planted(InCuda, "fault-changes", &["E3"], &[Cuda, Vulkan],
        "share.lost_with_its_signals_pending", "`codes.iter()"),
    planted(InLayer, "host-signals-too-high", &["E3"], &[Vulkan, Cuda],
        "share.lost_with_its_signals_pending", "was released, too"),
    planted(InLayer, "signals-in-turn", &["E3", "P3"], &[Vulkan],
        "process.binary_signaller_dies_before_a_busy_queue", "timed out"),
    // --- Sharing between APIs -------------------------------------------------------------------
    planted(InPeer, "carries-nothing-out", &["X1"], &[Host],
        "process.carried_out", "did not say what became of"),
    planted(InLayer, "exports-another", &["X2"], &[Vulkan, Cuda],
        "share.one_counter", "timed out"),
    // Wrong data, or a value that is reached too early: what comes first depends on the load.
    planted(InLayer, "signals-too-high", &["X8", "Q9"], &[Vulkan, Cuda],
        "share.data_back_and_forth", ""),
    planted(InLayer, "loses-last-value", &["X2"], &[Vulkan, Cuda],
        "share.one_counter", "timed out"),
    planted(InCuda, "imports-other-kind", &["X3"], &[Vulkan, Cuda],
        "process.binary_waited_for", "through 2: said is"),
    planted(InCuda, "poses-as-first", &["X5"], &[Vulkan, OtherCuda],
        "share.says_how_and_why", "cuImportExternalSemaphore"),
    planted(InCuda, "event-complete-too-early", &["X6"], &[Cuda, Host],
        "bridge.carries_signals_both_ways", " instead of 10"),
    planted(InCuda, "imports-other-memory", &["X8"], &[Vulkan, Cuda],
        "share.memory_travels_with_the_sync", "word == 0xC0FFEE"),
    planted(InLayer, "ignores-offset", &["X8"], &[Vulkan, Cuda],
        "share.memory_of_the_application", "round 0: wrong is Some"),
    planted(InLayer, "ownership-not-released", &["X8"], &[Vulkan, Cuda],
        "share.ranges_are_the_same_bytes", "VK_ERROR_VALIDATION_FAILED"),
    planted(InLayer, "exports-other-memory", &["X8"], &[Vulkan, Cuda],
        "share.memory_travels_with_the_sync", "word == 0xC0FFEE"),
    planted(InCuda, "exports-other-memory", &["X8"], &[Cuda, Vulkan],
        "share.memory_that_cuda_made", "round 0: wrong is Some"),
    planted(InCuda, "release-unmaps", &["X8"], &[Cuda],
        "memory.two_cuda_devices_share_it", "cuMemsetD32Async"),
    planted(InCuda, "forgets-external-wait", &["X8", "Q9"], &[Vulkan, Cuda],
        "share.memory_travels_with_the_sync", "word == 0xC0FFEE"),
    planted(InCuda, "signals-too-early", &["X8", "Q9"], &[Cuda, Vulkan],
        "share.memory_travels_with_the_sync", "word == 0xC0FFEE"),
    planted(InLayer, "forgets-wait", &["X8", "Q9"], &[Cuda, Vulkan],
        "share.memory_travels_with_the_sync", "word == 0xC0FFEE"),
    planted(InLayer, "signals-before-the-work", &["X8", "Q9"], &[Vulkan, Cuda],
        "share.memory_travels_with_the_sync", "word == 0xC0FFEE"),
    planted(InCuda, "wrong-level", &["X9"], &[Vulkan, Cuda],
        "share.images_have_the_same_texels", "CUDA_ERROR_INVALID_VALUE"),
    planted(InCuda, "array-ignores-offset", &["X9"], &[Vulkan, Cuda],
        "share.image_of_the_application", "round 0, level 0: wrong is Some"),
    planted(InCuda, "array-freed-early", &["X9"], &[Vulkan, Cuda],
        "share.images_are_kept", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    planted(InLayer, "image-not-released", &["X9"], &[Vulkan, Cuda],
        "share.images_have_the_same_texels", "VK_ERROR_VALIDATION_FAILED"),
    planted(InLayer, "image-layout-not-released", &["X9"], &[Vulkan, Cuda],
        "share.new_images_are_discarded_first", "VK_ERROR_VALIDATION_FAILED"),
    planted(InCuda, "signals-twice", &["X1"], &[Cuda, Vulkan],
        "process.binary_and_memory", "look image 2: said is"),
    planted(InCuda, "forgets-memory-wait", &["X10", "Q9"], &[Cuda],
        "word.a_kernel_writes_it", "success instead of"),
    planted(InCuda, "waits-compare-plainly", &["X10"], &[Cuda],
        "word.32_bits_wrap", "timed out"),
    // --- Across processes -----------------------------------------------------------------------
    planted(InPeer, "keeps-descriptors", &["P1"], &[Host],
        "process.leaves_nothing", "descriptors became more"),
    planted(InPeer, "sends-another-point", &["P1", "P2"], &[Host],
        "process.points_in_their_order", "receive: said is"),
    planted(InPeer, "describes-another-image", &["X9", "P1"], &[Cuda, Vulkan],
        "process.images_are_described_equally", "an image with extent 61×37×1"),
    planted(InPeer, "makes-another-image", &["X9"], &[Cuda, Vulkan],
        "process.image_of_the_application", "load frames 1: said is"),
    planted(InPeer, "reports-too-early", &["P4"], &[Host],
        "process.what_was_reported_survives_a_kill", "after idle, of line0"),
    planted(InPeer, "fails-in-silence", &["P4"], &[Host],
        "process.failures_without_a_text", "timed out"),
    // --- Timing ---------------------------------------------------------------------------------
    planted(InLayer, "calibrates-another-clock", &["M2", "M3"], &[Vulkan],
        "clocks.calibrated_as_it_is_written", "calibrated timestamps are not of the clock"),
    // --- Costs ----------------------------------------------------------------------------------
    planted(InCuda, "batch-does-the-first", &["H1"], &[Host, Cuda],
        "counter.many_in_one_submission", "timed out"),
    // --- Order, which the mutants break in a backend --------------------------------------------
    planted(InCuda, "forgets-event-wait", &["Q1", "Q9"], &[Cuda],
        "queue.work_follows_its_waits", "source: 0 instead of"),
    planted(InCuda, "records-earlier-position", &["Q7"], &[Cuda],
        "queue.nothing_ends_before_the_gate_opens", "success instead of"),
    planted(InCuda, "copy-complete-too-early", &["X8", "Q9"], &[Cuda, Vulkan],
        "share.ranges_are_the_same_bytes", ": wrong is Some("),
];

/// A program that must not compile, because a type enforces the rule.
#[derive(Debug)]
pub(crate) struct Type {
    pub(crate) rule: &'static str,
    pub(crate) program: &'static str,
}

/// Their folder, from that of this package.
pub(crate) const PROGRAMS: &str = "../interop/compile-tests/tests/compile/types/missing";

macro_rules! types {
    ($($rule:literal $program:literal;)+) => {
        /// The programs of [`PROGRAMS`], which the crate `compile-tests` compiles.
        pub(crate) const TYPES: &[Type] = &[$(Type {
            rule: $rule,
            program: $program,
        }),+];
    };
}

types! {
    "X3" "binary_handle_for_a_timeline";
    "X3" "sync_fd_for_an_opaque_one";
    "X3" "descriptor_of_unknown_kind";
    "X7" "signal_of_a_waiter";
    "X7" "signal_for_a_submission_of_a_waiter";
    "X7" "signal_with_a_point";
    "X7" "failure_by_a_waiter";
    "X7" "wait_of_a_signaller";
    "X7" "value_for_a_signaller";
    "X7" "timeline_of_a_view";
    "X7" "binary_signal_of_a_waiter";
    "X7" "binary_wait_of_a_signaller";
}
