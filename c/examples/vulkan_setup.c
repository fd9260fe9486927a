// An engine's own Vulkan, by raw calls.

#include "vulkan_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void check_vulkan(VkResult result, const char *call) {
  if (result != VK_SUCCESS) {
    fprintf(stderr, "%s returns %d\n", call, result);
    exit(1);
  }
}

// The first family for graphics, or VK_QUEUE_FAMILY_IGNORED.
static uint32_t graphics_family(VkPhysicalDevice physical) {
  VkQueueFamilyProperties families[16];
  uint32_t count = 16;
  vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families);
  for (uint32_t family = 0; family < count; family++) {
    if (families[family].queueFlags & VK_QUEUE_GRAPHICS_BIT) {
      return family;
    }
  }
  return VK_QUEUE_FAMILY_IGNORED;
}

bool make_device(engine *made, VkInstance instance, VkPhysicalDevice physical,
                 bool (*fits)(const sl_vulkan_offer *offer, void *data), void *data) {
  *made = (engine){.instance = instance,
                   .physical = physical,
                   .family = graphics_family(physical),
                   .offer.size = sizeof made->offer};
  if (made->family == VK_QUEUE_FAMILY_IGNORED ||
      sl_vulkan_get_offer(vkGetInstanceProcAddr, instance, physical, &made->offer) != SL_SUCCESS ||
      (fits != NULL && !fits(&made->offer, data))) {
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
  VULKAN(vkCreateDevice(made->physical, &info, NULL, &made->device));
  vkGetDeviceQueue(made->device, made->family, 0, &made->queue);
  made->pool = make_pool(made);
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(made->physical, &properties);
  memcpy(made->name, properties.deviceName, sizeof made->name);
  return true;
}

VkInstance make_instance(void) {
  VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                   .apiVersion = VK_API_VERSION_1_3};
  VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                               .pApplicationInfo = &application};
  VkInstance instance;
  VULKAN(vkCreateInstance(&info, NULL, &instance));
  return instance;
}

bool open_engine(engine *made, bool (*fits)(const sl_vulkan_offer *offer, void *data),
                 void *data) {
  VkInstance instance = make_instance();
  VkPhysicalDevice found[16];
  uint32_t count = 16;
  VkResult listed = vkEnumeratePhysicalDevices(instance, &count, found);
  check_vulkan(listed == VK_INCOMPLETE ? VK_SUCCESS : listed, "vkEnumeratePhysicalDevices");
  for (uint32_t i = 0; i < count; i++) {
    if (make_device(made, instance, found[i], fits, data)) {
      return true;
    }
  }
  vkDestroyInstance(instance, NULL);
  return false;
}

void destroy_device(engine *gone) {
  vkDestroyCommandPool(gone->device, gone->pool, NULL);
  vkDestroyDevice(gone->device, NULL);
}

void close_engine(engine *gone) {
  destroy_device(gone);
  vkDestroyInstance(gone->instance, NULL);
}

static VkDeviceMemory allocate(const engine *of, const VkMemoryRequirements *needs,
                               VkMemoryPropertyFlags flags) {
  VkPhysicalDeviceMemoryProperties types;
  vkGetPhysicalDeviceMemoryProperties(of->physical, &types);
  for (uint32_t type = 0; type < types.memoryTypeCount; type++) {
    if ((needs->memoryTypeBits >> type & 1) == 1 &&
        (types.memoryTypes[type].propertyFlags & flags) == flags) {
      VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                   .allocationSize = needs->size,
                                   .memoryTypeIndex = type};
      VkDeviceMemory memory;
      VULKAN(vkAllocateMemory(of->device, &info, NULL, &memory));
      return memory;
    }
  }
  check_vulkan(VK_ERROR_FEATURE_NOT_PRESENT, "a type of memory");
  return VK_NULL_HANDLE;
}

void make_image(const engine *of, VkFormat format, uint32_t side, VkImageUsageFlags usage,
                VkImage *image, VkDeviceMemory *memory) {
  VkImageCreateInfo info = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                            .imageType = VK_IMAGE_TYPE_2D,
                            .format = format,
                            .extent = {side, side, 1},
                            .mipLevels = 1,
                            .arrayLayers = 1,
                            .samples = VK_SAMPLE_COUNT_1_BIT,
                            .usage = usage};
  VULKAN(vkCreateImage(of->device, &info, NULL, image));
  VkMemoryRequirements needs;
  vkGetImageMemoryRequirements(of->device, *image, &needs);
  *memory = allocate(of, &needs, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
  VULKAN(vkBindImageMemory(of->device, *image, *memory, 0));
}

void *make_host_buffer(const engine *of, VkDeviceSize bytes, VkBuffer *buffer,
                       VkDeviceMemory *memory) {
  VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                             .size = bytes,
                             .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT};
  VULKAN(vkCreateBuffer(of->device, &info, NULL, buffer));
  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(of->device, *buffer, &needs);
  *memory = allocate(of, &needs,
                     VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
  VULKAN(vkBindBufferMemory(of->device, *buffer, *memory, 0));
  void *address;
  VULKAN(vkMapMemory(of->device, *memory, 0, bytes, 0, &address));
  return address;
}

VkCommandPool make_pool(const engine *of) {
  VkCommandPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                  .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                  .queueFamilyIndex = of->family};
  VkCommandPool pool;
  VULKAN(vkCreateCommandPool(of->device, &info, NULL, &pool));
  return pool;
}

VkCommandBuffer make_commands(const engine *of, VkCommandPool pool) {
  VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                      .commandPool = pool,
                                      .commandBufferCount = 1};
  VkCommandBuffer commands;
  VULKAN(vkAllocateCommandBuffers(of->device, &info, &commands));
  return commands;
}

void begin_commands(VkCommandBuffer commands) {
  VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  VULKAN(vkBeginCommandBuffer(commands, &info));
}

void add_barrier(VkCommandBuffer commands, const VkMemoryBarrier *memory,
                 const VkBufferMemoryBarrier *buffer, const VkImageMemoryBarrier *image) {
  VkPipelineStageFlags from = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
  VkPipelineStageFlags to = from | VK_PIPELINE_STAGE_HOST_BIT;
  vkCmdPipelineBarrier(commands, from, to, 0, memory != NULL, memory, buffer != NULL, buffer,
                       image != NULL, image);
}

static const VkAccessFlags WRITES = VK_ACCESS_MEMORY_WRITE_BIT;
static const VkAccessFlags BOTH = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT;

void change_layout(VkCommandBuffer commands, VkImage image, VkImageLayout from, VkImageLayout to) {
  VkImageMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
                                  .srcAccessMask = WRITES,
                                  .dstAccessMask = BOTH,
                                  .oldLayout = from,
                                  .newLayout = to,
                                  .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
                                  .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
                                  .image = image,
                                  .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1}};
  add_barrier(commands, NULL, NULL, &barrier);
}

void copy_to_host(VkCommandBuffer commands, VkImage image, uint32_t side, VkBuffer to) {
  VkMemoryBarrier order = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                           .srcAccessMask = WRITES,
                           .dstAccessMask = BOTH};
  VkBufferImageCopy region = {.imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
                              .imageExtent = {side, side, 1}};
  add_barrier(commands, &order, NULL, NULL);
  vkCmdCopyImageToBuffer(commands, image, VK_IMAGE_LAYOUT_GENERAL, to, 1, &region);
  order.dstAccessMask = VK_ACCESS_HOST_READ_BIT;
  add_barrier(commands, &order, NULL, NULL);
}
