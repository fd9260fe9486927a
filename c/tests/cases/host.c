// Cases on the host's device. They need no driver.

#include "case.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

static int32_t work(void *data) {
  ((counts *)data)->called++;
  return ((counts *)data)->returns;
}

static int32_t work_with_reason(void *data) {
  sl_work_failed("the file is too short");
  return work(data);
}

static sl_device device;
static sl_queue queue;

static sl_timeline line(const char *label) {
  sl_timeline made = {0};
  CHECK("T1", sl_timeline_make(device, label, 0, &made) == SL_SUCCESS);
  return made;
}

// Q2: a submission comes before the signal that it waits for, and is held.
static void held(void) {
  sl_timeline gate = line("gate"), done = line("done");
  sl_point wait = at(gate, 1), signal = at(done, 1);
  counts data = {0};
  sl_submission submission;
  CHECK("Q2", SUBMIT(queue, &submission, WAIT(wait), SIGNAL(signal), .host_work = work,
                     .data = &data, .free = free_counts) == SL_SUCCESS);
  bool was_held = false;
  size_t count = 0;
  CHECK("Q2", sl_submission_was_held(submission, &was_held) == SL_SUCCESS && was_held);
  CHECK("Q2", sl_queue_held(queue, &count) == SL_SUCCESS && count == 1);
  CHECK("Q2", data.called == 0 && data.freed == 0);
  // The text of a time-out has the chain of blockers. The limit is in nanoseconds.
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  CHECK("T4", sl_point_wait(signal, SECOND / 4) == SL_ERROR_TIMED_OUT && says("gate"));
  clock_gettime(CLOCK_MONOTONIC, &end);
  double waited = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
  CHECK("T4", waited >= 0.25);
  CHECK("T4", sl_submission_wait_submitted(submission, 1) == SL_ERROR_TIMED_OUT);
  CHECK("T10", sl_point_wait_pending(signal, 1) == SL_ERROR_TIMED_OUT);
  CHECK("Q8", sl_queue_settle(queue, 1) == SL_ERROR_TIMED_OUT);
  CHECK("Q2", sl_timeline_signal(gate, 1) == SL_SUCCESS);
  CHECK("Q2", sl_point_wait(signal, LONG) == SL_SUCCESS);
  CHECK("Q8", sl_queue_settle(queue, LONG) == SL_SUCCESS);
  CHECK("Q2", sl_submission_wait_submitted(submission, LONG) == SL_SUCCESS);
  CHECK("Q2", sl_submission_wait_finished(submission, LONG) == SL_SUCCESS);
  CHECK("Q2", sl_queue_idle(queue, LONG) == SL_SUCCESS);
  CHECK("Q6", data.called == 1 && data.freed == 1);
  uint64_t value = 0;
  CHECK("T1", sl_timeline_value(done, &value) == SL_SUCCESS && value == 1);
  CHECK("free", sl_submission_free(submission) == SL_SUCCESS);
  CHECK("free", sl_submission_free(submission) == SL_ERROR_INVALID_HANDLE);
  // T2: a value is signalled once.
  CHECK("T2", sl_timeline_signal(gate, 1) == SL_ERROR_INVALID_VALUE);
  CHECK("free", sl_timeline_free(gate) == SL_SUCCESS && sl_timeline_free(done) == SL_SUCCESS);
}

// E1: work that fails fails the timelines of its signals, and waits have the cause.
static void failed(void) {
  sl_timeline broken = line("broken"), later = line("later");
  sl_point signal = at(broken, 1), next = at(later, 1);
  counts data = {0}, skipped = {0};
  data.returns = 7;
  CHECK("E1", SUBMIT(queue, NULL, SIGNAL(signal), .host_work = work, .data = &data,
                     .free = free_counts) == SL_SUCCESS);
  CHECK("E1", sl_point_wait(signal, LONG) == SL_ERROR_FAILED && says("returned 7"));
  // E2: a submission that waits for it is skipped, and its signals fail with the same cause.
  sl_submission submission;
  CHECK("E2", SUBMIT(queue, &submission, WAIT(signal), SIGNAL(next), .host_work = work,
                     .data = &skipped, .free = free_counts) == SL_SUCCESS);
  CHECK("E2", sl_point_wait(next, LONG) == SL_ERROR_FAILED && says("returned 7"));
  CHECK("E2", sl_submission_wait_submitted(submission, LONG) == SL_ERROR_FAILED &&
                  says("returned 7"));
  CHECK("E2", sl_submission_wait_finished(submission, LONG) == SL_SUCCESS);
  CHECK("E2", sl_queue_idle(queue, LONG) == SL_SUCCESS);
  CHECK("E2", data.called == 1 && data.freed == 1 && skipped.called == 0 && skipped.freed == 1);
  CHECK("free", sl_submission_free(submission) == SL_SUCCESS);
  // A text of the program is the cause.
  sl_timeline told = line("told");
  signal = at(told, 1);
  counts quiet = {0};
  CHECK("E1", SUBMIT(queue, NULL, .host_work = work_with_reason, .data = &quiet) == SL_SUCCESS);
  CHECK("E1", SUBMIT(queue, NULL, SIGNAL(signal), .host_work = work, .data = &data) == SL_SUCCESS);
  CHECK("E1", sl_point_wait(signal, LONG) == SL_ERROR_FAILED && !says("too short"));
  CHECK("free", sl_timeline_free(told) == SL_SUCCESS);
  told = line("told");
  signal = at(told, 1);
  CHECK("E1", SUBMIT(queue, NULL, SIGNAL(signal), .host_work = work_with_reason,
                     .data = &data) == SL_SUCCESS);
  CHECK("E1", sl_point_wait(signal, LONG) == SL_ERROR_FAILED && says("the file is too short") &&
                  says("returned 7"));
  CHECK("free", sl_timeline_free(told) == SL_SUCCESS);
  sl_timeline own = line("own");
  CHECK("E1", sl_timeline_fail(own, "no more frames") == SL_SUCCESS);
  CHECK("E1", sl_point_wait(at(own, 1), LONG) == SL_ERROR_FAILED && says("no more frames"));
  bool reached = true;
  CHECK("E1", sl_point_is_reached(at(own, 1), &reached) == SL_ERROR_FAILED);
  CHECK("E1", sl_timeline_signal(own, 1) == SL_ERROR_FAILED);
  CHECK("free", sl_timeline_free(broken) == SL_SUCCESS && sl_timeline_free(later) == SL_SUCCESS);
  CHECK("free", sl_timeline_free(own) == SL_SUCCESS);
}

static int32_t vulkan_work(const sl_vulkan_submission *told, void *data) {
  (void)told;
  return work(data);
}

static int32_t cuda_work(CUstream stream, void *data) {
  (void)stream;
  return work(data);
}

// Q5: a submission that is refused leaves nothing behind, and its data is freed once.
static void refused(void) {
  sl_timeline gate = line("gate");
  counts data = {0};
  sl_point wait = at(gate, 5), signal = at(gate, 4);
  sl_submission submission = {99};
  CHECK("Q5", SUBMIT(queue, &submission, WAIT(wait), SIGNAL(signal), .host_work = work,
                     .data = &data, .free = free_counts) == SL_ERROR_DEADLOCK);
  CHECK("Q5", data.called == 0 && data.freed == 1 && submission.id == 99);
  counts others[8] = {0};
  sl_queue none = {0};
  CHECK("Q5", SUBMIT(none, NULL, .host_work = work, .data = &others[0],
                     .free = free_counts) == SL_ERROR_INVALID_HANDLE);
  CHECK("Q5", SUBMIT(queue, NULL, .wait_count = 1, .host_work = work, .data = &others[1],
                     .free = free_counts) == SL_ERROR_INVALID_ARGUMENT);
  CHECK("Q5", SUBMIT(queue, NULL, .host_work = work, .cuda_work = cuda_work, .data = &others[2],
                     .free = free_counts) == SL_ERROR_INVALID_ARGUMENT);
  CHECK("Q5", SUBMIT(queue, NULL, .vulkan_work = vulkan_work, .data = &others[3],
                     .free = free_counts) == SL_ERROR_UNSUPPORTED);
  CHECK("Q5", SUBMIT(queue, NULL, .cuda_work = cuda_work, .data = &others[4],
                     .free = free_counts) == SL_ERROR_UNSUPPORTED);
  CHECK("Q5", SUBMIT(queue, NULL, .cuda_work = cuda_work, .cuda_commands = 501, .data = &others[5],
                     .free = free_counts) == SL_ERROR_INVALID_ARGUMENT && says("501"));
  CHECK("Q5", SUBMIT(queue, NULL, .reserved = 1, .data = &others[6],
                     .free = free_counts) == SL_ERROR_INVALID_ARGUMENT && says("reserved"));
  struct {
    sl_submit_info info;
    uint64_t later;
  } grown = {.info = {.size = sizeof grown, .data = &others[7], .free = free_counts}, .later = 1};
  CHECK("Q5", sl_queue_submit(queue, &grown.info, NULL) == SL_ERROR_INVALID_ARGUMENT &&
                  says("a later version"));
  for (int i = 0; i < 8; i++) {
    CHECK("Q5", others[i].called == 0 && others[i].freed == 1);
  }
  // What is no structure of this version is not read.
  CHECK("Q5", sl_queue_submit(queue, NULL, NULL) == SL_ERROR_INVALID_ARGUMENT);
  sl_submit_info unset = {.data = &data, .free = free_counts};
  CHECK("Q5", sl_queue_submit(queue, &unset, NULL) == SL_ERROR_INVALID_ARGUMENT && says("size 0"));
  CHECK("Q5", data.freed == 1);
  CHECK("free", sl_timeline_free(gate) == SL_SUCCESS);
}

// Q1: a submission without work waits and signals. Its data is freed when it has finished.
static void empty(void) {
  sl_timeline gate = line("gate"), done = line("done");
  sl_point wait = at(gate, 1), signal = at(done, 1);
  counts data = {0};
  CHECK("Q1", SUBMIT(queue, NULL, WAIT(wait), SIGNAL(signal), .data = &data,
                     .free = free_counts) == SL_SUCCESS);
  CHECK("Q1", data.freed == 0);
  CHECK("Q1", sl_timeline_signal(gate, 1) == SL_SUCCESS);
  CHECK("Q1", sl_point_wait(signal, LONG) == SL_SUCCESS && sl_queue_idle(queue, LONG) == SL_SUCCESS);
  CHECK("Q1", data.freed == 1);
  CHECK("free", sl_timeline_free(gate) == SL_SUCCESS && sl_timeline_free(done) == SL_SUCCESS);
}

static sl_result inner = SL_ERROR_INTERNAL;

static int32_t submits_again(void *data) {
  (void)data;
  inner = SUBMIT(queue, NULL, .waits = NULL);
  return 0;
}

// Work on the host may call the library, and submit to its own queue.
static void reentrant(void) {
  CHECK("Q6", SUBMIT(queue, NULL, .host_work = submits_again) == SL_SUCCESS);
  CHECK("Q6", sl_queue_idle(queue, LONG) == SL_SUCCESS && inner == SL_SUCCESS);
}

static sl_device device_of_work;
static sl_queue queue_of_work;
static sl_timeline line_of_work;

static int32_t frees_all(void *data) {
  bool freed = sl_queue_free(queue_of_work) == SL_SUCCESS &&
               sl_device_free(device_of_work) == SL_SUCCESS &&
               sl_timeline_free(line_of_work) == SL_SUCCESS;
  return freed ? work(data) : 1;
}

// Work may free the last handles of its own queue, device and timeline. It still signals.
static void frees_its_own(void) {
  sl_timeline other;
  counts data = {0};
  CHECK("D1", sl_device_open_host(&device_of_work) == SL_SUCCESS);
  CHECK("Q6", sl_queue_open(device_of_work, SL_QUEUE_COMPUTE, "own", &queue_of_work) == SL_SUCCESS);
  CHECK("T1", sl_timeline_make(device_of_work, "own", 0, &line_of_work) == SL_SUCCESS);
  CHECK("T9", sl_timeline_clone(line_of_work, &other) == SL_SUCCESS);
  sl_point signal = at(line_of_work, 1);
  CHECK("Q6", SUBMIT(queue_of_work, NULL, SIGNAL(signal), .host_work = frees_all, .data = &data,
                     .free = free_counts) == SL_SUCCESS);
  CHECK("Q6", sl_point_wait(at(other, 1), LONG) == SL_SUCCESS);
  CHECK("Q6", freed_once(&data) && data.called == 1);
  CHECK("free", sl_queue_free(queue_of_work) == SL_ERROR_INVALID_HANDLE);
  CHECK("free", sl_timeline_free(other) == SL_SUCCESS);
}

// Handles: freed, null, and of another kind. Arguments: null, and not UTF-8.
static void handles(void) {
  sl_timeline one = line("one"), two = {0};
  CHECK("handle", sl_timeline_clone(one, &two) == SL_SUCCESS && two.id != one.id);
  CHECK("handle", sl_timeline_free(one) == SL_SUCCESS);
  CHECK("handle", sl_timeline_free(one) == SL_ERROR_INVALID_HANDLE);
  CHECK("handle", sl_timeline_signal(one, 1) == SL_ERROR_INVALID_HANDLE && says("freed"));
  // The other handle is the right to signal.
  CHECK("T9", sl_timeline_signal(two, 1) == SL_SUCCESS);
  sl_timeline null = {0}, other = {queue.id};
  CHECK("handle", sl_timeline_free(null) == SL_SUCCESS);
  CHECK("handle", sl_timeline_signal(null, 1) == SL_ERROR_INVALID_HANDLE && says("null"));
  CHECK("handle", sl_timeline_signal(other, 1) == SL_ERROR_INVALID_HANDLE);
  // A new object in the place of a freed one does not revive its handle.
  sl_timeline three = line("three");
  CHECK("handle", sl_timeline_signal(one, 2) == SL_ERROR_INVALID_HANDLE);
  CHECK("argument", sl_timeline_make(device, "x", 0, NULL) == SL_ERROR_INVALID_ARGUMENT);
  // A name or a reason never makes a call fail.
  CHECK("argument", sl_timeline_make(device, "\xff", 0, &null) == SL_SUCCESS);
  CHECK("argument", sl_timeline_fail(null, "ge\xf6""ffnet") == SL_SUCCESS);
  CHECK("argument", sl_point_wait(at(null, 1), LONG) == SL_ERROR_FAILED && says("ffnet"));
  CHECK("argument", sl_work_failed("\xff") == SL_SUCCESS);
  CHECK("free", sl_timeline_free(null) == SL_SUCCESS);
  CHECK("argument", sl_device_open("\xff", &(sl_device){0}) == SL_ERROR_INVALID_ARGUMENT);
  CHECK("argument", sl_queue_open(device, 77, NULL, NULL) == SL_ERROR_INVALID_ARGUMENT);
  sl_queue none;
  CHECK("argument", sl_queue_open(device, 77, NULL, &none) == SL_ERROR_INVALID_ARGUMENT &&
                        says("77"));
  CHECK("T1", sl_timeline_make(device, NULL, UINT64_MAX, &null) == SL_ERROR_INVALID_VALUE);
  CHECK("free", sl_timeline_free(two) == SL_SUCCESS && sl_timeline_free(three) == SL_SUCCESS);
}

static atomic_bool waits;

static void *wait_for_it(void *point) {
  static sl_result result;
  waits = true;
  result = sl_point_wait(*(const sl_point *)point, LONG);
  return &result;
}

// Frees the last handle of a timeline while a thread waits. False if the thread had come too late,
// and found no handle.
static bool cancel_a_wait(sl_timeline timeline) {
  sl_point wait = at(timeline, 9);
  waits = false;
  pthread_t thread;
  pthread_create(&thread, NULL, wait_for_it, &wait);
  struct timespec pause = {0, 1000000};
  do {
    nanosleep(&pause, NULL);
  } while (!waits);
  CHECK("T9", sl_timeline_free(timeline) == SL_SUCCESS);
  void *result;
  pthread_join(thread, &result);
  sl_result found = *(sl_result *)result;
  CHECK("T9", found == SL_ERROR_CANCELLED || found == SL_ERROR_INVALID_HANDLE);
  return found != SL_ERROR_INVALID_HANDLE;
}

static int32_t fails_inside(void *data) {
  sl_work_failed("outer");
  SUBMIT(queue, NULL, .wait_count = 1);
  return ((counts *)data)->returns;
}

// Pointers that are not aligned, and counts that no list has.
static void misaligned(void) {
  sl_point points[2] = {{{0}, 0}, {{0}, 0}};
  void *odd = (char *)points + 1;
  CHECK("argument", sl_wait_all(odd, 1, 0) == SL_ERROR_INVALID_ARGUMENT && says("aligned"));
  CHECK("argument", sl_timeline_value(points[0].timeline, odd) == SL_ERROR_INVALID_ARGUMENT);
  CHECK("argument", sl_device_get_info(device, odd) == SL_ERROR_INVALID_ARGUMENT);
  CHECK("argument", sl_wait_all(points, SIZE_MAX / 4, 0) == SL_ERROR_INVALID_ARGUMENT);
  counts refused = {0};
  CHECK("argument", SUBMIT(queue, odd, .data = &refused, .free = free_counts) ==
                        SL_ERROR_INVALID_ARGUMENT);
  CHECK("argument", refused.freed == 1);
  sl_timeline inner = line("inner");
  sl_point signal = at(inner, 1);
  counts data = {.returns = 3};
  CHECK("E1", SUBMIT(queue, NULL, SIGNAL(signal), .host_work = fails_inside,
                     .data = &data) == SL_SUCCESS);
  CHECK("E1", sl_point_wait(signal, LONG) == SL_ERROR_FAILED && says("outer"));
  CHECK("free", sl_timeline_free(inner) == SL_SUCCESS);
}

// T9: the last handle is freed, and the waits that nothing can end are cancelled.
static void cancelled(void) {
  sl_timeline gate = line("gate"), done = line("done"), second;
  CHECK("T9", sl_timeline_clone(gate, &second) == SL_SUCCESS);
  sl_point wait = at(gate, 9), signal = at(done, 1);
  counts data = {0};
  CHECK("T9", SUBMIT(queue, NULL, WAIT(wait), SIGNAL(signal), .data = &data,
                     .free = free_counts) == SL_SUCCESS);
  CHECK("T9", sl_timeline_free(gate) == SL_SUCCESS);
  CHECK("T9", sl_point_wait(at(second, 9), SECOND / 100) == SL_ERROR_TIMED_OUT);
  CHECK("T9", sl_timeline_free(second) == SL_SUCCESS);
  CHECK("T9", sl_point_wait(signal, LONG) == SL_ERROR_FAILED && says("last handle"));
  // A thread that waits does not keep the timeline.
  bool in_time = false;
  for (int i = 0; i < 1000 && !in_time; i++) {
    in_time = cancel_a_wait(line("last"));
  }
  CHECK("T9", in_time);
  CHECK("T9", sl_queue_idle(queue, LONG) == SL_SUCCESS && data.freed == 1);
  CHECK("free", sl_timeline_free(done) == SL_SUCCESS);
}

// T5: waits for several points.
static void many(void) {
  sl_timeline one = line("one"), two = line("two");
  sl_point points[2] = {at(one, 1), at(two, 1)};
  size_t index = 9;
  CHECK("T5", sl_timeline_signal(two, 1) == SL_SUCCESS);
  CHECK("T5", sl_wait_any(points, 2, LONG, &index) == SL_SUCCESS && index == 1);
  CHECK("T5", sl_wait_all(points, 2, 1) == SL_ERROR_TIMED_OUT);
  CHECK("T5", sl_timeline_signal(one, 1) == SL_SUCCESS);
  CHECK("T5", sl_wait_all(points, 2, LONG) == SL_SUCCESS);
  CHECK("T5", sl_wait_any(NULL, 0, LONG, &index) == SL_ERROR_DEADLOCK);
  CHECK("T5", sl_wait_all(NULL, 0, LONG) == SL_SUCCESS);
  CHECK("free", sl_timeline_free(one) == SL_SUCCESS && sl_timeline_free(two) == SL_SUCCESS);
}

static bool readable(int fd) {
  struct pollfd polled = {fd, POLLIN, 0};
  return poll(&polled, 1, 0) == 1;
}

// T8: an event loop learns of a point by an eventfd.
static void notified(void) {
  sl_timeline one = line("one");
  int event = eventfd(0, EFD_CLOEXEC), mine = dup(event);
  sl_notification notification;
  CHECK("T8", sl_point_notify(at(one, 1), event, &notification) == SL_SUCCESS);
  CHECK("T8", !readable(mine));
  CHECK("T8", sl_timeline_signal(one, 1) == SL_SUCCESS && readable(mine));
  CHECK("T8", sl_notification_free(notification) == SL_SUCCESS);
  // A request that is cancelled adds nothing. One without a handle stays.
  uint64_t value = 0;
  CHECK("T8", read(mine, &value, 8) == 8 && value == 1);
  CHECK("T8", sl_point_notify(at(one, 2), dup(mine), &notification) == SL_SUCCESS);
  CHECK("T8", sl_notification_free(notification) == SL_SUCCESS);
  CHECK("T8", sl_point_notify(at(one, 3), dup(mine), NULL) == SL_SUCCESS);
  CHECK("T8", sl_timeline_signal(one, 2) == SL_SUCCESS && !readable(mine));
  CHECK("T8", sl_timeline_signal(one, 3) == SL_SUCCESS && readable(mine));
  // After an error the descriptor is still the program's.
  int pipes[2];
  CHECK("T8", pipe(pipes) == 0);
  CHECK("T8", sl_point_notify(at(one, 4), pipes[0], NULL) == SL_ERROR_UNSUPPORTED);
  CHECK("T8", close(pipes[0]) == 0 && close(pipes[1]) == 0 && close(mine) == 0);
  CHECK("free", sl_timeline_free(one) == SL_SUCCESS);
}

// F1 to F5: fences, and their times.
static void fences(void) {
  sl_fence plain, start, end;
  bool complete = false;
  int64_t gone = -1;
  CHECK("F1", sl_fence_make(device, SL_TIMING_NONE, "plain", &plain) == SL_SUCCESS);
  CHECK("F1", sl_fence_is_complete(plain, &complete) == SL_SUCCESS && complete);
  CHECK("F5", sl_fence_make(device, SL_TIMING_CLOCK, "start", &start) == SL_SUCCESS);
  CHECK("F5", sl_fence_make(device, SL_TIMING_CLOCK, "end", &end) == SL_SUCCESS);
  CHECK("F5", sl_fence_make(device, 9, "end", &end) == SL_ERROR_INVALID_ARGUMENT);
  CHECK("F5", sl_fence_elapsed(start, end, &gone) == SL_ERROR_NOT_READY);
  CHECK("F5", sl_fence_elapsed(plain, plain, &gone) == SL_ERROR_NO_TIME);
  sl_timeline gate = line("gate");
  sl_point wait = at(gate, 1);
  CHECK("F2", sl_queue_record(queue, start) == SL_SUCCESS);
  CHECK("F2", SUBMIT(queue, NULL, WAIT(wait)) == SL_SUCCESS);
  CHECK("F2", sl_queue_record(queue, end) == SL_SUCCESS);
  CHECK("F2", sl_fence_is_complete(end, &complete) == SL_SUCCESS && !complete);
  CHECK("F2", sl_fence_wait(end, 1) == SL_ERROR_TIMED_OUT);
  // F4: a queue of another device waits for the fence.
  sl_device another;
  sl_queue other;
  counts data = {0};
  CHECK("F4", sl_device_open_host(&another) == SL_SUCCESS);
  CHECK("F4", sl_queue_open(another, SL_QUEUE_COMPUTE, "other", &other) == SL_SUCCESS);
  CHECK("F4", sl_queue_record(other, end) == SL_ERROR_UNSUPPORTED);
  CHECK("F4", sl_queue_wait_fence(other, end) == SL_SUCCESS);
  CHECK("F4", SUBMIT(other, NULL, .host_work = work, .data = &data,
                     .free = free_counts) == SL_SUCCESS);
  CHECK("F4", sl_queue_idle(other, 1) == SL_ERROR_TIMED_OUT && data.called == 0);
  CHECK("F2", sl_timeline_signal(gate, 1) == SL_SUCCESS);
  CHECK("F2", sl_fence_wait(end, LONG) == SL_SUCCESS);
  CHECK("F4", sl_queue_idle(other, LONG) == SL_SUCCESS && data.called == 1);
  CHECK("F5", sl_fence_elapsed(start, end, &gone) == SL_SUCCESS && gone > 0);
  int64_t back = 0;
  CHECK("F5", sl_fence_elapsed(end, start, &back) == SL_SUCCESS && back == -gone);
  sl_time since, began, ended;
  CHECK("M4", sl_fence_since(start, end, &since) == SL_SUCCESS && since.nanoseconds == gone);
  CHECK("M3", sl_fence_time(start, &began) == SL_SUCCESS);
  CHECK("M3", sl_fence_time(end, &ended) == SL_SUCCESS);
  CHECK("M3", ended.nanoseconds - began.nanoseconds == gone);
  CHECK("M3", sl_fence_time(plain, &began) == SL_ERROR_NO_TIME);
  // M6: points of a timeline with times have one.
  sl_timeline timed;
  sl_time point_time;
  struct timespec now;
  CHECK("M6", sl_timeline_make_clocked(device, "timed", 4, &timed) == SL_SUCCESS);
  CHECK("M6", sl_point_time(at(timed, 5), &point_time) == SL_ERROR_NOT_READY);
  CHECK("M6", sl_timeline_signal(timed, 5) == SL_SUCCESS);
  clock_gettime(CLOCK_MONOTONIC, &now);
  CHECK("M6", sl_point_time(at(timed, 5), &point_time) == SL_SUCCESS &&
                  point_time.nanoseconds >= ended.nanoseconds &&
                  point_time.nanoseconds <= now.tv_sec * 1000000000 + now.tv_nsec);
  CHECK("M6", sl_point_time(at(gate, 1), &point_time) == SL_ERROR_NO_TIME);
  CHECK("free", sl_timeline_free(timed) == SL_SUCCESS && sl_timeline_free(gate) == SL_SUCCESS);
  CHECK("free", sl_fence_free(plain) == SL_SUCCESS && sl_fence_free(start) == SL_SUCCESS);
  CHECK("free", sl_fence_free(end) == SL_SUCCESS && sl_queue_free(other) == SL_SUCCESS);
  CHECK("free", sl_device_free(another) == SL_SUCCESS);
}

// X1: two devices without a native object are linked through the host.
static void links(void) {
  sl_device another;
  sl_link link = {0};
  uint32_t mechanism = 99;
  char why[8] = "", whole[1024];
  size_t length = 0, all = 0;
  CHECK("X1", sl_device_open_host(&another) == SL_SUCCESS);
  CHECK("X1", sl_link_connect(device, another, &link) == SL_SUCCESS);
  CHECK("X1", sl_link_mechanism(link, &mechanism) == SL_SUCCESS &&
                  mechanism == SL_MECHANISM_ENGINE);
  CHECK("X1", strcmp(sl_mechanism_name(mechanism), "through the engine on the host") == 0);
  CHECK("X1", strcmp(sl_mechanism_name(77), "unknown") == 0);
  // A text that is too long is cut off.
  CHECK("X1", sl_link_why(link, NULL, 0, &length) == SL_SUCCESS && length > sizeof why);
  CHECK("X1", sl_link_why(link, why, sizeof why, &all) == SL_SUCCESS && all == length &&
                  strlen(why) < sizeof why);
  CHECK("X1", sl_link_why(link, whole, sizeof whole, NULL) == SL_SUCCESS &&
                  strlen(whole) == length && strncmp(whole, why, strlen(why)) == 0);
  CHECK("argument", sl_link_why(link, NULL, 8, NULL) == SL_ERROR_INVALID_ARGUMENT);
  sl_timeline line;
  CHECK("X1", sl_link_timeline(link, "line", 6, &line) == SL_SUCCESS);
  CHECK("T1", sl_timeline_signal(line, 6) == SL_ERROR_INVALID_VALUE);
  // X8: memory of both.
  sl_buffer left, right, view;
  sl_buffer_info one = {.size = sizeof one}, two = {.size = sizeof two};
  CHECK("X8", sl_link_buffer(link, 3, &left, &right) == SL_ERROR_UNSUPPORTED);
  CHECK("X8", sl_link_buffer(link, 64, &left, &right) == SL_SUCCESS);
  CHECK("X8", sl_buffer_view(left, 16, 8, &view) == SL_SUCCESS);
  CHECK("X8", sl_buffer_view(left, 60, 8, &view) == SL_ERROR_UNSUPPORTED);
  CHECK("X8", sl_buffer_get_info(right, &one) == SL_SUCCESS && one.bytes == 64);
  CHECK("X8", sl_buffer_get_info(view, &two) == SL_SUCCESS && two.bytes == 8);
  CHECK("X8", (char *)two.host_pointer == (char *)one.host_pointer + 16);
  CHECK("X8", one.vulkan_buffer == NULL && one.cuda_pointer == 0);
  sl_buffer copy;
  CHECK("X8", sl_buffer_make(device, 8, &copy) == SL_SUCCESS);
  ((uint32_t *)two.host_pointer)[1] = 77;
  CHECK("X8", sl_buffer_copy(view, copy) == SL_SUCCESS);
  CHECK("X8", sl_buffer_get_info(copy, &one) == SL_SUCCESS &&
                  ((uint32_t *)one.host_pointer)[1] == 77);
  CHECK("X8", sl_buffer_copy(left, copy) == SL_ERROR_INVALID_ARGUMENT);
  int barrier = 0;
  bool needed;
  CHECK("X8", sl_buffer_acquire_barrier(left, 0, &barrier, &needed) == SL_ERROR_UNSUPPORTED);
  sl_image_info image = {.size = sizeof image, .image_type = 1, .format = 37};
  sl_image views[2];
  CHECK("X9", sl_link_image(link, &image, &views[0], &views[1]) == SL_ERROR_UNSUPPORTED);
  image.format = 1;
  CHECK("X9", sl_link_image(link, &image, &views[0], &views[1]) == SL_ERROR_INVALID_ARGUMENT);
  CHECK("free", sl_buffer_free(left) == SL_SUCCESS && sl_buffer_free(right) == SL_SUCCESS);
  CHECK("free", sl_buffer_free(view) == SL_SUCCESS && sl_buffer_free(copy) == SL_SUCCESS);
  CHECK("free", sl_link_free(link) == SL_SUCCESS && sl_timeline_free(line) == SL_SUCCESS);
  CHECK("free", sl_device_free(another) == SL_SUCCESS);
}

// What the host's device cannot do is refused.
static void unsupported(void) {
  sl_timeline line_of_host = line("line");
  sl_claim claim;
  sl_lock lock;
  VkSemaphore semaphore;
  counts owner = {0};
  sl_device none;
  CHECK("E5", sl_timeline_claim(line_of_host, 1, 0, &claim) == SL_ERROR_UNSUPPORTED);
  CHECK("E5", sl_queue_lock(queue, NULL, &lock) == SL_ERROR_UNSUPPORTED);
  CHECK("E5", sl_timeline_vk_semaphore(line_of_host, device, &semaphore) == SL_ERROR_UNSUPPORTED);
  sl_vulkan_handles handles = {.size = sizeof handles};
  CHECK("E5", sl_device_get_vulkan(device, &handles) == SL_ERROR_UNSUPPORTED);
  sl_vulkan_adopt_info info = {.size = sizeof info};
  CHECK("D4", sl_device_adopt_vulkan(&info, &owner, free_counts, &none) ==
                  SL_ERROR_INVALID_ARGUMENT);
  CHECK("D4", owner.freed == 1);
  info.size = 8;
  CHECK("D4", sl_device_adopt_vulkan(&info, NULL, NULL, &none) == SL_ERROR_INVALID_ARGUMENT &&
                  says("size 8"));
  // Fields that this version does not know are refused, unless they are 0.
  struct {
    sl_vulkan_adopt_info info;
    uint64_t later[2];
  } grown = {.info = {.size = sizeof grown}};
  CHECK("D4", sl_device_adopt_vulkan(&grown.info, NULL, NULL, &none) == SL_ERROR_INVALID_ARGUMENT &&
                  says("get_instance_proc_addr"));
  grown.later[1] = 1;
  CHECK("D4", sl_device_adopt_vulkan(&grown.info, NULL, NULL, &none) == SL_ERROR_INVALID_ARGUMENT &&
                  says("a later version"));
  uint8_t uuid[16] = {0};
  CHECK("D2", sl_device_open_uuid(SL_API_HOST, uuid, &none) == SL_ERROR_INVALID_ARGUMENT);
  CHECK("D2", sl_device_open_uuid(SL_API_VULKAN, NULL, &none) == SL_ERROR_INVALID_ARGUMENT);
  CHECK("D2", sl_device_open_uuid(SL_API_VULKAN, uuid, &none) == SL_ERROR_UNAVAILABLE);
  CHECK("free", sl_timeline_free(line_of_host) == SL_SUCCESS);
}

static atomic_bool ended;

static void *use_tables(void *timeline) {
  bool reached;
  while (!ended) {
    sl_timeline made;
    sl_point_is_reached(at(*(sl_timeline *)timeline, 1), &reached);
    if (sl_timeline_make(device, "table", 0, &made) == SL_SUCCESS) {
      sl_timeline_free(made);
    }
  }
  return NULL;
}

// A child of a fork during calls of other threads makes objects of its own. No table is locked.
static void forked_during_calls(void) {
#ifdef SANITIZED
  // The sanitizer's own allocator may be locked in a child.
  return;
#endif
  sl_timeline one = line("one");
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) {
    pthread_create(&threads[i], NULL, use_tables, &one);
  }
  int good = 0, forks = 60;
  for (int i = 0; i < forks; i++) {
    pid_t child = fork();
    if (child == 0) {
      alarm(20);
      sl_device own;
      sl_timeline mine;
      bool holds = sl_timeline_signal(one, 1) == SL_ERROR_MADE_BEFORE_FORK &&
                   sl_device_open_host(&own) == SL_SUCCESS &&
                   sl_timeline_make(own, "mine", 0, &mine) == SL_SUCCESS &&
                   sl_timeline_signal(mine, 1) == SL_SUCCESS;
      _exit(holds ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  ended = true;
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i], NULL);
  }
  CHECK("fork", good == forks);
  CHECK("free", sl_timeline_free(one) == SL_SUCCESS);
}

// A forked child refuses what its parent has made.
static void forked(void) {
  sl_timeline one = line("one");
  pid_t child = fork();
  if (child == 0) {
    _exit(sl_timeline_signal(one, 1) == SL_ERROR_MADE_BEFORE_FORK ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK("fork", WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK("free", sl_timeline_free(one) == SL_SUCCESS);
}

int main(void) {
  CHECK("version", sl_version() == SYNCLINE_VERSION_MAJOR * 1000000 + SYNCLINE_VERSION_MINOR * 1000 +
                                       SYNCLINE_VERSION_PATCH);
  CHECK("version", strcmp(sl_result_name(SL_ERROR_TIMED_OUT), "SL_ERROR_TIMED_OUT") == 0);
  CHECK("version", strcmp(sl_result_name(5), "unknown") == 0);
  char report[4096];
  CHECK("D2", sl_report(report, sizeof report, NULL) == SL_SUCCESS && strstr(report, "host") != NULL);
  CHECK("D1", sl_device_open_host(&device) == SL_SUCCESS);
  CHECK("D1", sl_queue_open(device, SL_QUEUE_COMPUTE, "queue", &queue) == SL_SUCCESS);
  sl_device_info info = {.size = sizeof info};
  CHECK("D2", sl_device_get_info(device, &info) == SL_SUCCESS && info.api == SL_API_HOST &&
                  strstr(info.name, "host") != NULL);
  info.size = 1;
  CHECK("D2", sl_device_get_info(device, &info) == SL_ERROR_INVALID_ARGUMENT && says("size 1"));
  CHECK("D1", sl_device_check(device) == SL_SUCCESS);
  held();
  failed();
  refused();
  empty();
  reentrant();
  frees_its_own();
  handles();
  misaligned();
  cancelled();
  many();
  notified();
  fences();
  links();
  unsupported();
  forked();
  forked_during_calls();
  CHECK("free", sl_queue_free(queue) == SL_SUCCESS);
  CHECK("free", sl_device_free(device) == SL_SUCCESS);
  return done();
}
