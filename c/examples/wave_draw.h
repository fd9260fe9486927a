// The engine's own drawing: points of a vertex buffer, in an image.

#ifndef WAVE_DRAW_H
#define WAVE_DRAW_H

#include "vulkan_setup.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  VkImage image;
  VkDeviceMemory memory;
  VkImageView view;
  VkRenderPass pass;
  VkFramebuffer target;
  VkPipelineLayout layout;
  VkPipeline pipeline;
  uint32_t side;
} drawing;

// Makes what is needed to draw, in an image with `side` pixels on each side.
void make_drawing(const engine *of, uint32_t side, drawing *made);

// Adds commands that draw `count` points, and leave the image in VK_IMAGE_LAYOUT_GENERAL.
void draw_points(VkCommandBuffer commands, const drawing *with, VkBuffer heights,
                 VkDeviceSize offset, uint32_t count);

// Destroys it. No submission uses it any more.
void destroy_drawing(const engine *of, drawing *gone);

#ifdef __cplusplus
}
#endif

#endif
