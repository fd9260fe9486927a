// The library that decodes. It knows Vulkan, and no other library.

#include "frame_decoder.h"

#include <stdbool.h>
#include <stdlib.h>

typedef struct {
  frame frame;
  VkDeviceMemory memory;
  VkBuffer staging;
  VkDeviceMemory staging_memory;
  uint32_t *words;
  VkCommandBuffer commands;
  // The frame to decode, or 0.
  uint32_t number;
} pooled;

struct decoder {
  // With a command pool for the thread.
  engine engine;
  queue_lock queue;
  pooled frames[FRAME_COUNT];
  pthread_t thread;
  // Protects all numbers, the order and the end.
  pthread_mutex_t lock;
  pthread_cond_t changed;
  // The frames to decode, in order.
  uint32_t order[FRAME_COUNT];
  uint32_t count;
  bool ends;
};

static void submit(decoder *of, const frame *into, VkCommandBuffer commands) {
  uint64_t next = into->value + 1;
  VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
  VkTimelineSemaphoreSubmitInfo values = {
      .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
      .waitSemaphoreValueCount = 1,
      .pWaitSemaphoreValues = &into->value,
      .signalSemaphoreValueCount = 1,
      .pSignalSemaphoreValues = &next};
  VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                       .pNext = &values,
                       .waitSemaphoreCount = 1,
                       .pWaitSemaphores = &into->semaphore,
                       .pWaitDstStageMask = &stage,
                       .commandBufferCount = 1,
                       .pCommandBuffers = &commands,
                       .signalSemaphoreCount = 1,
                       .pSignalSemaphores = &into->semaphore};
  of->queue.lock(of->queue.user);
  VULKAN(vkQueueSubmit(of->engine.queue, 1, &info, VK_NULL_HANDLE));
  of->queue.unlock(of->queue.user);
}

static void wait_for_last_use(const decoder *of, const frame *own) {
  VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                              .semaphoreCount = 1,
                              .pSemaphores = &own->semaphore,
                              .pValues = &own->value};
  VULKAN(vkWaitSemaphores(of->engine.device, &wait, UINT64_MAX));
}

static void decode(decoder *of, pooled *into, uint32_t number) {
  frame *own = &into->frame;
  pthread_mutex_lock(&own->lock);
  wait_for_last_use(of, own); // then its words and commands are free
  for (uint32_t i = 0; i < FRAME_WORDS; i++) {
    into->words[i] = decoded_word(number, i);
  }
  VkImageLayout layout = VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL;
  VkBufferImageCopy region = {.imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
                              .imageExtent = {FRAME_SIDE, FRAME_SIDE, 1}};
  begin_commands(into->commands);
  change_layout(into->commands, own->image, own->layout, layout);
  vkCmdCopyBufferToImage(into->commands, into->staging, own->image, layout, 1, &region);
  VULKAN(vkEndCommandBuffer(into->commands));
  submit(of, own, into->commands);
  own->value += 1;
  own->layout = layout;
  pthread_mutex_unlock(&own->lock);
}

static void *run(void *data) {
  decoder *of = data;
  pthread_mutex_lock(&of->lock);
  for (;;) {
    while (of->count == 0 && !of->ends) {
      pthread_cond_wait(&of->changed, &of->lock);
    }
    if (of->count == 0) {
      break;
    }
    pooled *into = &of->frames[of->order[0]];
    pthread_mutex_unlock(&of->lock);
    decode(of, into, into->number);
    pthread_mutex_lock(&of->lock);
    into->number = 0;
    of->count -= 1;
    for (uint32_t i = 0; i < of->count; i++) {
      of->order[i] = of->order[i + 1];
    }
    pthread_cond_broadcast(&of->changed);
  }
  pthread_mutex_unlock(&of->lock);
  return NULL;
}

void receive_frame(decoder *of, uint32_t index) {
  pthread_mutex_lock(&of->lock);
  while (of->frames[index].number != 0) {
    pthread_cond_wait(&of->changed, &of->lock);
  }
  pthread_mutex_unlock(&of->lock);
}

void start_decoding(decoder *of, uint32_t index, uint32_t number) {
  receive_frame(of, index);
  pthread_mutex_lock(&of->lock);
  of->frames[index].number = number;
  of->order[of->count] = index;
  of->count += 1;
  pthread_cond_broadcast(&of->changed);
  pthread_mutex_unlock(&of->lock);
}

frame *decoder_frame(decoder *of, uint32_t index) { return &of->frames[index].frame; }

static void make_frame(const engine *of, pooled *made) {
  VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                    .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
  VULKAN(vkCreateSemaphore(of->device, &info, NULL, &made->frame.semaphore));
  make_image(of, VK_FORMAT_R32_UINT, FRAME_SIDE,
             VK_IMAGE_USAGE_TRANSFER_DST_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT,
             &made->frame.image, &made->memory);
  made->frame.layout = VK_IMAGE_LAYOUT_UNDEFINED;
  made->frame.family = of->family;
  pthread_mutex_init(&made->frame.lock, NULL);
  made->words = make_host_buffer(of, 4 * FRAME_WORDS, &made->staging, &made->staging_memory);
  made->commands = make_commands(of, of->pool);
}

decoder *open_decoder(const engine *of, const queue_lock *queue) {
  decoder *made = calloc(1, sizeof *made);
  if (made == NULL) {
    abort();
  }
  made->engine = *of;
  made->engine.pool = make_pool(of);
  made->queue = *queue;
  for (uint32_t i = 0; i < FRAME_COUNT; i++) {
    make_frame(&made->engine, &made->frames[i]);
  }
  pthread_mutex_init(&made->lock, NULL);
  pthread_cond_init(&made->changed, NULL);
  if (pthread_create(&made->thread, NULL, run, made) != 0) {
    abort();
  }
  return made;
}

void close_decoder(decoder *gone) {
  pthread_mutex_lock(&gone->lock);
  gone->ends = true;
  pthread_cond_broadcast(&gone->changed);
  pthread_mutex_unlock(&gone->lock);
  pthread_join(gone->thread, NULL);
  VkDevice device = gone->engine.device;
  for (uint32_t i = 0; i < FRAME_COUNT; i++) {
    pooled *of = &gone->frames[i];
    wait_for_last_use(gone, &of->frame);
    vkDestroyImage(device, of->frame.image, NULL);
    vkFreeMemory(device, of->memory, NULL);
    vkDestroyBuffer(device, of->staging, NULL);
    vkFreeMemory(device, of->staging_memory, NULL);
    vkDestroySemaphore(device, of->frame.semaphore, NULL);
  }
  vkDestroyCommandPool(device, gone->engine.pool, NULL);
  free(gone);
}
