#include <syncline.h>
#include <vulkan/vulkan.h>

// Submits commands to an adopted queue, which wait for `ready` and signal `done`. Blocks until the
// driver may have both, at most `limit` nanoseconds for each. The queue is locked only after that.
static inline sl_result submit_claimed(sl_device device, sl_queue queue, sl_point ready,
                                       sl_point done, VkCommandBuffer commands, uint64_t limit) {
  sl_claim claim;
  sl_lock lock;
  sl_lock_info locked = {.size = sizeof locked};
  VkSemaphore waits[2];
  uint64_t wait_values[2] = {ready.value, 0};
  sl_result result = sl_timeline_claim(done.timeline, done.value, 0, &claim);
  if (result != SL_SUCCESS) {
    return result;
  }
  if ((result = sl_claim_wait_ready(claim, limit)) == SL_SUCCESS &&
      (result = sl_point_wait_pending(ready, limit)) == SL_SUCCESS &&
      (result = sl_point_vk_semaphore(ready, device, &waits[0])) == SL_SUCCESS &&
      (result = sl_timeline_vk_semaphore(done.timeline, device, &waits[1])) == SL_SUCCESS &&
      (result = sl_claim_predecessor(claim, &wait_values[1])) == SL_SUCCESS &&
      (result = sl_queue_lock(queue, &locked, &lock)) == SL_SUCCESS) {
    VkPipelineStageFlags stages[2] = {VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
                                      VK_PIPELINE_STAGE_ALL_COMMANDS_BIT};
    VkTimelineSemaphoreSubmitInfo values = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .waitSemaphoreValueCount = 2,
        .pWaitSemaphoreValues = wait_values,
        .signalSemaphoreValueCount = 1,
        .pSignalSemaphoreValues = &done.value};
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .pNext = &values,
                         .waitSemaphoreCount = 2,
                         .pWaitSemaphores = waits,
                         .pWaitDstStageMask = stages,
                         .commandBufferCount = 1,
                         .pCommandBuffers = &commands,
                         .signalSemaphoreCount = 1,
                         .pSignalSemaphores = &waits[1]};
    VkResult submitted = vkQueueSubmit(locked.vulkan_queue, 1, &info, VK_NULL_HANDLE);
    sl_queue_unlock(lock);
    result = submitted == VK_SUCCESS ? sl_claim_submitted(claim, device) : SL_ERROR_DRIVER;
  }
  sl_claim_free(claim); // withdraws the claim if it was not submitted
  return result;
}
