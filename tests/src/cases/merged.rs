//! Former ids of cases that another case has taken over, so that recordings stay comparable.

/// Each former id, and the id of the case that shows the same.
const MERGED: &[(&str, &str)] = &[
    (
        "binary.imports_leave_nothing",
        "binary.duplicated_and_sent_descriptors",
    ),
    (
        "descriptor.already_signalled",
        "descriptor.a_readiness_seen_stays",
    ),
    (
        "descriptor.pending_is_told_before_reached",
        "descriptor.eventfd_hears_of_points",
    ),
    (
        "handle.every_export_is_new",
        "handle.many_exports_one_counter",
    ),
    ("handle.nothing_leaks", "handle.imports_by_the_thousands"),
    // There are no such handles any more.
    (
        "handle.of_windows_is_refused",
        "handle.tells_its_transference",
    ),
    (
        "clocks.a_clock_that_never_settles_is_sampled",
        "clocks.sampled_in_bounded_time",
    ),
    (
        "clocks.a_silent_clock_costs_no_time",
        "clocks.bounds_hold_under_noise",
    ),
    ("clocks.counters_come_round", "clocks.intervals_are_exact"),
    (
        "clocks.precision_does_not_decay",
        "clocks.intervals_are_exact",
    ),
    ("clocks.there_and_back", "clocks.bounds_hold_under_noise"),
    (
        "clocks.time_after_recording_again",
        "clocks.stamps_are_used_again",
    ),
    (
        "cost.questions_do_not_grow_with_what_is_done",
        "cost.times_do_not_grow_with_what_is_done",
    ),
    ("cycle.two_queues", "cycle.long_ring"),
    (
        "failure.chains_keep_the_original_cause",
        "failure.long_chain",
    ),
    (
        "failure.fork_reaches_every_branch",
        "failure.random_dag_fails_like_the_model",
    ),
    (
        "failure.join_keeps_the_first_cause",
        "failure.random_dag_fails_like_the_model",
    ),
    (
        "failure.known_before_the_call",
        "failure.queue_position_still_advances",
    ),
    (
        "failure.racing_causes_leave_one",
        "failure.races_with_a_signal",
    ),
    (
        "fence.a_queue_waits_for_what_it_holds",
        "fence.random_records_against_a_model",
    ),
    (
        "fence.dropped_or_recorded_again_while_pending",
        "fence.dropped_while_waited_for",
    ),
    ("fence.elapsed", "time.bracketed_by_the_host"),
    (
        "fence.elapsed_errors",
        "fence.elapsed_after_recording_again",
    ),
    (
        "fence.elapsed_from_many_threads",
        "time.ordered_along_a_queue",
    ),
    ("fence.many_waited_together", "stress.10000_fences_twice"),
    (
        "fence.recorded_on_several_queues_in_turn",
        "fence.random_records_against_a_model",
    ),
    (
        "fence.records_in_a_row",
        "fence.random_records_against_a_model",
    ),
    (
        "fence.rerecorded_behind_a_gate",
        "fence.random_records_against_a_model",
    ),
    (
        "fence.rerecording_moves_no_wait",
        "fence.random_records_against_a_model",
    ),
    (
        "future.any_wakes_for_each_index",
        "future.any_and_all_of_both_sides",
    ),
    (
        "future.many_on_one_point",
        "future.woken_by_every_kind_of_signal",
    ),
    (
        "queue.64_waiting_queues",
        "queue.1024_waiting_released_by_a_queue",
    ),
    (
        "queue.dropped_queue_of_a_waiting_chain",
        "queue.dropped_with_work_in_flight",
    ),
    (
        "queue.every_signal_of_a_list_is_made",
        "queue.256_waits_and_256_signals",
    ),
    (
        "queue.last_signal_covers_all_earlier_work",
        "queue.own_work_runs_in_order",
    ),
    ("queue.many_to_one", "queue.256_waits_and_256_signals"),
    (
        "queue.more_queues_than_the_driver_has",
        "queue.1024_waiting_released_by_a_queue",
    ),
    (
        "queue.one_line_from_many_queues",
        "timeline.work_ends_out_of_value_order",
    ),
    ("queue.one_to_many", "queue.every_consumer_copies_the_data"),
    (
        "queue.pending_while_the_device_stands_still",
        "queue.nothing_ends_before_the_gate_opens",
    ),
    (
        "queue.ping_pong_submitted_backwards",
        "queue.copies_through_all_queues_backwards",
    ),
    (
        "rejected.claims_are_withdrawn",
        "rejected.after_it_has_recorded",
    ),
    (
        "rejected.held_fails_its_signals",
        "work.what_it_owns_is_dropped_once",
    ),
    (
        "rejected.its_signals_stay_away",
        "rejected.after_it_has_recorded",
    ),
    (
        "rejected.one_bad_signal_of_several",
        "rejected.every_wrong_submission",
    ),
    (
        "rejected.signal_behind_own_wait",
        "rejected.every_wrong_submission",
    ),
    (
        "rejected.signal_twice_in_one_submission",
        "rejected.every_wrong_submission",
    ),
    (
        "stress.drops_under_load",
        "stress.64_threads_of_random_operations",
    ),
    (
        "stress.producers_and_one_consumer",
        "wait.overlapping_lists_from_many_threads",
    ),
    (
        "stress.values_leave_nothing_behind",
        "cost.memory_follows_what_is_outstanding",
    ),
    (
        "timeline.all_ones_is_no_value",
        "timeline.up_to_the_largest_value",
    ),
    (
        "timeline.claims_hold_while_held",
        "timeline.host_signal_in_the_gap",
    ),
    (
        "timeline.difference_beyond_the_limit",
        "timeline.jumps_by_the_limit_under_readers",
    ),
    (
        "timeline.dropped_claim_is_withdrawn",
        "timeline.random_claims_against_a_model",
    ),
    (
        "timeline.far_values_are_not_reached",
        "timeline.across_31_and_32_bits",
    ),
    (
        "timeline.host_signal_never_goes_back",
        "timeline.up_to_the_largest_value",
    ),
    (
        "timeline.last_handle_cancels_uncovered_waits",
        "wait.last_handle_wakes_blocked_threads",
    ),
    (
        "timeline.last_handle_keeps_covered_waits",
        "timeline.dropped_in_many_orders",
    ),
    (
        "timeline.monotone_under_readers",
        "timeline.across_31_and_32_bits",
    ),
    (
        "timeline.points_outlive_everything",
        "timeline.dropped_in_many_orders",
    ),
    (
        "timeline.ring_of_buffers",
        "queue.random_dag_against_a_model",
    ),
    (
        "timeline.signals_complete_in_value_order",
        "timeline.work_ends_out_of_value_order",
    ),
    (
        "timeline.submitted_out_of_value_order",
        "queue.random_dag_against_a_model",
    ),
    ("timeline.two_threads_ping_pong", "stress.relay_of_threads"),
    (
        "wait.a_timed_out_wait_changes_nothing",
        "wait.timeouts_race_with_signals",
    ),
    (
        "wait.all_fails_at_the_first_failure",
        "failure.wakes_blocked_waiters",
    ),
    (
        "wait.any_names_the_lowest_reached",
        "wait.random_lists_against_a_model",
    ),
    (
        "wait.any_prefers_reached_to_failed",
        "wait.random_lists_against_a_model",
    ),
    (
        "wait.any_wakes_for_each_index",
        "wait.mixed_devices_in_one_list",
    ),
    (
        "wait.current_and_lesser_values",
        "queue.waits_below_the_signalled_value",
    ),
    ("wait.empty_lists", "wait.duplicates_and_empty_points"),
    ("wait.every_mode", "wait.spins_or_sleeps_as_told"),
    (
        "wait.every_thread_wakes",
        "wait.overlapping_lists_from_many_threads",
    ),
    ("wait.held_is_not_pending", "queue.settle_and_held"),
    (
        "wait.hundred_timelines_at_random_values",
        "wait.overlapping_lists_from_many_threads",
    ),
    (
        "wait.others_wait_for_ever",
        "wait.wakes_soon_whoever_else_waits",
    ),
    (
        "wait.times_out_never_early",
        "wait.time_out_says_what_it_saw",
    ),
    (
        "wait.wakes_on_any_signal_past_its_value",
        "wait.overlapping_lists_from_many_threads",
    ),
    ("work.is_called_once", "work.what_it_owns_is_dropped_once"),
    ("work.other_queue_from_inside", "work.may_call_the_engine"),
    (
        "work.panic_is_a_failure",
        "work.error_and_panic_text_survive",
    ),
    (
        "work.what_it_keeps_may_use_its_queue_when_it_goes",
        "work.what_it_keeps_may_call_the_driver_when_it_goes",
    ),
];

/// Returns the id of the case that shows what `id` shows or once showed.
#[must_use]
pub fn current(id: &str) -> &str {
    let found = MERGED.iter().find(|(former, _)| *former == id);
    found.map_or(id, |(_, current)| current)
}

/// Returns true if the id of a case, or one of its former ids, contains `part`.
#[must_use]
pub fn is_named(id: &str, part: &str) -> bool {
    let former = MERGED.iter().filter(|(_, current)| *current == id);
    id.contains(part) || former.into_iter().any(|(former, _)| former.contains(part))
}

/// Returns all former ids.
pub fn former() -> impl Iterator<Item = &'static str> {
    MERGED.iter().map(|(former, _)| *former)
}
