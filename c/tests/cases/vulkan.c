// Cases on an adopted VkDevice, for each physical device of the machine.

#include "../../examples/claim.h"
#include "engine.h"

#include <pthread.h>

static engine own;
static sl_device device;
static sl_queue queue;

static sl_timeline line(const char *label) {
  sl_timeline made = {0};
  CHECK("T1", sl_timeline_make(device, label, 0, &made) == SL_SUCCESS);
  return made;
}

typedef struct {
  counts counts;
  uint32_t waits, signals;
  sl_result inner, locked;
} data;

static void free_data(void *all) { free_counts(&((data *)all)->counts); }

static int32_t submit(const sl_vulkan_submission *told, void *all) {
  data *own_data = all;
  own_data->counts.called++;
  own_data->waits = told->wait_count;
  own_data->signals = told->signal_count;
  if (own_data->counts.returns != 0) {
    return own_data->counts.returns;
  }
  own_data->inner = SUBMIT(queue, NULL, .waits = NULL);
  sl_lock lock;
  own_data->locked = sl_queue_lock(queue, NULL, &lock);
  return submit_as_told(told, NULL);
}

static void adopt(counts *owner) {
  sl_vulkan_queue queues = {own.queue, own.family, 0};
  sl_vulkan_adopt_info info = adopt_info(&own, &queues);
  CHECK("D4", own.offer.extension_count <= SL_VULKAN_EXTENSIONS);
  CHECK("D4", sl_device_adopt_vulkan(&info, owner, free_counts, &device) == SL_SUCCESS);
  // The same handles come back.
  sl_vulkan_handles handles = {.size = sizeof handles};
  CHECK("D4", sl_device_get_vulkan(device, &handles) == SL_SUCCESS &&
                  handles.device == own.device && handles.instance == own.instance &&
                  handles.physical_device == own.physical);
  CHECK("D4", memcmp(&handles.enabled, &own.offer.enabled, sizeof handles.enabled) == 0);
  sl_device_info told = {.size = sizeof told};
  CHECK("D2", sl_device_get_info(device, &told) == SL_SUCCESS && told.api == SL_API_VULKAN);
  CHECK("D2", told.has_uuid == own.offer.has_uuid && memcmp(told.uuid, own.offer.uuid, 16) == 0);
  CUcontext context;
  CHECK("D4", sl_device_get_cuda(device, &context) == SL_ERROR_UNSUPPORTED);
  CHECK("D4", sl_queue_open_vulkan(device, own.family, 7, NULL, &queue) == SL_ERROR_UNSUPPORTED);
  CHECK("D4", sl_queue_open_vulkan(device, own.family, 0, "main", &queue) == SL_SUCCESS);
  // What is refused frees its owner, too.
  counts refused[2] = {0};
  sl_device none;
  info.queues = NULL;
  CHECK("D4", sl_device_adopt_vulkan(&info, &refused[0], free_counts, &none) ==
                  SL_ERROR_INVALID_ARGUMENT);
  info.device = NULL;
  CHECK("D4", sl_device_adopt_vulkan(&info, &refused[1], free_counts, &none) ==
                  SL_ERROR_INVALID_ARGUMENT);
  CHECK("D4", refused[0].freed == 1 && refused[1].freed == 1 && owner->freed == 0);
  // The device of this UUID can be opened once more.
  CHECK("D2", sl_device_open_uuid(SL_API_VULKAN, own.offer.uuid, &none) == SL_SUCCESS);
  CHECK("free", sl_device_free(none) == SL_SUCCESS);
}

// Q2 and Q8: the program's vkQueueSubmit is held until its wait may go to the driver.
static void raw(void) {
  sl_timeline gate = line("gate"), drawn = line("drawn");
  sl_point wait = at(gate, 1), signal = at(drawn, 1);
  data all = {0};
  sl_submission submission;
  CHECK("Q2", SUBMIT(queue, &submission, WAIT(wait), SIGNAL(signal), .vulkan_work = submit,
                     .data = &all, .free = free_data) == SL_SUCCESS);
  CHECK("Q2", all.counts.called == 0);
  CHECK("Q2", sl_timeline_signal(gate, 1) == SL_SUCCESS);
  CHECK("Q2", sl_submission_wait_submitted(submission, LONG) == SL_SUCCESS);
  CHECK("Q8", all.counts.called == 1 && all.signals >= 1);
  CHECK("Q6", all.inner == SL_ERROR_DEADLOCK && all.locked == SL_ERROR_DEADLOCK);
  CHECK("Q8", sl_point_wait(signal, LONG) == SL_SUCCESS);
  CHECK("Q8", sl_queue_idle(queue, LONG) == SL_SUCCESS && all.counts.freed == 1);
  // A wait for a signal that is with the driver has a semaphore.
  data next = {0};
  sl_point again = at(drawn, 2);
  all = (data){0};
  CHECK("Q8", SUBMIT(queue, NULL, WAIT(signal), SIGNAL(again), .vulkan_work = submit, .data = &all,
                     .free = free_data) == SL_SUCCESS);
  CHECK("Q8", all.counts.called == 1);
  sl_point third = at(gate, 2);
  CHECK("Q8", SUBMIT(queue, NULL, WAIT(again), SIGNAL(third), .vulkan_work = submit, .data = &next,
                     .free = free_data) == SL_SUCCESS);
  CHECK("Q8", next.counts.called == 1);
  CHECK("Q8", sl_point_wait(third, LONG) == SL_SUCCESS && sl_queue_idle(queue, LONG) == SL_SUCCESS);
  CHECK("Q8", all.counts.freed == 1 && next.counts.freed == 1);
  CHECK("free", sl_submission_free(submission) == SL_SUCCESS);
  CHECK("free", sl_timeline_free(gate) == SL_SUCCESS && sl_timeline_free(drawn) == SL_SUCCESS);
}

static int32_t submit_with_reason(const sl_vulkan_submission *told, void *all) {
  (void)told;
  (void)all;
  sl_work_failed("the frame is too large");
  return VK_ERROR_OUT_OF_HOST_MEMORY;
}

// Q5 and E1: an error of the program's vkQueueSubmit. E2: a submission that is skipped.
static void raw_fails(void) {
  sl_timeline gate = line("gate"), drawn = line("drawn");
  sl_point wait = at(gate, 1), signal = at(drawn, 1);
  data all = {.counts.returns = VK_ERROR_OUT_OF_DEVICE_MEMORY};
  CHECK("Q5", SUBMIT(queue, NULL, SIGNAL(signal), .vulkan_work = submit, .data = &all,
                     .free = free_data) == SL_ERROR_DRIVER && says("OUT_OF_DEVICE_MEMORY"));
  CHECK("Q5", sl_queue_idle(queue, LONG) == SL_SUCCESS);
  CHECK("Q5", all.counts.called == 1 && all.counts.freed == 1);
  CHECK("Q5", SUBMIT(queue, NULL, SIGNAL(signal), .vulkan_work = submit_with_reason) ==
                  SL_ERROR_DRIVER);
  CHECK("Q5", says("OUT_OF_HOST_MEMORY") && says("the frame is too large"));
  // The value is free again. A held submission fails its timelines.
  data held = {.counts.returns = VK_ERROR_OUT_OF_HOST_MEMORY}, skipped = {0};
  sl_submission submission;
  CHECK("Q5", SUBMIT(queue, &submission, WAIT(wait), SIGNAL(signal), .vulkan_work = submit,
                     .data = &held, .free = free_data) == SL_SUCCESS);
  CHECK("E1", sl_timeline_signal(gate, 1) == SL_SUCCESS);
  CHECK("E1", sl_point_wait(signal, LONG) == SL_ERROR_FAILED && says("OUT_OF_HOST_MEMORY"));
  CHECK("E1", sl_submission_wait_submitted(submission, LONG) == SL_ERROR_FAILED &&
                  says("OUT_OF_HOST_MEMORY"));
  CHECK("E1", sl_queue_idle(queue, LONG) == SL_SUCCESS);
  CHECK("E1", held.counts.called == 1 && held.counts.freed == 1);
  sl_timeline reasoned = line("reasoned");
  sl_point late = at(gate, 2), broken = at(reasoned, 1);
  CHECK("E1", SUBMIT(queue, NULL, WAIT(late), SIGNAL(broken),
                     .vulkan_work = submit_with_reason) == SL_SUCCESS);
  CHECK("E1", sl_timeline_signal(gate, 2) == SL_SUCCESS);
  CHECK("E1", sl_point_wait(broken, LONG) == SL_ERROR_FAILED && says("the frame is too large"));
  CHECK("free", sl_timeline_free(reasoned) == SL_SUCCESS);
  sl_timeline later = line("later");
  sl_point next = at(later, 1);
  CHECK("E2", SUBMIT(queue, NULL, WAIT(signal), SIGNAL(next), .vulkan_work = submit,
                     .data = &skipped, .free = free_data) == SL_SUCCESS);
  CHECK("E2", sl_point_wait(next, LONG) == SL_ERROR_FAILED && says("OUT_OF_HOST_MEMORY"));
  CHECK("E2", skipped.counts.called == 0 && freed_once(&skipped.counts));
  CHECK("free", sl_submission_free(submission) == SL_SUCCESS);
  CHECK("free", sl_timeline_free(gate) == SL_SUCCESS && sl_timeline_free(drawn) == SL_SUCCESS);
  CHECK("free", sl_timeline_free(later) == SL_SUCCESS);
}

typedef struct {
  counts counts;
  sl_queue other;
  sl_result submitted;
} caller;

// A free function that calls the library.
static void free_and_call(void *all) {
  caller *own_data = all;
  own_data->submitted = SUBMIT(own_data->other, NULL, .waits = NULL);
  free_counts(&own_data->counts);
}

static int32_t submit_a_part(const sl_vulkan_submission *told, void *all) {
  sl_vulkan_submission part = {.queue = told->queue};
  VULKAN(submit_as_told(&part, NULL));
  ((caller *)all)->counts.called++;
  return VK_ERROR_OUT_OF_HOST_MEMORY;
}

static int32_t submit_suboptimal(const sl_vulkan_submission *told, void *all) {
  ((caller *)all)->counts.called++;
  VkResult result = submit_as_told(told, NULL);
  return result == VK_SUCCESS ? VK_SUBOPTIMAL_KHR : result;
}

// Q6: data ends after what was submitted, and never while the VkQueue is locked.
static void raw_data(void) {
  sl_timeline drawn = line("drawn");
  sl_point signal = at(drawn, 1);
  caller partly = {.other = queue, .submitted = SL_ERROR_INTERNAL}, odd = {.other = queue};
  CHECK("Q5", SUBMIT(queue, NULL, SIGNAL(signal), .vulkan_work = submit_a_part, .data = &partly,
                     .free = free_and_call) == SL_ERROR_DRIVER);
  CHECK("Q6", sl_queue_idle(queue, LONG) == SL_SUCCESS && freed_once(&partly.counts));
  CHECK("Q6", partly.counts.called == 1 && partly.submitted != SL_ERROR_INTERNAL);
  // Results above 0 are successes of Vulkan.
  CHECK("Q8", SUBMIT(queue, NULL, SIGNAL(signal), .vulkan_work = submit_suboptimal, .data = &odd,
                     .free = free_and_call) == SL_SUCCESS);
  CHECK("Q8", sl_point_wait(signal, LONG) == SL_SUCCESS);
  CHECK("Q6", sl_queue_idle(queue, LONG) == SL_SUCCESS && odd.counts.freed == 1);
  CHECK("free", sl_timeline_free(drawn) == SL_SUCCESS);
}

static sl_claim claim_of_callback;
static sl_result claimed_again = SL_ERROR_INTERNAL;

static int32_t submit_claim_again(const sl_vulkan_submission *told, void *all) {
  claimed_again = sl_claim_submitted(claim_of_callback, device);
  ((counts *)all)->called++;
  return submit_as_told(told, NULL);
}

static atomic_bool waits;

static void *wait_ready(void *claim) {
  static sl_result result;
  waits = true;
  result = sl_claim_wait_ready(*(const sl_claim *)claim, SECOND / 5);
  return &result;
}

// T2: a thread that waits for a claim does not keep it.
static void freed_claim(void) {
  sl_timeline drawn = line("drawn");
  sl_claim one, two;
  CHECK("T2", sl_timeline_claim(drawn, 1, 0, &one) == SL_SUCCESS);
  CHECK("T2", sl_timeline_claim(drawn, 2, 0, &two) == SL_SUCCESS);
  sl_claim waited = two;
  pthread_t thread;
  pthread_create(&thread, NULL, wait_ready, &waited);
  struct timespec pause = {0, 20000000};
  do {
    nanosleep(&pause, NULL);
  } while (!waits);
  CHECK("T2", sl_claim_free(two) == SL_SUCCESS);
  CHECK("T2", sl_timeline_claim(drawn, 2, 0, &two) == SL_SUCCESS);
  void *result;
  pthread_join(thread, &result);
  CHECK("T2", sl_claim_free(one) == SL_SUCCESS && sl_claim_free(two) == SL_SUCCESS);
  CHECK("free", sl_timeline_free(drawn) == SL_SUCCESS);
}

static void *unlock_elsewhere(void *lock) {
  static sl_result result;
  result = sl_queue_unlock(*(const sl_lock *)lock);
  return &result;
}

// D5: while the program has the queue locked, submissions are held.
static void locked(void) {
  sl_timeline done = line("done");
  sl_lock_info info = {.size = sizeof info};
  sl_lock lock;
  sl_point signal = at(done, 1);
  CHECK("D5", sl_queue_lock(queue, &info, &lock) == SL_SUCCESS);
  CHECK("D5", info.vulkan_queue == own.queue && info.vulkan_family == own.family &&
                  info.vulkan_index == 0 && info.cuda_stream == NULL && info.held == 0);
  sl_submission submission;
  bool held = false;
  CHECK("D5", SUBMIT(queue, &submission, SIGNAL(signal)) == SL_SUCCESS);
  CHECK("D5", sl_submission_was_held(submission, &held) == SL_SUCCESS && held);
  CHECK("D5", sl_point_wait(signal, SECOND / 100) == SL_ERROR_TIMED_OUT);
  // No thread locks a VkQueue twice, also not by another queue over it.
  sl_queue twin;
  sl_lock second = {77};
  CHECK("D5", sl_queue_lock(queue, NULL, &second) == SL_ERROR_DEADLOCK && second.id == 77);
  CHECK("D5", sl_queue_open_vulkan(device, own.family, 0, "twin", &twin) == SL_SUCCESS);
  CHECK("D5", sl_queue_lock(twin, NULL, &second) == SL_ERROR_DEADLOCK && says("locked"));
  CHECK("free", sl_queue_free(twin) == SL_SUCCESS);
  // A VkQueue that is adopted twice has one lock.
  sl_vulkan_queue queues = {own.queue, own.family, 0};
  sl_vulkan_adopt_info adopted = adopt_info(&own, &queues);
  sl_device again;
  counts second_owner = {0};
  CHECK("D5", sl_device_adopt_vulkan(&adopted, &second_owner, free_counts, &again) == SL_SUCCESS);
  CHECK("D5", sl_queue_open_vulkan(again, own.family, 0, "again", &twin) == SL_SUCCESS);
  CHECK("D5", sl_queue_lock(twin, NULL, &second) == SL_ERROR_DEADLOCK);
  sl_submission by_twin;
  CHECK("D5", SUBMIT(twin, &by_twin, .waits = NULL) == SL_SUCCESS);
  CHECK("D5", sl_submission_was_held(by_twin, &held) == SL_SUCCESS && held);
  pthread_t thread;
  void *result;
  pthread_create(&thread, NULL, unlock_elsewhere, &lock);
  pthread_join(thread, &result);
  CHECK("D5", *(sl_result *)result == SL_ERROR_INVALID_ARGUMENT);
  CHECK("D5", sl_point_wait(signal, SECOND / 100) == SL_ERROR_TIMED_OUT);
  CHECK("D5", sl_queue_unlock(lock) == SL_SUCCESS);
  CHECK("D5", sl_point_wait(signal, LONG) == SL_SUCCESS);
  CHECK("D5", sl_queue_idle(twin, LONG) == SL_SUCCESS && sl_submission_free(by_twin) == SL_SUCCESS);
  CHECK("free", sl_queue_free(twin) == SL_SUCCESS && sl_device_free(again) == SL_SUCCESS);
  CHECK("D4", freed_once(&second_owner));
  CHECK("free", sl_queue_unlock(lock) == SL_ERROR_INVALID_HANDLE);
  CHECK("free", sl_submission_free(submission) == SL_SUCCESS);
  CHECK("free", sl_timeline_free(done) == SL_SUCCESS);
}

// A submission of the program's own, outside of a callback. Signals a claim.
static VkResult submit_claim(sl_claim claim, sl_timeline timeline, const sl_point *wait) {
  uint64_t predecessor = 99;
  VkSemaphore semaphores[2] = {NULL, NULL}, signal;
  CHECK("T2", sl_claim_predecessor(claim, &predecessor) == SL_SUCCESS);
  CHECK("T2", sl_timeline_vk_semaphore(timeline, device, &signal) == SL_SUCCESS);
  semaphores[0] = signal;
  uint64_t values[2] = {predecessor, 0}, value = predecessor + 1;
  if (wait != NULL) {
    CHECK("T10", sl_point_vk_semaphore(*wait, device, &semaphores[1]) == SL_SUCCESS);
    values[1] = wait->value;
  }
  uint32_t stages[2] = {VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT};
  sl_lock lock;
  CHECK("D5", sl_queue_lock(queue, NULL, &lock) == SL_SUCCESS);
  sl_vulkan_submission as_told = {.queue = own.queue,
                                  .wait_count = wait == NULL ? 1 : 2,
                                  .waits = semaphores,
                                  .wait_values = values,
                                  .wait_stages = stages,
                                  .signal_count = 1,
                                  .signals = &signal,
                                  .signal_values = &value};
  VkResult result = submit_as_told(&as_told, NULL);
  CHECK("D5", sl_queue_unlock(lock) == SL_SUCCESS);
  return result;
}

// T2: claims. A value that is claimed is signalled by its claim alone.
static void claims(void) {
  sl_timeline drawn = line("drawn"), gate = line("gate");
  sl_claim one, two, none;
  CHECK("T2", sl_timeline_claim(drawn, 1, 0, &one) == SL_SUCCESS);
  CHECK("T2", sl_timeline_claim(drawn, 1, 0, &none) == SL_ERROR_INVALID_VALUE);
  CHECK("T2", sl_timeline_signal(drawn, 1) == SL_ERROR_INVALID_VALUE);
  CHECK("T2", sl_timeline_claim(drawn, 2, 0, &two) == SL_SUCCESS);
  CHECK("T2", sl_timeline_claim(drawn, 3, 3, &none) == SL_ERROR_DEADLOCK);
  uint64_t predecessor = 0;
  CHECK("T2", sl_claim_predecessor(two, &predecessor) == SL_SUCCESS && predecessor == 1);
  // The first one is not submitted, so the second one is not ready.
  CHECK("T3", sl_claim_wait_ready(two, 1) == SL_ERROR_TIMED_OUT);
  CHECK("T3", sl_claim_submitted(two, device) == SL_ERROR_NOT_READY);
  VkSemaphore semaphore;
  CHECK("T10", sl_point_vk_semaphore(at(drawn, 1), device, &semaphore) == SL_ERROR_NOT_READY);
  // A submission of Syncline is held for the claim.
  sl_point wait = at(drawn, 2), released = at(gate, 1);
  CHECK("Q2", SUBMIT(queue, NULL, WAIT(wait), SIGNAL(released)) == SL_SUCCESS);
  CHECK("T3", sl_claim_wait_ready(one, LONG) == SL_SUCCESS);
  CHECK("T2", submit_claim(one, drawn, NULL) == VK_SUCCESS);
  CHECK("T2", sl_claim_submitted(one, device) == SL_SUCCESS);
  CHECK("T2", sl_claim_submitted(one, device) == SL_SUCCESS);
  bool pending = false;
  CHECK("T10", sl_point_is_pending(at(drawn, 1), &pending) == SL_SUCCESS && pending);
  CHECK("T3", sl_claim_wait_ready(two, LONG) == SL_SUCCESS);
  CHECK("Q2", sl_point_wait(released, 1) == SL_ERROR_TIMED_OUT && says("drawn"));
  sl_point before = at(drawn, 1);
  CHECK("T2", submit_claim(two, drawn, &before) == VK_SUCCESS);
  CHECK("T2", sl_claim_submitted(two, (sl_device){0}) == SL_SUCCESS);
  CHECK("Q2", sl_point_wait(released, LONG) == SL_SUCCESS);
  CHECK("free", sl_claim_free(one) == SL_SUCCESS && sl_claim_free(two) == SL_SUCCESS);
  CHECK("free", sl_claim_free(one) == SL_ERROR_INVALID_HANDLE);
  // A callback that the call releases may use the same claim.
  counts released_by_claim = {0};
  sl_timeline again = line("again");
  sl_point first = at(again, 1), after = at(gate, 2);
  CHECK("T2", sl_timeline_claim(again, 1, 0, &claim_of_callback) == SL_SUCCESS);
  CHECK("Q2", SUBMIT(queue, NULL, WAIT(first), SIGNAL(after), .vulkan_work = submit_claim_again,
                     .data = &released_by_claim, .free = free_counts) == SL_SUCCESS);
  CHECK("T2", submit_claim(claim_of_callback, again, NULL) == VK_SUCCESS);
  CHECK("T2", sl_claim_submitted(claim_of_callback, device) == SL_SUCCESS);
  CHECK("Q2", sl_point_wait(after, LONG) == SL_SUCCESS && released_by_claim.called == 1);
  // Or the callback has run on a thread that has seen the value reached.
  CHECK("T2", claimed_again == SL_ERROR_NOT_READY || claimed_again == SL_SUCCESS);
  CHECK("T2", sl_claim_submitted(claim_of_callback, device) == SL_SUCCESS);
  CHECK("free", sl_claim_free(claim_of_callback) == SL_SUCCESS && sl_timeline_free(again) == SL_SUCCESS);
  // A claim that is freed before it is submitted is withdrawn.
  CHECK("T2", sl_timeline_claim(drawn, 3, 0, &one) == SL_SUCCESS);
  CHECK("T2", sl_timeline_signal(drawn, 3) == SL_ERROR_INVALID_VALUE);
  CHECK("T2", sl_claim_free(one) == SL_SUCCESS);
  CHECK("T2", sl_timeline_signal(drawn, 3) == SL_SUCCESS);
  // T9: a claim keeps its own value alone from being cancelled, and not the timeline.
  CHECK("T9", sl_timeline_claim(drawn, 4, 0, &one) == SL_SUCCESS);
  sl_point never = at(drawn, 5), end = at(gate, 3);
  CHECK("T9", SUBMIT(queue, NULL, WAIT(never), SIGNAL(end)) == SL_SUCCESS);
  CHECK("T9", sl_timeline_free(drawn) == SL_SUCCESS);
  CHECK("T9", sl_point_wait(end, LONG) == SL_ERROR_FAILED && says("last handle"));
  CHECK("T9", sl_claim_free(one) == SL_SUCCESS && sl_timeline_free(gate) == SL_SUCCESS);
}

// Another library signals a semaphore on the same queue.
static void signal_as_others(VkSemaphore semaphore, uint64_t value) {
  sl_lock lock;
  CHECK("D5", sl_queue_lock(queue, NULL, &lock) == SL_SUCCESS);
  sl_vulkan_submission as_told = {
      .queue = own.queue, .signal_count = 1, .signals = &semaphore, .signal_values = &value};
  VULKAN(submit_as_told(&as_told, NULL));
  CHECK("D5", sl_queue_unlock(lock) == SL_SUCCESS);
}

// A frame whose semaphore another library signals, too.
static void others(void) {
  VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                    .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
                                    .initialValue = 4};
  VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
  VkSemaphore semaphore, same;
  VULKAN(vkCreateSemaphore(own.device, &info, NULL, &semaphore));
  sl_timeline frame, plain = line("plain");
  uint64_t value = 0;
  CHECK("T2", sl_timeline_adopt_vulkan(device, NULL, "frame", &frame) == SL_ERROR_INVALID_ARGUMENT);
  CHECK("T2", sl_timeline_adopt_vulkan(device, semaphore, "frame", &frame) == SL_SUCCESS);
  CHECK("T1", sl_timeline_value(frame, &value) == SL_SUCCESS && value == 4);
  CHECK("T2", sl_timeline_vk_semaphore(frame, device, &same) == SL_SUCCESS && same == semaphore);
  CHECK("T2", sl_timeline_signalled_by_others(plain, 1) == SL_ERROR_UNSUPPORTED);
  // A wait for a value without a promise is held.
  sl_point theirs = at(frame, 5), ours = at(frame, 6);
  sl_submission submission;
  CHECK("Q2", SUBMIT(queue, &submission, WAIT(theirs), SIGNAL(ours)) == SL_SUCCESS);
  CHECK("Q2", sl_submission_wait_submitted(submission, SECOND / 100) == SL_ERROR_TIMED_OUT);
  // The held submission has claimed 6: others cannot signal it.
  CHECK("T2", sl_timeline_signalled_by_others(frame, 6) == SL_ERROR_INVALID_VALUE);
  signal_as_others(semaphore, 5);
  CHECK("T2", sl_timeline_signalled_by_others(frame, 5) == SL_SUCCESS);
  CHECK("T2", sl_submission_wait_submitted(submission, LONG) == SL_SUCCESS);
  CHECK("T2", sl_point_wait(ours, LONG) == SL_SUCCESS);
  // The next turn of the other library.
  signal_as_others(semaphore, 7);
  CHECK("T2", sl_timeline_signalled_by_others(frame, 7) == SL_SUCCESS);
  CHECK("T2", sl_point_wait(at(frame, 7), LONG) == SL_SUCCESS);
  CHECK("D5", sl_queue_idle(queue, LONG) == SL_SUCCESS);
  CHECK("free", sl_submission_free(submission) == SL_SUCCESS);
  CHECK("free", sl_timeline_free(frame) == SL_SUCCESS && sl_timeline_free(plain) == SL_SUCCESS);
  vkDestroySemaphore(own.device, semaphore, NULL);
}

// T2: what examples/claim.h shows of claims.
static void claims_of_the_document(void) {
  sl_timeline made = line("made"), drawn = line("drawn"), gate = line("gate");
  VkCommandBuffer commands = begin(&own);
  VULKAN(vkEndCommandBuffer(commands));
  sl_point go = at(gate, 1), ready = at(made, 1), end = at(drawn, 1);
  CHECK("Q2", SUBMIT(queue, NULL, WAIT(go), SIGNAL(ready)) == SL_SUCCESS);
  // Its signal is held, so the wait must not go to the driver. Then the value is free again.
  CHECK("T10", submit_claimed(device, queue, ready, end, commands, SECOND / 100) ==
                   SL_ERROR_TIMED_OUT);
  CHECK("Q2", sl_timeline_signal(gate, 1) == SL_SUCCESS);
  CHECK("T2", submit_claimed(device, queue, ready, end, commands, LONG) == SL_SUCCESS);
  CHECK("T2", sl_point_wait(end, LONG) == SL_SUCCESS);
  CHECK("T2", submit_claimed(device, queue, ready, end, commands, LONG) == SL_ERROR_INVALID_VALUE);
  vkFreeCommandBuffers(own.device, own.pool, 1, &commands);
  CHECK("free", sl_timeline_free(made) == SL_SUCCESS && sl_timeline_free(drawn) == SL_SUCCESS);
  CHECK("free", sl_timeline_free(gate) == SL_SUCCESS);
}

// X8: commands of the program fill memory that the host reads.
typedef struct {
  data data;
  VkCommandBuffer commands;
} drawing;

static int32_t submit_commands(const sl_vulkan_submission *told, void *all) {
  return submit_as_told(told, ((drawing *)all)->commands);
}

static void free_drawing(void *all) {
  drawing *drawn = all;
  vkFreeCommandBuffers(own.device, own.pool, 1, &drawn->commands);
  free_data(&drawn->data);
}

static void memory(void) {
  sl_device host;
  sl_link link;
  uint32_t mechanism;
  sl_buffer left, right, view;
  CHECK("X1", sl_device_open_host(&host) == SL_SUCCESS);
  CHECK("X1", sl_link_share(device, host, &link) == SL_ERROR_UNSUPPORTED && says("cannot share"));
  CHECK("X1", sl_link_connect(device, host, &link) == SL_SUCCESS);
  CHECK("X1", sl_link_mechanism(link, &mechanism) == SL_SUCCESS &&
                  mechanism == SL_MECHANISM_ENGINE);
  CHECK("X8", sl_link_buffer(link, 256, &left, &right) == SL_SUCCESS);
  CHECK("X8", sl_buffer_view(left, 64, 64, &view) == SL_SUCCESS);
  sl_buffer_info info = {.size = sizeof info}, of_host = {.size = sizeof of_host};
  CHECK("X8", sl_buffer_get_info(view, &info) == SL_SUCCESS && info.vulkan_buffer != NULL);
  CHECK("X8", info.bytes == 64 && info.cuda_pointer == 0);
  CHECK("X8", sl_buffer_get_info(right, &of_host) == SL_SUCCESS && of_host.host_pointer != NULL);
  VkBufferMemoryBarrier older = {.sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER};
  VkBufferMemoryBarrier2 newer = {.sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER_2};
  VkMemoryBarrier seen = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                          .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                          .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
  bool needed = true;
  CHECK("X8", sl_buffer_acquire_barrier(view, own.family, &older, &needed) == SL_SUCCESS && !needed);
  CHECK("X8", sl_buffer_release_barrier(view, own.family, &newer, &needed) == SL_SUCCESS && !needed);
  CHECK("X8", sl_buffer_release_barrier(view, own.family, &seen, &needed) ==
                  SL_ERROR_INVALID_ARGUMENT && says("46"));
  drawing drawn = {.commands = begin(&own)};
  vkCmdFillBuffer(drawn.commands, info.vulkan_buffer, info.vulkan_offset, info.bytes, 0x1234);
  vkCmdPipelineBarrier(drawn.commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT,
                       0, 1, &seen, 0, NULL, 0, NULL);
  VULKAN(vkEndCommandBuffer(drawn.commands));
  sl_timeline done;
  CHECK("X2", sl_link_timeline(link, "done", 3, &done) == SL_SUCCESS);
  sl_point signal = at(done, 4);
  CHECK("X8", SUBMIT(queue, NULL, SIGNAL(signal), .vulkan_work = submit_commands, .data = &drawn,
                     .free = free_drawing) == SL_SUCCESS);
  CHECK("Q9", sl_point_wait(signal, LONG) == SL_SUCCESS);
  const uint32_t *words = of_host.host_pointer;
  CHECK("Q9", words[16] == 0x1234 && words[31] == 0x1234 && words[15] == 0 && words[32] == 0);
  CHECK("H2", sl_queue_idle(queue, LONG) == SL_SUCCESS && drawn.data.counts.freed == 1);
  CHECK("free", sl_buffer_free(left) == SL_SUCCESS && sl_buffer_free(right) == SL_SUCCESS);
  CHECK("free", sl_buffer_free(view) == SL_SUCCESS && sl_timeline_free(done) == SL_SUCCESS);
  CHECK("free", sl_link_free(link) == SL_SUCCESS && sl_device_free(host) == SL_SUCCESS);
}

static int32_t work(void *called) {
  ((counts *)called)->called++;
  return 0;
}

// Q3: a queue of the host and one of Vulkan wait for each other, in any order of the calls.
static void both(void) {
  sl_device host;
  sl_queue worker;
  sl_timeline made = line("made"), drawn = line("drawn");
  counts call = {0};
  data all = {0};
  sl_point frame = at(made, 1), end = at(drawn, 1);
  CHECK("Q3", sl_device_open_host(&host) == SL_SUCCESS);
  CHECK("Q3", sl_queue_open(host, SL_QUEUE_COMPUTE, "worker", &worker) == SL_SUCCESS);
  CHECK("Q3", SUBMIT(queue, NULL, WAIT(frame), SIGNAL(end), .vulkan_work = submit, .data = &all,
                     .free = free_data) == SL_SUCCESS);
  CHECK("Q3", SUBMIT(worker, NULL, SIGNAL(frame), .host_work = work, .data = &call,
                     .free = free_counts) == SL_SUCCESS);
  CHECK("Q3", sl_point_wait(end, LONG) == SL_SUCCESS && call.called == 1);
  CHECK("Q3", sl_queue_idle(queue, LONG) == SL_SUCCESS && sl_queue_idle(worker, LONG) == SL_SUCCESS);
  CHECK("free", sl_timeline_free(made) == SL_SUCCESS && sl_timeline_free(drawn) == SL_SUCCESS);
  CHECK("free", sl_queue_free(worker) == SL_SUCCESS && sl_device_free(host) == SL_SUCCESS);
}

// F5: the time between two records.
static void fences(void) {
  sl_fence start, end;
  int64_t gone = -1;
  sl_result made = sl_fence_make(device, SL_TIMING_INTERVAL, "start", &start);
  CHECK("F5", made == SL_SUCCESS);
  CHECK("F5", sl_fence_make(device, SL_TIMING_INTERVAL, "end", &end) == SL_SUCCESS);
  sl_result recorded = sl_queue_record(queue, start);
  if (recorded == SL_ERROR_UNSUPPORTED) {
    printf("no times: %s\n", sl_last_error());
  } else {
    CHECK("F5", recorded == SL_SUCCESS && sl_queue_record(queue, end) == SL_SUCCESS);
    CHECK("F5", sl_fence_wait(end, LONG) == SL_SUCCESS);
    CHECK("F5", sl_fence_elapsed(start, end, &gone) == SL_SUCCESS && gone >= 0);
  }
  CHECK("free", sl_fence_free(start) == SL_SUCCESS && sl_fence_free(end) == SL_SUCCESS);
}

static void cases(void) {
  counts owner = {0};
  adopt(&owner);
  raw();
  raw_fails();
  raw_data();
  locked();
  freed_claim();
  claims();
  claims_of_the_document();
  others();
  memory();
  both();
  fences();
  CHECK("D4", owner.freed == 0);
  CHECK("free", sl_queue_free(queue) == SL_SUCCESS && sl_device_free(device) == SL_SUCCESS);
  // The owner tells when the device may be destroyed.
  CHECK("D4", freed_once(&owner));
}

int main(void) {
  VkInstance instance = make_instance();
  VkPhysicalDevice found[8];
  uint32_t count = 8, used = 0;
  VULKAN(vkEnumeratePhysicalDevices(instance, &count, found));
  for (uint32_t i = 0; i < count; i++) {
    if (!make_device(&own, instance, found[i], NULL, NULL)) {
      continue;
    }
    cases();
    destroy_device(&own);
    used++;
  }
  vkDestroyInstance(instance, NULL);
  printf("%u devices\n", used);
  CHECK("D4", used > 0);
  return done();
}
