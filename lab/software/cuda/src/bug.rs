//! Bugs that the environment can plant, to show that tests catch them.
//!
//! Without the environment variable the driver has none of them.

use syncline_software_payload::bugs;

use crate::settings::settings;

bugs! {
    /// A release of the primary context destroys it, even if others retain it.
    ReleaseEndsContext = "release-ends-context";
    /// A device returns another UUID at each call.
    UuidChanges = "uuid-changes";
    /// Each device returns the UUID of the first. The others import nothing of that GPU.
    PosesAsFirst = "poses-as-first";
    /// An attribute states that timeline semaphores can be imported, and each import is refused.
    ImportsAreRefused = "imports-are-refused";
    /// A context that an application makes is the primary context.
    ContextIsPrimary = "context-is-primary";
    /// A query of an event makes the context of the event current.
    QueryMakesCurrent = "query-makes-current";
    /// A stream synchronizes with the legacy default stream, whatever flags it has.
    StreamsAreBlocking = "streams-are-blocking";
    /// A wait in a capture adds no edge to the graph.
    CaptureForgetsEdges = "capture-forgets-edges";
    /// A graph does not record an event at its launches.
    LaunchForgetsRecords = "launch-forgets-records";
    /// A node of a graph keeps the value and the event with which it was captured.
    NodeKeepsValue = "node-keeps-value";
    /// A change of a node also changes launches that have not executed the node.
    NodeChangesLater = "node-changes-later";
    /// A node of a graph signals an imported semaphore when all of the graph has ended.
    NodeSignalsLate = "node-signals-late";
    /// A context with a fault reports none, and continues.
    FaultIsForgotten = "fault-is-forgotten";
    /// A stream with a fault makes its signals of imported semaphores before the fault is reported.
    FaultSignals = "fault-signals";
    /// The code of a fault is another one at every second call.
    FaultChanges = "fault-changes";
    /// A semaphore is imported as the other kind.
    ImportsOtherKind = "imports-other-kind";
    /// Imported memory is separate memory.
    ImportsOtherMemory = "imports-other-memory";
    /// A level of a mipmapped array is the next one, or the first one for the last.
    WrongLevel = "wrong-level";
    /// An array begins at the beginning of imported memory, whatever its offset.
    ArrayIgnoresOffset = "array-ignores-offset";
    /// The end of a mipmapped array ends the others of its context, too, whatever uses them.
    ArrayFreedEarly = "array-freed-early";
    /// Memory that is exported is separate memory.
    ExportsOtherMemory = "exports-other-memory";
    /// The release of memory takes its mappings away.
    ReleaseUnmaps = "release-unmaps";
    /// A stream does not wait for an event.
    ForgetsEventWait = "forgets-event-wait";
    /// A stream does not wait for an imported semaphore.
    ForgetsExternalWait = "forgets-external-wait";
    /// A signal of an imported semaphore executes when it is submitted.
    SignalsTooEarly = "signals-too-early";
    /// A signal of an imported binary semaphore counts twice.
    SignalsTwice = "signals-twice";
    /// A query returns that an event is complete, although it is not.
    EventCompleteTooEarly = "event-complete-too-early";
    /// A record has the position before the last command of its stream.
    RecordsEarlierPosition = "records-earlier-position";
    /// A copy is complete before its bytes are written.
    CopyCompleteTooEarly = "copy-complete-too-early";
    /// Only the first of a batch of memory operations executes.
    BatchDoesTheFirst = "batch-does-the-first";
    /// A wait for a word does not compare cyclically. After the word has wrapped, it goes on.
    WaitsComparePlainly = "waits-compare-plainly";
    /// A stream does not wait for a word.
    ForgetsMemoryWait = "forgets-memory-wait";
}

impl Bug {
    /// True if the environment has planted this bug.
    pub(crate) fn is_planted(self) -> bool {
        settings().is_ok_and(|settings| settings.bug == Some(self))
    }
}
