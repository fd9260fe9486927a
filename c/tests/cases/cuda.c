// Cases on CUDA, and on CUDA with Vulkan on one GPU.

#include "../../examples/cuda_part.h"

#include "engine.h"

static sl_device cuda;
static sl_queue queue;
static CUcontext context;
static CUstream stream;

static sl_timeline line(const char *label) {
  sl_timeline made = {0};
  CHECK("T1", sl_timeline_make(cuda, label, 0, &made) == SL_SUCCESS);
  return made;
}

// A fill of memory on a stream, as a callback.
typedef struct {
  counts counts;
  CUdeviceptr memory;
  CUstream stream;
  CUcontext current;
  sl_result inner;
} fill;

static int32_t run_fill(CUstream into, void *data) {
  fill *own = data;
  own->counts.called++;
  own->stream = into;
  cuCtxGetCurrent(&own->current);
  own->inner = SUBMIT(queue, NULL, .waits = NULL);
  if (own->counts.returns != 0) {
    return own->counts.returns;
  }
  return cuMemsetD32Async(own->memory, 0x77, 16, into);
}

static void free_fill(void *data) { free_counts(&((fill *)data)->counts); }

static uint32_t word(CUdeviceptr memory, unsigned index) {
  uint32_t words[16];
  CHECK("cuda", cuMemcpyDtoH_v2(words, memory, sizeof words) == 0);
  return words[index];
}

// Q2 and Q8: the program's calls come when their waits may go to the driver.
static void raw(CUdeviceptr memory) {
  sl_timeline gate = line("gate"), done = line("done");
  sl_point wait = at(gate, 1), signal = at(done, 1);
  fill own = {.memory = memory};
  sl_submission submission;
  CHECK("Q2", SUBMIT(queue, &submission, WAIT(wait), SIGNAL(signal), .cuda_commands = 1,
                     .cuda_work = run_fill, .data = &own, .free = free_fill) == SL_SUCCESS);
  CHECK("Q2", own.counts.called == 0);
  // This thread releases it, and has no context.
  CHECK("cuda", cuCtxSetCurrent(NULL) == 0);
  CHECK("Q2", sl_timeline_signal(gate, 1) == SL_SUCCESS);
  CHECK("cuda", cuCtxSetCurrent(context) == 0);
  CHECK("Q2", sl_submission_wait_submitted(submission, LONG) == SL_SUCCESS);
  CHECK("Q8", own.counts.called == 1 && own.stream == stream);
  CHECK("Q8", own.current == context && own.inner == SL_ERROR_DEADLOCK);
  CHECK("Q8", sl_point_wait(signal, LONG) == SL_SUCCESS && word(memory, 15) == 0x77);
  CHECK("Q8", sl_queue_idle(queue, LONG) == SL_SUCCESS && own.counts.freed == 1);
  // Q5: an error of the program refuses the submission. A held one fails its timelines.
  fill wrong = {.counts.returns = 2}, held = {.counts.returns = 700};
  sl_point next = at(done, 2);
  CHECK("Q5", SUBMIT(queue, NULL, SIGNAL(next), .cuda_commands = 1, .cuda_work = run_fill,
                     .data = &wrong, .free = free_fill) == SL_ERROR_WORK && says("CUDA error 2"));
  CHECK("Q5", wrong.counts.called == 1);
  CHECK("Q5", SUBMIT(queue, NULL, SIGNAL(next)) == SL_SUCCESS);
  CHECK("Q5", sl_queue_idle(queue, LONG) == SL_SUCCESS && wrong.counts.freed == 1);
  wait.value = 2;
  sl_point last = at(done, 3);
  CHECK("E1", SUBMIT(queue, NULL, WAIT(wait), SIGNAL(last), .cuda_commands = 1,
                     .cuda_work = run_fill, .data = &held, .free = free_fill) == SL_SUCCESS);
  CHECK("E1", sl_timeline_signal(gate, 2) == SL_SUCCESS);
  CHECK("E1", sl_point_wait(last, LONG) == SL_ERROR_FAILED && says("CUDA error 700"));
  CHECK("E1", sl_queue_idle(queue, LONG) == SL_SUCCESS && held.counts.freed == 1);
  CHECK("free", sl_submission_free(submission) == SL_SUCCESS);
  CHECK("free", sl_timeline_free(gate) == SL_SUCCESS && sl_timeline_free(done) == SL_SUCCESS);
}

// T2: a claim that a stream of the program signals, which need not be adopted.
static void claims(CUdeviceptr memory) {
  sl_timeline done = line("done"), other = line("other");
  sl_claim one, two;
  CUstream own;
  CHECK("cuda", cuStreamCreate(&own, CU_STREAM_NON_BLOCKING) == 0);
  CHECK("T2", sl_timeline_claim(done, 1, 0, &one) == SL_SUCCESS);
  CHECK("T2", sl_timeline_claim(done, 2, 0, &two) == SL_SUCCESS);
  CHECK("T3", sl_claim_submit_cuda(two, done, cuda, own) == SL_ERROR_NOT_READY);
  CHECK("T2", sl_claim_submit_cuda(one, other, cuda, own) == SL_ERROR_INVALID_ARGUMENT);
  CHECK("T2", sl_claim_submitted(one, cuda) == SL_ERROR_UNSUPPORTED);
  CHECK("T3", sl_claim_wait_ready(one, LONG) == SL_SUCCESS);
  CHECK("cuda", cuMemsetD32Async(memory, 0x78, 16, own) == 0);
  CHECK("T2", sl_claim_submit_cuda(one, done, cuda, own) == SL_SUCCESS);
  CHECK("Q7", sl_point_wait(at(done, 1), LONG) == SL_SUCCESS && word(memory, 3) == 0x78);
  CHECK("T3", sl_claim_wait_ready(two, LONG) == SL_SUCCESS);
  CHECK("T2", sl_claim_submit_cuda(two, done, cuda, own) == SL_SUCCESS);
  CHECK("T2", sl_point_wait(at(done, 2), LONG) == SL_SUCCESS);
  CHECK("free", sl_claim_free(one) == SL_SUCCESS && sl_claim_free(two) == SL_SUCCESS);
  CHECK("free", sl_timeline_free(done) == SL_SUCCESS && sl_timeline_free(other) == SL_SUCCESS);
  CHECK("cuda", cuStreamDestroy_v2(own) == 0);
}

// X10: a word of the program's memory is a timeline. The stream waits for it without the host.
static void words(CUdeviceptr memory) {
  counts owner = {0}, refused = {0};
  sl_timeline word, done = line("done");
  CUstream own;
  CHECK("cuda", cuStreamCreate(&own, CU_STREAM_NON_BLOCKING) == 0);
  CHECK("cuda", cuMemsetD32Async(memory, 4, 1, own) == 0 && cuStreamSynchronize(own) == 0);
  CHECK("X10", sl_timeline_adopt_word(cuda, memory, 16, 4, "word", &refused, free_counts, &word) ==
                   SL_ERROR_INVALID_ARGUMENT && refused.freed == 1);
  sl_result adopted =
      sl_timeline_adopt_word(cuda, memory, 32, 4, "word", &owner, free_counts, &word);
  if (adopted == SL_ERROR_UNSUPPORTED) {
    printf("no words: %s\n", sl_last_error());
  } else {
    CHECK("X10", adopted == SL_SUCCESS);
    sl_point wait = at(word, 5), signal = at(done, 1);
    sl_submission submission;
    CHECK("Q2", SUBMIT(queue, &submission, WAIT(wait), SIGNAL(signal)) == SL_SUCCESS);
    CHECK("Q2", sl_submission_wait_submitted(submission, SECOND / 100) == SL_ERROR_TIMED_OUT);
    CHECK("cuda", cuMemsetD32Async(memory, 5, 1, own) == 0);
    CHECK("X10", sl_timeline_signalled_by_others(word, 5) == SL_SUCCESS);
    CHECK("X10", sl_point_wait(signal, LONG) == SL_SUCCESS);
    CHECK("X10", sl_point_wait(wait, LONG) == SL_SUCCESS);
    CHECK("X10", owner.freed == 0);
    CHECK("free", sl_submission_free(submission) == SL_SUCCESS);
    CHECK("free", sl_queue_idle(queue, LONG) == SL_SUCCESS);
    CHECK("free", sl_timeline_free(word) == SL_SUCCESS && freed_once(&owner));
  }
  CHECK("free", sl_timeline_free(done) == SL_SUCCESS && cuStreamDestroy_v2(own) == 0);
}

// D5: while a thread has the stream, submissions are held. It may take the stream again.
static void locked(void) {
  sl_timeline done = line("done");
  sl_lock_info info = {.size = sizeof info};
  sl_lock lock, again;
  sl_point signal = at(done, 1);
  CHECK("D5", sl_queue_lock(queue, &info, &lock) == SL_SUCCESS);
  CHECK("D5", info.cuda_stream == stream && info.vulkan_queue == NULL);
  CHECK("D5", sl_queue_lock(queue, NULL, &again) == SL_SUCCESS);
  CHECK("D5", SUBMIT(queue, NULL, SIGNAL(signal)) == SL_SUCCESS);
  CHECK("D5", sl_queue_unlock(again) == SL_SUCCESS);
  CHECK("D5", sl_point_wait(signal, SECOND / 50) == SL_ERROR_TIMED_OUT);
  // The queue lives while its lock does.
  CHECK("D5", sl_queue_unlock(lock) == SL_SUCCESS);
  CHECK("D5", sl_point_wait(signal, LONG) == SL_SUCCESS);
  CHECK("free", sl_timeline_free(done) == SL_SUCCESS);
}

// F8: an event of the program is a fence, for queues of any device.
static void events(void) {
  sl_device host;
  sl_queue worker;
  sl_fence fence, own;
  CUevent event;
  CHECK("cuda", cuEventCreate(&event, 0) == 0 && cuEventRecord(event, stream) == 0);
  CHECK("F8", sl_fence_adopt_cuda(cuda, event, "event", &fence) == SL_SUCCESS);
  CHECK("F8", sl_fence_adopt_cuda(cuda, NULL, "event", &own) == SL_ERROR_INVALID_ARGUMENT);
  CHECK("F8", cuEventDestroy_v2(event) == 0);
  CHECK("F8", sl_queue_record(queue, fence) == SL_ERROR_UNSUPPORTED);
  CHECK("F8", sl_device_open_host(&host) == SL_SUCCESS);
  CHECK("F8", sl_queue_open(host, SL_QUEUE_COMPUTE, NULL, &worker) == SL_SUCCESS);
  CHECK("F8", sl_queue_wait_fence(worker, fence) == SL_SUCCESS);
  CHECK("F8", sl_queue_idle(worker, LONG) == SL_SUCCESS);
  CHECK("F8", sl_fence_wait(fence, LONG) == SL_SUCCESS);
  CHECK("F5", sl_fence_make(cuda, SL_TIMING_INTERVAL, NULL, &own) == SL_SUCCESS);
  int64_t gone = 1;
  CHECK("F5", sl_queue_record(queue, own) == SL_SUCCESS && sl_fence_wait(own, LONG) == SL_SUCCESS);
  CHECK("F5", sl_fence_elapsed(own, own, &gone) == SL_SUCCESS && gone == 0);
  CHECK("free", sl_fence_free(fence) == SL_SUCCESS && sl_fence_free(own) == SL_SUCCESS);
  CHECK("free", sl_queue_free(worker) == SL_SUCCESS && sl_device_free(host) == SL_SUCCESS);
}

// Commands of Vulkan that copy what CUDA has written.
typedef struct {
  counts counts;
  const engine *of;
  VkCommandBuffer commands;
} copy;

static int32_t run_copy(const sl_vulkan_submission *told, void *data) {
  ((copy *)data)->counts.called++;
  return submit_as_told(told, ((copy *)data)->commands);
}

static void free_copy(void *data) {
  copy *own = data;
  vkFreeCommandBuffers(own->of->device, own->of->pool, 1, &own->commands);
  free_counts(&own->counts);
}

static uint32_t type_of(const engine *of, uint32_t allowed) {
  VkPhysicalDeviceMemoryProperties has;
  vkGetPhysicalDeviceMemoryProperties(of->physical, &has);
  VkMemoryPropertyFlags needed =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  for (uint32_t i = 0; i < has.memoryTypeCount; i++) {
    if ((allowed >> i & 1) != 0 && (has.memoryTypes[i].propertyFlags & needed) == needed) {
      return i;
    }
  }
  return UINT32_MAX;
}

// X8 and X9: buffers and an image in a block of the program's own, at an offset.
static void own_block(const engine *of, sl_device vulkan, sl_link link) {
  VkExternalMemoryBufferCreateInfo external = {
      .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
      .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  VkBufferCreateInfo like = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                             .pNext = &external,
                             .size = 64,
                             .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
  VkExternalMemoryImageCreateInfo external_image = {
      .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMAGE_CREATE_INFO,
      .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  VkImageCreateInfo picture = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                               .pNext = &external_image,
                               .imageType = VK_IMAGE_TYPE_2D,
                               .format = VK_FORMAT_R8G8B8A8_UNORM,
                               .extent = {16, 8, 1},
                               .mipLevels = 1,
                               .arrayLayers = 1,
                               .samples = VK_SAMPLE_COUNT_1_BIT,
                               .usage = VK_IMAGE_USAGE_STORAGE_BIT |
                                        VK_IMAGE_USAGE_TRANSFER_SRC_BIT |
                                        VK_IMAGE_USAGE_TRANSFER_DST_BIT};
  VkBuffer buffers[2];
  VkImage image;
  VkMemoryRequirements needs, of_image;
  VULKAN(vkCreateBuffer(of->device, &like, NULL, &buffers[0]));
  VULKAN(vkCreateBuffer(of->device, &like, NULL, &buffers[1]));
  VULKAN(vkCreateImage(of->device, &picture, NULL, &image));
  vkGetBufferMemoryRequirements(of->device, buffers[0], &needs);
  vkGetImageMemoryRequirements(of->device, image, &of_image);
  // Multiples of all alignments.
  const VkDeviceSize second = 65536, third = 131072;
  VkExportMemoryAllocateInfo export = {
      .sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
      .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  VkMemoryAllocateInfo block = {
      .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
      .pNext = &export,
      .allocationSize = third + of_image.size,
      .memoryTypeIndex = type_of(of, needs.memoryTypeBits & of_image.memoryTypeBits)};
  if (block.memoryTypeIndex == UINT32_MAX) {
    // As on a GPU, where no image is in memory that the host addresses.
    block.memoryTypeIndex = type_of(of, needs.memoryTypeBits);
    vkDestroyImage(of->device, image, NULL);
    image = NULL;
  }
  VkDeviceMemory memory;
  VULKAN(vkAllocateMemory(of->device, &block, NULL, &memory));
  VULKAN(vkBindBufferMemory(of->device, buffers[0], memory, 0));
  VULKAN(vkBindBufferMemory(of->device, buffers[1], memory, second));
  sl_vulkan_allocation_info info = {.size = sizeof info,
                                    .memory = memory,
                                    .bytes = block.allocationSize,
                                    .memory_type = block.memoryTypeIndex,
                                    .is_exportable = 1};
  counts owner = {0}, refused = {0}, of_buffer = {0};
  sl_allocation adopted, none;
  info.is_dedicated = 7;
  CHECK("X8", sl_allocation_adopt_vulkan(vulkan, &info, &refused, free_counts, &none) ==
                  SL_ERROR_INVALID_ARGUMENT && refused.freed == 1);
  info.is_dedicated = 0;
  CHECK("X8", sl_allocation_adopt_vulkan(cuda, &info, NULL, NULL, &none) == SL_ERROR_UNSUPPORTED);
  CHECK("X8", sl_allocation_adopt_vulkan(vulkan, &info, &owner, free_counts, &adopted) ==
                  SL_SUCCESS);
  sl_buffer parts[2], left[2], right[2], nothing;
  CHECK("X8", sl_allocation_buffer(adopted, buffers[0], info.bytes, 64, 0, NULL, NULL, &nothing) ==
                  SL_ERROR_UNSUPPORTED);
  CHECK("X8", sl_allocation_buffer(adopted, buffers[0], 0, 64, 0, NULL, NULL, &parts[0]) ==
                  SL_SUCCESS);
  CHECK("X8", sl_allocation_buffer(adopted, buffers[1], second, 64, 0, &of_buffer, free_counts,
                                   &parts[1]) == SL_SUCCESS);
  CHECK("X8", sl_link_share_buffers(link, parts, 2, left, right) == SL_SUCCESS);
  sl_buffer_info here = {.size = sizeof here}, there = {.size = sizeof there};
  CHECK("X8", sl_buffer_get_info(left[1], &here) == SL_SUCCESS &&
                  here.vulkan_buffer == buffers[1]);
  CHECK("X8", sl_buffer_get_info(right[1], &there) == SL_SUCCESS && there.cuda_pointer != 0);
  fill writes = {.memory = there.cuda_pointer};
  CHECK("X8", SUBMIT(queue, NULL, .cuda_commands = 1, .cuda_work = run_fill, .data = &writes,
                     .free = free_fill) == SL_SUCCESS);
  CHECK("X8", sl_queue_idle(queue, LONG) == SL_SUCCESS);
  void *mapped;
  VULKAN(vkMapMemory(of->device, memory, 0, VK_WHOLE_SIZE, 0, &mapped));
  CHECK("X8", ((uint32_t *)mapped)[second / 4 + 15] == 0x77 && ((uint32_t *)mapped)[15] != 0x77);
  if (image != NULL) {
    VULKAN(vkBindImageMemory(of->device, image, memory, third));
    sl_image_info told = {.size = sizeof told,
                          .image_type = VK_IMAGE_TYPE_2D,
                          .format = VK_FORMAT_R8G8B8A8_UNORM,
                          .width = 16,
                          .height = 8,
                          .depth = 1,
                          .levels = 1,
                          .layers = 1,
                          .usage = VK_IMAGE_USAGE_STORAGE_BIT};
    sl_image one, views[2];
    sl_image_handles in_cuda = {.size = sizeof in_cuda};
    CHECK("X9", sl_allocation_image(adopted, image, third, &told, NULL, NULL, &one) == SL_SUCCESS);
    CHECK("X9", sl_link_share_image(link, one, &views[0], &views[1]) == SL_SUCCESS);
    CHECK("X9", sl_image_get_handles(views[1], &in_cuda) == SL_SUCCESS && in_cuda.cuda_array);
    CHECK("free", sl_image_free(one) == SL_SUCCESS && sl_image_free(views[0]) == SL_SUCCESS);
    CHECK("free", sl_image_free(views[1]) == SL_SUCCESS);
  }
  CHECK("free", sl_allocation_free(adopted) == SL_SUCCESS && owner.freed == 0);
  for (int i = 0; i < 2; i++) {
    CHECK("free", sl_buffer_free(parts[i]) == SL_SUCCESS && sl_buffer_free(left[i]) == SL_SUCCESS);
    CHECK("free", sl_buffer_free(right[i]) == SL_SUCCESS);
  }
  CHECK("X8", sl_queue_idle(queue, LONG) == SL_SUCCESS);
  CHECK("X8", freed_once(&of_buffer) && freed_once(&owner));
  vkFreeMemory(of->device, memory, NULL);
  vkDestroyBuffer(of->device, buffers[0], NULL);
  vkDestroyBuffer(of->device, buffers[1], NULL);
  if (image != NULL) {
    vkDestroyImage(of->device, image, NULL);
  }
}

// X2 and X8: CUDA fills memory, and Vulkan reads it, in either order of the calls.
static void shared(const engine *of) {
  sl_vulkan_queue queues = {of->queue, of->family, 0};
  sl_vulkan_adopt_info info = adopt_info(of, &queues);
  counts owner = {0};
  sl_device vulkan;
  sl_queue draws;
  sl_link link;
  uint32_t mechanism = 99;
  CHECK("D4", sl_device_adopt_vulkan(&info, &owner, free_counts, &vulkan) == SL_SUCCESS);
  CHECK("D4", sl_queue_open_vulkan(vulkan, of->family, 0, "draws", &draws) == SL_SUCCESS);
  CHECK("X1", sl_link_share(vulkan, cuda, &link) == SL_SUCCESS);
  CHECK("X1", sl_link_mechanism(link, &mechanism) == SL_SUCCESS &&
                  mechanism == SL_MECHANISM_EXTERNAL_TIMELINE);
  sl_timeline frames;
  sl_buffer left, right, seen;
  sl_buffer_info of_vulkan = {.size = sizeof of_vulkan}, of_cuda = {.size = sizeof of_cuda},
                 to = {.size = sizeof to};
  CHECK("X2", sl_link_timeline(link, "frames", 0, &frames) == SL_SUCCESS);
  CHECK("X8", sl_link_buffer(link, 64, &left, &right) == SL_SUCCESS);
  CHECK("X8", sl_buffer_make(vulkan, 64, &seen) == SL_SUCCESS);
  CHECK("X8", sl_buffer_get_info(left, &of_vulkan) == SL_SUCCESS && of_vulkan.vulkan_buffer);
  CHECK("X8", sl_buffer_get_info(right, &of_cuda) == SL_SUCCESS && of_cuda.cuda_pointer);
  CHECK("X8", sl_buffer_get_info(seen, &to) == SL_SUCCESS && to.host_pointer);
  VkBufferMemoryBarrier acquire = {.sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER};
  VkBufferMemoryBarrier release = acquire;
  VkBufferMemoryBarrier2 newer = {.sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER_2};
  bool needed = false;
  CHECK("X8", sl_buffer_acquire_barrier(left, of->family, &acquire, &needed) == SL_SUCCESS &&
                  needed);
  CHECK("X8", sl_buffer_release_barrier(left, of->family, &release, &needed) == SL_SUCCESS &&
                  needed);
  CHECK("X8", acquire.srcQueueFamilyIndex == VK_QUEUE_FAMILY_EXTERNAL && acquire.size == 64 &&
                  acquire.buffer == of_vulkan.vulkan_buffer);
  CHECK("X8", release.dstQueueFamilyIndex == VK_QUEUE_FAMILY_EXTERNAL);
  CHECK("X8", sl_buffer_acquire_barrier(left, of->family, &newer, &needed) == SL_SUCCESS &&
                  newer.sType == VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER_2 &&
                  newer.buffer == acquire.buffer);
  copy reads = {.of = of, .commands = begin(of)};
  VkMemoryBarrier host = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                          .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                          .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
  VkBufferCopy region = {0, 0, 64};
  VkPipelineStageFlags all = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
  vkCmdPipelineBarrier(reads.commands, all, all, 0, 0, NULL, 1, &acquire, 0, NULL);
  vkCmdCopyBuffer(reads.commands, of_vulkan.vulkan_buffer, to.vulkan_buffer, 1, &region);
  vkCmdPipelineBarrier(reads.commands, all, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &host, 0, NULL, 0,
                       NULL);
  vkCmdPipelineBarrier(reads.commands, all, all, 0, 0, NULL, 1, &release, 0, NULL);
  VULKAN(vkEndCommandBuffer(reads.commands));
  // The reader comes first, and is held.
  sl_point written = at(frames, 1), read = at(frames, 2);
  fill writes = {.memory = of_cuda.cuda_pointer};
  CHECK("Q2", SUBMIT(draws, NULL, WAIT(written), SIGNAL(read), .vulkan_work = run_copy,
                     .data = &reads, .free = free_copy) == SL_SUCCESS && reads.counts.called == 0);
  CHECK("X2", SUBMIT(queue, NULL, SIGNAL(written), .cuda_commands = 1, .cuda_work = run_fill,
                     .data = &writes, .free = free_fill) == SL_SUCCESS);
  CHECK("X2", sl_point_wait(read, LONG) == SL_SUCCESS && reads.counts.called == 1);
  CHECK("Q9", ((uint32_t *)to.host_pointer)[15] == 0x77);
  // X2: a claim of CUDA on the timeline, and its semaphore in Vulkan.
  sl_claim claim;
  VkSemaphore semaphore, same;
  CHECK("T2", sl_timeline_claim(frames, 3, 0, &claim) == SL_SUCCESS);
  CHECK("T3", sl_claim_wait_ready(claim, LONG) == SL_SUCCESS);
  CHECK("T2", sl_claim_submit_cuda(claim, frames, cuda, stream) == SL_SUCCESS);
  CHECK("T10", sl_point_vk_semaphore(at(frames, 3), vulkan, &semaphore) == SL_SUCCESS);
  CHECK("T10", sl_timeline_vk_semaphore(frames, vulkan, &same) == SL_SUCCESS && same == semaphore);
  uint64_t value = 3;
  VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                              .semaphoreCount = 1,
                              .pSemaphores = &semaphore,
                              .pValues = &value};
  VULKAN(vkWaitSemaphores(of->device, &wait, LONG));
  CHECK("free", sl_claim_free(claim) == SL_SUCCESS);
  CHECK("D4", sl_queue_idle(draws, LONG) == SL_SUCCESS && sl_queue_idle(queue, LONG) == SL_SUCCESS);
  CHECK("D4", reads.counts.freed == 1 && writes.counts.freed == 1);
  // X9: an image of both.
  sl_image_info like = {.size = sizeof like,
                        .image_type = VK_IMAGE_TYPE_2D,
                        .format = VK_FORMAT_R8G8B8A8_UNORM,
                        .width = 16,
                        .height = 8,
                        .depth = 1,
                        .levels = 1,
                        .layers = 1,
                        .usage = VK_IMAGE_USAGE_STORAGE_BIT};
  sl_image pictures[2];
  sl_image_handles here = {.size = sizeof here}, there = {.size = sizeof there};
  CHECK("X9", sl_link_image(link, &like, &pictures[0], &pictures[1]) == SL_SUCCESS);
  CHECK("X9", sl_image_get_handles(pictures[0], &here) == SL_SUCCESS && here.vulkan_image &&
                  !here.cuda_array);
  CHECK("X9", sl_image_get_handles(pictures[1], &there) == SL_SUCCESS && there.cuda_array &&
                  !there.vulkan_image);
  VkImageMemoryBarrier take = {.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER};
  VkImageMemoryBarrier2 give = {.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER_2};
  CHECK("X9", sl_image_acquire_barrier(pictures[0], of->family, SL_CONTENTS_DISCARD,
                                       VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, &take) == SL_SUCCESS);
  CHECK("X9", take.oldLayout == VK_IMAGE_LAYOUT_UNDEFINED &&
                  take.newLayout == VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL &&
                  take.image == here.vulkan_image);
  CHECK("X9", sl_image_release_barrier(pictures[0], of->family,
                                       VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, &give) == SL_SUCCESS);
  CHECK("X9", give.newLayout == VK_IMAGE_LAYOUT_GENERAL &&
                  give.dstQueueFamilyIndex == VK_QUEUE_FAMILY_EXTERNAL);
  CHECK("X9", sl_image_acquire_barrier(pictures[0], of->family, 5, 1, &take) ==
                  SL_ERROR_INVALID_ARGUMENT);
  CHECK("X9", sl_image_acquire_barrier(pictures[0], of->family, 0, 1, &acquire) ==
                  SL_ERROR_INVALID_ARGUMENT);
  CHECK("X9", sl_image_release_barrier(pictures[1], of->family, 1, &give) == SL_ERROR_UNSUPPORTED);
  own_block(of, vulkan, link);
  CHECK("free", sl_image_free(pictures[0]) == SL_SUCCESS && sl_image_free(pictures[1]) == SL_SUCCESS);
  CHECK("free", sl_buffer_free(left) == SL_SUCCESS && sl_buffer_free(right) == SL_SUCCESS);
  CHECK("free", sl_buffer_free(seen) == SL_SUCCESS && sl_timeline_free(frames) == SL_SUCCESS);
  CHECK("free", sl_link_free(link) == SL_SUCCESS && sl_queue_free(draws) == SL_SUCCESS);
  CHECK("free", sl_device_free(vulkan) == SL_SUCCESS);
}

// The cases on a device of CUDA, with the device of Vulkan that is the same GPU.
static void cases(CUdevice ordinal, const engine *of) {
  counts owners[2] = {0}, refused = {0};
  CUdeviceptr memory;
  CHECK("cuda", cuDevicePrimaryCtxRetain(&context, ordinal) == 0 && cuCtxSetCurrent(context) == 0);
  CHECK("cuda", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == 0);
  CHECK("cuda", cuMemAlloc_v2(&memory, 64) == 0);
  CHECK("D4", sl_device_adopt_cuda(context, &owners[0], free_counts, &cuda) == SL_SUCCESS);
  sl_device none;
  CHECK("D4", sl_device_adopt_cuda(NULL, &refused, free_counts, &none) == SL_ERROR_UNSUPPORTED &&
                  refused.freed == 1);
  CUcontext told;
  CHECK("D4", sl_device_get_cuda(cuda, &told) == SL_SUCCESS && told == context);
  CHECK("D4", sl_queue_adopt_cuda(cuda, stream, "stream", &owners[1], free_counts, &queue) ==
                  SL_SUCCESS);
  // CUDA's device of the UUID that Vulkan tells.
  CHECK("D2", sl_device_open_uuid(SL_API_CUDA, of->offer.uuid, &none) == SL_SUCCESS);
  sl_device_info info = {.size = sizeof info};
  CHECK("D2", sl_device_get_info(none, &info) == SL_SUCCESS && info.api == SL_API_CUDA &&
                  memcmp(info.uuid, of->offer.uuid, 16) == 0);
  CHECK("free", sl_device_free(none) == SL_SUCCESS);
  raw(memory);
  claims(memory);
  words(memory);
  locked();
  events();
  shared(of);
  CHECK("D4", owners[0].freed == 0 && owners[1].freed == 0);
  CHECK("free", sl_queue_free(queue) == SL_SUCCESS && sl_device_free(cuda) == SL_SUCCESS);
  CHECK("D4", freed_once(&owners[0]) && freed_once(&owners[1]));
  CHECK("cuda", cuMemFree_v2(memory) == 0 && cuStreamDestroy_v2(stream) == 0);
  CHECK("cuda", cuDevicePrimaryCtxRelease_v2(ordinal) == 0);
}

int main(void) {
  VkInstance instance = make_instance();
  VkPhysicalDevice found[8];
  uint32_t count = 8, used = 0;
  int ordinals = 0;
  CHECK("cuda", cuInit(0) == 0 && cuDeviceGetCount(&ordinals) == 0);
  VULKAN(vkEnumeratePhysicalDevices(instance, &count, found));
  for (uint32_t i = 0; i < count; i++) {
    engine own;
    if (!make_device(&own, instance, found[i], NULL, NULL)) {
      continue;
    }
    for (int ordinal = 0; ordinal < ordinals; ordinal++) {
      CUdevice device;
      CUuuid uuid;
      if (cuDeviceGet(&device, ordinal) == 0 && cuDeviceGetUuid(&uuid, device) == 0 &&
          own.offer.has_uuid && memcmp(uuid.bytes, own.offer.uuid, 16) == 0) {
        cases(device, &own);
        used++;
      }
    }
    destroy_device(&own);
  }
  vkDestroyInstance(instance, NULL);
  printf("%u pairs\n", used);
  CHECK("D2", used > 0);
  return done();
}
