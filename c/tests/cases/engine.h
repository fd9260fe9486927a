// An engine with an instance, a device and a queue of Vulkan of its own, as the examples have it.

#include "case.h"

#include "vulkan_setup.h"

static inline sl_vulkan_adopt_info adopt_info(const engine *of, const sl_vulkan_queue *queue) {
  return (sl_vulkan_adopt_info){.size = sizeof(sl_vulkan_adopt_info),
                                .get_instance_proc_addr = vkGetInstanceProcAddr,
                                .instance = of->instance,
                                .physical_device = of->physical,
                                .device = of->device,
                                .queues = queue,
                                .queue_count = queue == NULL ? 0 : 1,
                                .enabled = of->offer.enabled};
}

static inline VkCommandBuffer begin(const engine *of) {
  VkCommandBuffer commands = make_commands(of, of->pool);
  begin_commands(commands);
  return commands;
}

// Submits commands with what a callback of sl_queue_submit gets.
static inline VkResult submit_as_told(const sl_vulkan_submission *told, VkCommandBuffer commands) {
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
                       .commandBufferCount = commands == NULL ? 0 : 1,
                       .pCommandBuffers = &commands,
                       .signalSemaphoreCount = told->signal_count,
                       .pSignalSemaphores = told->signals};
  return vkQueueSubmit(told->queue, 1, &info, VK_NULL_HANDLE);
}
