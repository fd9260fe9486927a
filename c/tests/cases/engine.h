// An engine with an instance, a device and a queue of Vulkan of its own.

#include "case.h"

#include <stdlib.h>
#include <vulkan/vulkan.h>

typedef struct {
  VkInstance instance;
  VkPhysicalDevice physical;
  VkDevice device;
  VkQueue queue;
  uint32_t family;
  VkCommandPool pool;
  sl_vulkan_offer offer;
} engine;

static inline void must(VkResult result, const char *what) {
  if (result != VK_SUCCESS) {
    printf("FAILED engine: %s returns %d\n", what, result);
    exit(1);
  }
}
#define MUST(call) must((call), #call)

static inline VkInstance make_instance(void) {
  VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                   .apiVersion = VK_API_VERSION_1_3};
  VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                               .pApplicationInfo = &application};
  VkInstance instance;
  MUST(vkCreateInstance(&info, NULL, &instance));
  return instance;
}

// Makes a device with everything that Syncline can use. False if it can use none of this one.
static inline bool make_device(engine *made, VkInstance instance, VkPhysicalDevice physical) {
  *made = (engine){.instance = instance, .physical = physical, .offer.size = sizeof made->offer};
  if (sl_vulkan_get_offer(vkGetInstanceProcAddr, instance, physical, &made->offer) != SL_SUCCESS) {
    printf("no device: %s\n", sl_last_error());
    return false;
  }
  float priority = 1;
  VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                   .queueFamilyIndex = made->family,
                                   .queueCount = 1,
                                   .pQueuePriorities = &priority};
  VkPhysicalDeviceVulkan12Features features = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
      .timelineSemaphore = VK_TRUE,
      .hostQueryReset = made->offer.enabled.host_query_reset};
  VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                             .pNext = &features,
                             .queueCreateInfoCount = 1,
                             .pQueueCreateInfos = &queue,
                             .enabledExtensionCount = made->offer.extension_count,
                             .ppEnabledExtensionNames = made->offer.extensions};
  MUST(vkCreateDevice(physical, &info, NULL, &made->device));
  vkGetDeviceQueue(made->device, made->family, 0, &made->queue);
  VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                  .queueFamilyIndex = made->family};
  MUST(vkCreateCommandPool(made->device, &pool, NULL, &made->pool));
  return true;
}

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

static inline void destroy(engine *of) {
  vkDestroyCommandPool(of->device, of->pool, NULL);
  vkDestroyDevice(of->device, NULL);
}

static inline VkCommandBuffer begin(const engine *of) {
  VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                      .commandPool = of->pool,
                                      .commandBufferCount = 1};
  VkCommandBuffer commands;
  MUST(vkAllocateCommandBuffers(of->device, &info, &commands));
  VkCommandBufferBeginInfo first = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  MUST(vkBeginCommandBuffer(commands, &first));
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
