// Frames of another library, which has a timeline semaphore of its own for each frame.
//
// frame_decoder.c decodes into a pool of frames that have the shape of FFmpeg's AVVkFrame, and
// calls nothing of Syncline. This program reads each frame by a submission of its own. It waits
// for the decoder's signal, and the decoder waits for that of the read.
//
// Usage: frame_pool [--no-sync] [FRAMES]. With --no-sync the reads have no waits. They may come in
// any order with the decoder's work, and come before it. So every frame is wrong.

#include "frame_decoder.h"
#include "must.h"

#include <inttypes.h>
#include <semaphore.h>
#include <string.h>

static const uint64_t LIMIT = 60000000000; // in nanoseconds

// A frame, as this program uses it.
typedef struct {
  frame *frame;
  // The timeline of the frame's semaphore.
  sl_timeline line;
  // Syncline may call submit_read on the decoder's thread, so each slot has a pool.
  VkCommandPool pool;
  VkCommandBuffer commands;
  sl_buffer seen;
  sl_buffer_info words;
} slot;

typedef struct {
  bool sync;
  engine engine;
  sl_queue queue;
  sl_lock locked;
  // Counts the reads.
  sl_timeline done;
  slot slots[FRAME_COUNT];
} program;

// 1. The queue, which both use.

static void lock_queue(void *user) {
  program *own = user;
  sl_lock lock;
  MUST(sl_queue_lock(own->queue, NULL, &lock));
  own->locked = lock;
}

static void unlock_queue(void *user) { MUST(sl_queue_unlock(((program *)user)->locked)); }

// 2. The program's own submission. Syncline calls it under the lock of the queue.

static int32_t submit_read(const sl_vulkan_submission *told, void *data) {
  slot *of = data;
  begin_commands(of->commands);
  change_layout(of->commands, of->frame->image, of->frame->layout, VK_IMAGE_LAYOUT_GENERAL);
  copy_to_host(of->commands, of->frame->image, FRAME_SIDE, of->words.vulkan_buffer);
  VULKAN(vkEndCommandBuffer(of->commands));
  of->frame->layout = VK_IMAGE_LAYOUT_GENERAL;
  VkTimelineSemaphoreSubmitInfo values = {
      .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
      .waitSemaphoreValueCount = told->wait_count,
      .pWaitSemaphoreValues = told->wait_values,
      .signalSemaphoreValueCount = told->signal_count,
      .pSignalSemaphoreValues = told->signal_values};
  VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                       .pNext = &values,
                       .waitSemaphoreCount = told->wait_count,
                       .pWaitSemaphores = told->waits,
                       .pWaitDstStageMask = told->wait_stages,
                       .commandBufferCount = 1,
                       .pCommandBuffers = &of->commands,
                       .signalSemaphoreCount = told->signal_count,
                       .pSignalSemaphores = told->signals};
  return vkQueueSubmit(told->queue, 1, &info, VK_NULL_HANDLE);
}

// Reads a frame. Holds its lock until the driver has the submission.
static void read_frame(program *own, slot *of, uint32_t number) {
  frame *from = of->frame;
  pthread_mutex_lock(&from->lock);
  // All signals up to this value are with the driver.
  MUST(sl_timeline_signalled_by_others(of->line, from->value));
  sl_point decoded = {of->line, from->value};
  sl_point signals[2] = {{own->done, number}, {of->line, from->value + 1}};
  sl_submission submission;
  sl_submit_info info = {.size = sizeof info,
                         .waits = &decoded,
                         .wait_count = own->sync ? 1 : 0,
                         .signals = signals,
                         .signal_count = own->sync ? 2 : 1,
                         .vulkan_work = submit_read,
                         .data = of};
  MUST(sl_queue_submit(own->queue, &info, &submission));
  MUST(sl_submission_wait_submitted(submission, SL_FOREVER));
  from->value += own->sync ? 1 : 0; // which the decoder waits for next
  pthread_mutex_unlock(&from->lock);
  MUST(sl_submission_free(submission));
}

// Waits for the read of a frame, and returns whether every word is right.
static bool check_frame(program *own, slot *of, uint32_t number) {
  sl_point read = {own->done, number};
  MUST(sl_point_wait(read, LIMIT));
  const uint32_t *words = of->words.host_pointer;
  uint32_t right = 0;
  for (uint32_t i = 0; i < FRAME_WORDS; i++) {
    right += words[i] == decoded_word(number, i);
  }
  return right == FRAME_WORDS;
}

// 3. Set-up and end.

static void unused(void *owner) { sem_post(owner); }

static sl_device adopt(const engine *of, sem_t *is_unused) {
  sl_vulkan_queue queue = {of->queue, of->family, 0};
  sl_vulkan_adopt_info info = {.size = sizeof info,
                               .get_instance_proc_addr = vkGetInstanceProcAddr,
                               .instance = of->instance,
                               .physical_device = of->physical,
                               .device = of->device,
                               .queues = &queue,
                               .queue_count = 1,
                               .enabled = of->offer.enabled};
  sl_device device;
  MUST(sl_device_adopt_vulkan(&info, is_unused, unused, &device));
  return device;
}

static void open_slot(program *own, sl_device device, slot *of, frame *which) {
  of->frame = which;
  MUST(sl_timeline_adopt_vulkan(device, which->semaphore, "frame", &of->line));
  MUST(sl_buffer_make(device, 4 * FRAME_WORDS, &of->seen));
  of->words.size = sizeof of->words;
  MUST(sl_buffer_get_info(of->seen, &of->words));
  of->pool = make_pool(&own->engine);
  of->commands = make_commands(&own->engine, of->pool);
}

int main(int argc, char **argv) {
  static program own = {.sync = true};
  uint32_t frames = 300;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--no-sync") == 0) {
      own.sync = false;
    } else {
      frames = (uint32_t)strtoul(argv[i], NULL, 10);
    }
  }
  if (!open_engine(&own.engine, NULL, NULL)) {
    fprintf(stderr, "no device of Vulkan can be adopted\n");
    return 1;
  }
  sem_t is_unused;
  sem_init(&is_unused, 0, 0);
  sl_device device = adopt(&own.engine, &is_unused);
  MUST(sl_queue_open_vulkan(device, own.engine.family, 0, "reader", &own.queue));
  MUST(sl_timeline_make(device, "done", 0, &own.done));
  queue_lock locks = {lock_queue, unlock_queue, &own};
  decoder *decodes = open_decoder(&own.engine, &locks);
  for (uint32_t i = 0; i < FRAME_COUNT; i++) {
    open_slot(&own, device, &own.slots[i], decoder_frame(decodes, i));
  }

  // Frame n is decoded, while the one before is read, and the one before that is checked.
  uint32_t right = 0;
  for (uint32_t n = 1; n <= frames + 2; n++) {
    slot *next = &own.slots[n % FRAME_COUNT], *last = &own.slots[(n - 1) % FRAME_COUNT];
    if (n > 2) {
      right += check_frame(&own, &own.slots[(n - 2) % FRAME_COUNT], n - 2);
    }
    if (n <= frames) {
      if (!own.sync) {
        read_frame(&own, next, n);
      }
      start_decoding(decodes, n % FRAME_COUNT, n);
    }
    if (own.sync && n > 1 && n - 1 <= frames) {
      receive_frame(decodes, (n - 1) % FRAME_COUNT);
      read_frame(&own, last, n - 1);
    }
  }
  MUST(sl_queue_idle(own.queue, LIMIT));
  uint64_t signals = 0;
  for (uint32_t i = 0; i < FRAME_COUNT; i++) {
    receive_frame(decodes, i);
    signals += own.slots[i].frame->value;
  }
  printf("%s: %u of %u frames are right\n", own.engine.name, right, frames);
  printf("the frames have %" PRIu64 " signals: %u are the decoder's, and the others the reads'\n",
         signals, frames);

  for (uint32_t i = 0; i < FRAME_COUNT; i++) {
    MUST(sl_timeline_free(own.slots[i].line));
    MUST(sl_buffer_free(own.slots[i].seen));
    vkDestroyCommandPool(own.engine.device, own.slots[i].pool, NULL);
  }
  MUST(sl_timeline_free(own.done));
  close_decoder(decodes);
  MUST(sl_queue_free(own.queue));
  MUST(sl_device_free(device));
  sem_wait(&is_unused);
  close_engine(&own.engine);
  return right == frames ? 0 : 1;
}
