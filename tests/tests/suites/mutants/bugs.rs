//! The bugs, each with the rules of the contract that it breaks.

macro_rules! bugs {
    ($($(#[doc = $why:literal])* $bug:ident: $($rule:ident)+;)+) => {
        /// One thing that is wrong with a subject.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Bug {
            /// Nothing is.
            None,
            $($(#[doc = $why])* $bug,)+
        }

        /// All of them.
        pub(crate) const BUGS: &[(Bug, &[&str])] = &[$((Bug::$bug, &[$(stringify!($rule)),+])),+];
    };
}

bugs! {
    // --- In the backend -------------------------------------------------------------------------
    /// Only the lower 32 bits of a counter are read.
    CounterReadInHalves: T1;
    /// A counter reads as one more than it is.
    CounterReadAhead: T1 T3;
    /// A signal of the host is off by one.
    HostSignalOneShort: Q1 Q3 T1;
    /// The device waits for nothing.
    WaitsAreForgotten: Q1 Q9;
    /// The device waits for one of several points.
    OnlyTheFirstWaitCounts: Q1 Q9;
    /// The device's comparison is off by one.
    DeviceWaitsOneShort: Q1 Q9;
    /// Success too early: values are reached before the work behind them is done.
    SignalsBeforeTheWork: Q1 Q9 T3;
    /// A queue's position is reached before its work is done.
    EndBeforeTheWork: Q7 F2 F3;
    /// One of several signals is made.
    OnlyTheFirstSignalCounts: Q1 E4;
    /// Signal out of order: a value does not wait for the lower ones of other queues.
    OrderOfSignalsIgnored: T3;
    /// Queues of different driver queues are said to keep one order.
    AllQueuesClaimOneOrder: T3;
    /// Work runs before what it waits for.
    WorkBeforeTheWaits: Q1 Q9;
    /// Everything that a submission records runs twice.
    WorkRunsTwice: Q6;
    /// Nothing that a submission records runs.
    WorkIsLost: Q1 Q6;
    /// The commands of a submission run last to first.
    WorkRunsBackwards: Q1;
    /// Every second submission of a queue runs before the first.
    LaterSubmissionsOvertake: Q1 Q7;
    /// A submission that is refused runs and signals all the same.
    RefusedWorkGoesToTheDriver: Q5;
    /// Drop frees early: what a submission uses goes when it is recorded.
    DropFreesEarly: Q6 T9;
    /// What a submission uses never goes.
    KeptForEver: Q6;
    /// Lost wakeup: the second list of every queue finds it locked, and the unlock wakes nothing.
    LockedQueueWakesNobody: Q1 Q7;
    /// A driver queue is given more than it takes, and blocks.
    BoundIgnored: Q2;
    /// The third list of every queue is lost.
    ThirdListIsLost: Q1 Q7;
    /// The thread that watches the driver is not told that there is more to watch.
    NudgesLost: T4 T6;
    /// Device times are scaled wrongly, by one part in forty.
    WrongTickPeriod: F5;
    /// Device times are ticks.
    TicksForNanoseconds: F5;
    /// Times are the host's, taken when the fence is recorded.
    TimeIsWrittenAtTheCall: F5 M1;
    /// Ticks are cut to 20 bits, and start again from 0.
    TicksWrapAround: M1;
    /// Times on the clock are ticks.
    ClockedTimesAreTicks: M3;
    /// Times on the clock are cut to 20 bits of ticks, and start again from 0.
    ClockedTimesWrapAround: M3;
    /// Times on the clock are the host's doing, taken when the fence is recorded.
    ClockedTimesAreOfTheCall: M3;
    /// Times of signals are not written.
    SignalTimesAreNotWritten: M6;
    /// The time of a signal is written before the work.
    SignalTimesBeforeTheWork: M6;
    /// The time of a signal is written before it waits for lower values.
    SignalTimesBeforeTheOrder: M6;
    /// What is between two times on the clock goes through milliseconds of 32 bits.
    FloatMilliseconds: M5;
    /// Every place for a time on the clock is kept.
    ClockedStampsLeak: H2;
    /// A device has another clock each time.
    AnotherClockEachTime: M2;
    /// The clock is said to be readable, and is refused.
    ClockRefused: M2;
    /// A sample is a command for the device, and waits behind its work.
    SampleBlocks: M2;
    /// A sample says that it is exact, whatever passed while it was taken.
    DeviationForgotten: M2;
    /// A sample says that it may be a second off.
    DeviationExaggerated: M2;
    /// A sample is of a moment before the call.
    SampleOfAnotherMoment: M2;
    /// Timelines do not know how far apart the device can tell values.
    DifferenceUnlimited: T7;

    // --- Where a user would see it --------------------------------------------------------------
    /// A value read once is lower the next time.
    ValueGoesBack: T1;
    /// A value that was never signalled is read.
    ValueIsInvented: T1;
    /// Points are compared with 32 bits.
    PointsTruncated: T1;
    /// Points are compared as signed differences of 32 bits.
    CyclicCompare32: T1;
    /// Points are compared as signed differences of 64 bits.
    CyclicCompare64: T1;
    /// Success too early: a point counts as reached one value before.
    ReachedOneEarly: T1 T3 T6;
    /// Off by one in ≥: a point counts as reached one value later.
    ReachedOneLate: T1 T6;
    /// A host signal below the value is accepted, and does nothing.
    LateSignalAccepted: T2 T1;
    /// A queue's signal that comes second is accepted, and not made: both are told that they won.
    LoserToldItWon: T2;
    /// A host signal jumps over what is claimed.
    HostSignalIgnoresClaims: T2;
    /// A timed-out wait says that it succeeded.
    TimeoutIsSuccess: T4;
    /// Waits end before their time.
    TimeoutEarly: T4;
    /// Times are cut to whole milliseconds.
    TimeoutInMilliseconds: T4;
    /// A wait that times out fails the timeline.
    TimeoutFailsTheTimeline: T4;
    /// Any is treated as all.
    AnyIsAll: T5;
    /// All is treated as any: a wait ends at the first point reached.
    AllIsAny: T5;
    /// All looks at the first point alone.
    AllIsTheFirst: T5;
    /// Any names the highest index.
    AnyNamesTheLast: T5;
    /// Any prefers a failure to what is reached.
    AnyPrefersFailures: T5;
    /// All waits for the points one by one, and so misses a failure behind an open one.
    AllWaitsInTurn: T5;
    /// All leaves out the points that have failed.
    AllSwallowsFailures: T5;
    /// Lost wakeup: a thread that waits already looks again only when its time is over.
    WakeupLost: T6;
    /// One of several threads that wait is woken; the others look again when their time is over.
    OneOfManyWoken: T6;
    /// A point is never said to be reached.
    ReachedNeverTrue: T1;
    /// A port is polled whenever a point is named.
    PointsAskThePort: H2;
    /// A wait of no time takes some.
    ZeroBlocks: T4;
    /// A wait that is to spin sleeps.
    SpinSleeps: F3;
    /// A wait that is to sleep spins.
    BlockSpins: F3;
    /// A spinning wait polls once.
    SpinPollsOnce: T4 F3;
    /// The last handle of a timeline cancels nothing.
    LastHandleCancelsNothing: T9;
    /// Futures are polled, and never wake.
    FutureNeverWakes: T8;
    /// Cancelled waiter still called: a future that is dropped wakes its task.
    CancelledWaiterStillCalled: T8;
    /// A future of any is one of all.
    FutureOfAnyIsAll: T8;
    /// A future of all is one of any.
    FutureOfAllIsAny: T8;
    /// A future swallows failures.
    FutureSwallowsFailures: T8;
    /// The time starts again with every value that comes.
    TimeoutStartsAgain: T4;
    /// What is claimed counts as pending.
    ClaimedIsPending: T10 Q8;
    /// Pending means reached.
    PendingIsReached: T10;
    /// A future of what is pending comes when it is reached.
    FuturePendingIsReached: T10;
    /// A circle of held submissions is accepted.
    CirclesAccepted: Q4;
    /// Reports of blockers are empty.
    NobodyBlocks: Q4;
    /// Every queue of a device is the first one.
    OneQueueForAll: Q2;
    /// A queue's position is a point that is reached.
    PositionIsReached: Q7;
    /// A claim begins at the highest value taken, whatever its owner waits for.
    ClaimIgnoresOwnWait: T2;
    /// A promise of others has no effect.
    PromiseIsForgotten: T2;
    /// A value that is promised again, or after it was seen, is refused.
    SecondPromiseRefused: T2;
    /// A promise of a value that a held submission has claimed is accepted.
    PromiseIgnoresClaims: T2;
    /// The counter of a timeline that others signal, too, is not read before a signal.
    CounterIsNotChecked: T2;
    /// Others never get the signal of a submission that was skipped.
    NoSignalInPlace: E2;
    /// What is over leaves memory behind: a little with every submission.
    SubmissionsLeak: H2;
    /// Claims of a rejected submission stay.
    RejectedClaimsStay: Q5;
    /// An error of work is swallowed.
    WorkErrorSwallowed: Q5;
    /// A panic of work is swallowed.
    WorkPanicSwallowed: Q6;
    /// Waiting for a queue to be idle does nothing.
    IdleReturnsAtOnce: Q6 Q7 T9 F6;
    /// A point that is held counts as pending where that is required.
    PendingIsNeverRequired: Q8;
    /// A submission that was skipped counts as one that the driver has.
    SkippedLooksSubmitted: E2 T10;
    /// A submission does not tell that it is held.
    HeldIsNotTold: Q2;
    /// Settling does nothing.
    SettleReturnsAtOnce: Q8;
    /// Nothing is ever said to be held.
    NothingIsHeld: Q8;
    /// A fence that was never recorded blocks.
    UnrecordedFenceBlocks: F1;
    /// Wait captured late, on the host: it follows what the fence holds.
    HostWaitCapturedLate: F2;
    /// Wait captured late, on a queue: it follows what the fence holds.
    QueueWaitCapturedLate: F2;
    /// Captured late: the point of a fence follows what the fence holds.
    FencePointCapturedLate: F2;
    /// A queue's wait for a fence adds nothing.
    QueueWaitForgotten: F2;
    /// A fence takes its first record only.
    RecordedOnce: F2 F6;
    /// A query waits.
    QueryBlocks: F3;
    /// A query always says no.
    QueryNeverTrue: F3;
    /// An import closes the descriptor that the fence still has.
    HandleClosedAtOnce: F8 X4;
    /// Handle closed twice: the number of a descriptor is closed once more after the fence has
    /// closed it.
    HandleClosedTwice: F8 X4;
    /// A fence of another device is accepted, and not recorded.
    ForeignFenceAccepted: F4;
    /// An eventfd that is to hear of a point that is reached hears of it when it is pending.
    ToldWhenPending: F8;
    /// Fences take no times, whatever they were made for.
    NoFenceIsTimed: F5 M1;
    /// Times have no sign.
    ElapsedHasNoSign: F5;
    /// A fence without times has elapsed nothing.
    ElapsedWithoutTimes: F5;
    /// A fence that is not complete yet has elapsed nothing.
    ElapsedNotReady: F5;
    /// Fences take no times on a clock, whatever they were made for.
    NoFenceIsClocked: M1;
    /// A fence that is not complete yet has a time.
    TimeNotReady: M1;
    /// Timelines have no timestamps, whatever they were made for.
    NoTimelineIsClocked: M6;
    /// A point that is not reached yet has a time.
    PointTimeNotReached: M6;
    /// A point of a timeline without timestamps has a time.
    PointTimeNotEnabled: M6;
    /// A value without a written time has one.
    PointTimeOfNobody: M6;
    /// A point tells when the latest value was reached.
    PointTimeIsTheLatest: M6;
    /// A point tells when it was asked.
    PointTimeIsOfTheQuestion: M6;
    /// What is forgotten has the time of the oldest signal that is not.
    ForgottenTimeIsInvented: M6;
    /// A failure takes the times of what was reached away.
    FailureTakesTimesAway: M6;
    /// A question for a time waits until there is one.
    PointTimeBlocks: M6;
    /// A fence that was not made with a clock has a time.
    TimeWithoutClock: F5;
    /// Between times of different kinds nothing has elapsed.
    MixedTimingAllowed: F5;
    /// The host's time is some milliseconds late.
    ShiftedMap: M3;
    /// Errors of conversions are half of what they should be.
    ErrorUnderstated: M3;
    /// Errors of conversions are what they were right at the first sample, for ever.
    ErrorForgetsAge: M3;
    /// Errors of conversions are too large to be of use.
    ErrorOverstated: M3;
    /// The device's time is some milliseconds late.
    ShiftedBack: M3;
    /// What is between two times has no sign.
    SinceHasNoSign: M4;
    /// Times of two clocks are subtracted.
    ClocksTakenForOne: M4;
    /// What is between two times of one clock is compared by way of the host's.
    SinceForgetsTheAxis: M4;
    /// Between times of two clocks there is no error.
    SinceWithoutError: M4;
    /// The time that a submission takes begins before its waits.
    StopwatchCountsTheWaits: M5;
    /// The time that a submission takes ends before its work.
    StopwatchLeavesOutTheWork: M5;
    /// What a stopwatch tells has no sign.
    StopwatchHasNoSign: M4;
    /// A stopwatch between two devices says that it compared times of one clock.
    StopwatchForgetsTheAxis: M4;
    /// A stopwatch that was started again and not stopped tells the time before.
    StopwatchTellsTheTimeBefore: F5;
    /// A stopwatch does not refuse a queue of another device.
    StopwatchTakesAnyQueue: E5;
    /// Timed work runs behind a wait that fails.
    TimedWorkRunsBehindFailures: E2;
    /// Swallowed error: a wait for what failed succeeds.
    FailureIsSuccess: E1;
    /// Failing a timeline does nothing.
    FailIsIgnored: E1;
    /// Poison forgotten: a failure is told once.
    FailureToldOnce: E1;
    /// The last cause of a failure is told, not the first.
    LastCauseWins: E1;
    /// A failed timeline does not tell where it stopped.
    FrozenValueForgotten: E1;
    /// A failed timeline still has a value.
    FailedValueIsFine: E1;
    /// What was reached is not reached any more once the timeline has failed.
    FailureTakesReachedBack: E1 T1;
    /// Work behind a failure runs, and signals.
    FailureDoesNotTravel: E2;
    /// The cause of a chain of failures is the last link.
    CauseIsReplaced: E2;
    /// A failure reaches timelines that have nothing to do with it.
    FailureSpreads: E4;
    /// Errors name no object.
    ErrorsNameNobody: E1 E5;
}
