#include <stdexcept>
#include <syncline.hpp>
#include <vulkan/vulkan.h>

// Submits commands to a queue that Syncline does not use. They wait for `ready`, and signal
// `value` of `done`. Returns false if the driver may not have both within the limit. Then, and
// after an exception, the claim is withdrawn.
inline bool submit_claimed(const syncline::Device &device, VkQueue queue, syncline::Point ready,
                           const syncline::Timeline &done, std::uint64_t value,
                           VkCommandBuffer commands, syncline::Limit limit) {
  syncline::Claim claim = done.claim(value); // nothing else may signal this value now
  if (!claim.wait_ready(limit) || !ready.wait_pending(limit)) {
    return false;
  }
  VkSemaphore waits[2]{{}, done.vk_semaphore(device)};
  syncline::check(sl_point_vk_semaphore(ready, device.get(), &waits[0]));
  const std::uint64_t wait_values[2]{ready.value, claim.predecessor()};
  const VkPipelineStageFlags stages[2]{VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
                                       VK_PIPELINE_STAGE_ALL_COMMANDS_BIT};
  VkTimelineSemaphoreSubmitInfo values{};
  values.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
  values.waitSemaphoreValueCount = 2;
  values.pWaitSemaphoreValues = wait_values;
  values.signalSemaphoreValueCount = 1;
  values.pSignalSemaphoreValues = &value;
  VkSubmitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  info.pNext = &values;
  info.waitSemaphoreCount = 2;
  info.pWaitSemaphores = waits;
  info.pWaitDstStageMask = stages;
  info.commandBufferCount = 1;
  info.pCommandBuffers = &commands;
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &waits[1];
  if (vkQueueSubmit(queue, 1, &info, VK_NULL_HANDLE) != VK_SUCCESS) {
    throw std::runtime_error("vkQueueSubmit failed");
  }
  claim.submitted(device);
  return true;
}
