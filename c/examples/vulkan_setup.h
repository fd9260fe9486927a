// An engine's own Vulkan: what the examples set up by raw calls. Nothing here synchronizes.

#ifndef VULKAN_SETUP_H
#define VULKAN_SETUP_H

#include <stdbool.h>
#include <syncline.h>
#include <vulkan/vulkan.h>

#ifdef __cplusplus
extern "C" {
#endif

// An instance, a device with one queue, and a pool for its commands.
typedef struct {
  VkInstance instance;
  VkPhysicalDevice physical;
  VkDevice device;
  VkQueue queue;
  uint32_t family;
  VkCommandPool pool;
  // What Syncline has asked for. All of it is enabled.
  sl_vulkan_offer offer;
  char name[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
} engine;

// Ends the program with the name of a call that has failed.
void check_vulkan(VkResult result, const char *call);
#define VULKAN(call) check_vulkan((call), #call)

// An instance of Vulkan 1.3, for devices of 1.2, too.
VkInstance make_instance(void);

// Makes a device with all that Syncline asks for, and one queue for graphics.
//
// Returns false if Syncline cannot adopt the device, or if it does not fit (see open_engine).
bool make_device(engine *made, VkInstance instance, VkPhysicalDevice physical,
                 bool (*fits)(const sl_vulkan_offer *offer, void *data), void *data);

// Opens the first device that Syncline can adopt and that `fits`, which may be null.
//
// Returns false if there is none.
bool open_engine(engine *made, bool (*fits)(const sl_vulkan_offer *offer, void *data), void *data);

// Destroys the device, which nothing uses any more. close_engine destroys the instance, too.
void destroy_device(engine *gone);
void close_engine(engine *gone);

// Memory of the device for an image with one level and one layer.
void make_image(const engine *of, VkFormat format, uint32_t side, VkImageUsageFlags usage,
                VkImage *image, VkDeviceMemory *memory);

// A buffer that the host writes, and its address.
void *make_host_buffer(const engine *of, VkDeviceSize bytes, VkBuffer *buffer,
                       VkDeviceMemory *memory);

// A pool for the commands of one thread.
VkCommandPool make_pool(const engine *of);

// New commands of a pool, which are not begun.
VkCommandBuffer make_commands(const engine *of, VkCommandPool pool);

// Begins commands, which may be submitted several times.
void begin_commands(VkCommandBuffer commands);

// Adds a barrier between all commands before and after it.
void add_barrier(VkCommandBuffer commands, const VkMemoryBarrier *memory,
                 const VkBufferMemoryBarrier *buffer, const VkImageMemoryBarrier *image);

// Moves an image to a layout. Its contents stay, except from VK_IMAGE_LAYOUT_UNDEFINED.
void change_layout(VkCommandBuffer commands, VkImage image, VkImageLayout from, VkImageLayout to);

// Adds a copy of an image in VK_IMAGE_LAYOUT_GENERAL to a buffer that the host reads afterwards.
void copy_to_host(VkCommandBuffer commands, VkImage image, uint32_t side, VkBuffer to);

#ifdef __cplusplus
}
#endif

#endif
