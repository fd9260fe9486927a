// A library that decodes frames on a thread of its own. It calls no function of Syncline.
//
// Its frames have the shape of FFmpeg's AVVkFrame, and the same protocol: under the lock of a
// frame, each user submits work that waits for the value and signals the next one, and writes that
// into the frame.

#ifndef FRAME_DECODER_H
#define FRAME_DECODER_H

#include "vulkan_setup.h"

#include <pthread.h>

#define FRAME_SIDE 64u
#define FRAME_WORDS (FRAME_SIDE * FRAME_SIDE)
#define FRAME_COUNT 3u

// A frame. In brackets, the name of AVVkFrame.
typedef struct {
  // The image, of the format VK_FORMAT_R32_UINT (img).
  VkImage image;
  // The timeline semaphore of all its uses (sem).
  VkSemaphore semaphore;
  // The value at which the image may be used (sem_value).
  uint64_t value;
  // The layout that the last submission leaves the image in (layout).
  VkImageLayout layout;
  // The family that owns the image (queue_family).
  uint32_t family;
  // Protects what changes (lock_frame and unlock_frame of AVVulkanFramesContext).
  pthread_mutex_t lock;
} frame;

// Locks the queue of the engine, and unlocks it (lock_queue of AVVulkanDeviceContext).
typedef struct {
  void (*lock)(void *user);
  void (*unlock)(void *user);
  void *user;
} queue_lock;

typedef struct decoder decoder;

decoder *open_decoder(const engine *of, const queue_lock *queue);

// A frame of the pool. `index` is below FRAME_COUNT.
frame *decoder_frame(decoder *of, uint32_t index);

// Decodes frame `number` into a frame of the pool, on the thread of the library.
//
// Blocks while the frame is being decoded already.
void start_decoding(decoder *of, uint32_t index, uint32_t number);

// Blocks until a frame of the pool is decoded as far as the host knows.
//
// Its submission is then with the driver, and need not have run.
void receive_frame(decoder *of, uint32_t index);

// Ends the thread, and destroys the frames, which nothing uses any more.
void close_decoder(decoder *gone);

// A word of frame `number`, which is above 0.
static inline uint32_t decoded_word(uint32_t number, uint32_t index) {
  return number * 0x9e3779b9u ^ index;
}

#endif
