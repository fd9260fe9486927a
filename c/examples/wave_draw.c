// The engine's own drawing, by raw calls. Nothing here synchronizes.

#include "wave_draw.h"

#include "wave.frag.h"
#include "wave.vert.h"

static const VkFormat FORMAT = VK_FORMAT_R8G8B8A8_UINT;

static void make_target(const engine *of, drawing *made) {
  make_image(of, FORMAT, made->side,
             VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT, &made->image,
             &made->memory);
  VkImageViewCreateInfo view = {.sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,
                                .image = made->image,
                                .viewType = VK_IMAGE_VIEW_TYPE_2D,
                                .format = FORMAT,
                                .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1}};
  VULKAN(vkCreateImageView(of->device, &view, NULL, &made->view));
  VkAttachmentDescription colour = {.format = FORMAT,
                                    .samples = VK_SAMPLE_COUNT_1_BIT,
                                    .loadOp = VK_ATTACHMENT_LOAD_OP_CLEAR,
                                    .storeOp = VK_ATTACHMENT_STORE_OP_STORE,
                                    .initialLayout = VK_IMAGE_LAYOUT_GENERAL,
                                    .finalLayout = VK_IMAGE_LAYOUT_GENERAL};
  VkAttachmentReference drawn = {0, VK_IMAGE_LAYOUT_GENERAL};
  VkSubpassDescription subpass = {.pipelineBindPoint = VK_PIPELINE_BIND_POINT_GRAPHICS,
                                  .colorAttachmentCount = 1,
                                  .pColorAttachments = &drawn};
  VkRenderPassCreateInfo pass = {.sType = VK_STRUCTURE_TYPE_RENDER_PASS_CREATE_INFO,
                                 .attachmentCount = 1,
                                 .pAttachments = &colour,
                                 .subpassCount = 1,
                                 .pSubpasses = &subpass};
  VULKAN(vkCreateRenderPass(of->device, &pass, NULL, &made->pass));
  VkFramebufferCreateInfo target = {.sType = VK_STRUCTURE_TYPE_FRAMEBUFFER_CREATE_INFO,
                                    .renderPass = made->pass,
                                    .attachmentCount = 1,
                                    .pAttachments = &made->view,
                                    .width = made->side,
                                    .height = made->side,
                                    .layers = 1};
  VULKAN(vkCreateFramebuffer(of->device, &target, NULL, &made->target));
}

static VkPipelineShaderStageCreateInfo stage(const engine *of, VkShaderStageFlagBits kind,
                                             const uint32_t *code, size_t bytes) {
  VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                   .codeSize = bytes,
                                   .pCode = code};
  VkPipelineShaderStageCreateInfo made = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, .stage = kind, .pName = "main"};
  VULKAN(vkCreateShaderModule(of->device, &info, NULL, &made.module));
  return made;
}

void make_drawing(const engine *of, uint32_t side, drawing *made) {
  *made = (drawing){.side = side};
  make_target(of, made);
  VkPipelineShaderStageCreateInfo stages[2] = {
      stage(of, VK_SHADER_STAGE_VERTEX_BIT, wave_vert, sizeof wave_vert),
      stage(of, VK_SHADER_STAGE_FRAGMENT_BIT, wave_frag, sizeof wave_frag)};
  VkVertexInputBindingDescription binding = {.stride = sizeof(int32_t)};
  VkVertexInputAttributeDescription height = {.format = VK_FORMAT_R32_SINT};
  VkPipelineVertexInputStateCreateInfo vertices = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_VERTEX_INPUT_STATE_CREATE_INFO,
      .vertexBindingDescriptionCount = 1,
      .pVertexBindingDescriptions = &binding,
      .vertexAttributeDescriptionCount = 1,
      .pVertexAttributeDescriptions = &height};
  VkPipelineInputAssemblyStateCreateInfo points = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_INPUT_ASSEMBLY_STATE_CREATE_INFO,
      .topology = VK_PRIMITIVE_TOPOLOGY_POINT_LIST};
  VkViewport viewport = {.width = (float)side, .height = (float)side, .maxDepth = 1};
  VkRect2D area = {.extent = {side, side}};
  VkPipelineViewportStateCreateInfo view = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_VIEWPORT_STATE_CREATE_INFO,
      .viewportCount = 1,
      .pViewports = &viewport,
      .scissorCount = 1,
      .pScissors = &area};
  VkPipelineRasterizationStateCreateInfo raster = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_RASTERIZATION_STATE_CREATE_INFO, .lineWidth = 1};
  VkPipelineMultisampleStateCreateInfo samples = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_MULTISAMPLE_STATE_CREATE_INFO,
      .rasterizationSamples = VK_SAMPLE_COUNT_1_BIT};
  VkPipelineColorBlendAttachmentState written = {.colorWriteMask = 15};
  VkPipelineColorBlendStateCreateInfo blend = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO,
      .attachmentCount = 1,
      .pAttachments = &written};
  VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  VULKAN(vkCreatePipelineLayout(of->device, &layout, NULL, &made->layout));
  VkGraphicsPipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO,
                                       .stageCount = 2,
                                       .pStages = stages,
                                       .pVertexInputState = &vertices,
                                       .pInputAssemblyState = &points,
                                       .pViewportState = &view,
                                       .pRasterizationState = &raster,
                                       .pMultisampleState = &samples,
                                       .pColorBlendState = &blend,
                                       .layout = made->layout,
                                       .renderPass = made->pass};
  VULKAN(vkCreateGraphicsPipelines(of->device, VK_NULL_HANDLE, 1, &info, NULL, &made->pipeline));
  for (int i = 0; i < 2; i++) {
    vkDestroyShaderModule(of->device, stages[i].module, NULL);
  }
}

void draw_points(VkCommandBuffer commands, const drawing *with, VkBuffer heights,
                 VkDeviceSize offset, uint32_t count) {
  VkClearValue clear = {.color.uint32 = {8, 12, 28, 255}};
  VkRenderPassBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_RENDER_PASS_BEGIN_INFO,
                                 .renderPass = with->pass,
                                 .framebuffer = with->target,
                                 .renderArea = {.extent = {with->side, with->side}},
                                 .clearValueCount = 1,
                                 .pClearValues = &clear};
  // A draw does not need what was in the image.
  change_layout(commands, with->image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL);
  vkCmdBeginRenderPass(commands, &begin, VK_SUBPASS_CONTENTS_INLINE);
  vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_GRAPHICS, with->pipeline);
  vkCmdBindVertexBuffers(commands, 0, 1, &heights, &offset);
  vkCmdDraw(commands, count, 1, 0, 0);
  vkCmdEndRenderPass(commands);
}

void destroy_drawing(const engine *of, drawing *gone) {
  vkDestroyPipeline(of->device, gone->pipeline, NULL);
  vkDestroyPipelineLayout(of->device, gone->layout, NULL);
  vkDestroyFramebuffer(of->device, gone->target, NULL);
  vkDestroyRenderPass(of->device, gone->pass, NULL);
  vkDestroyImageView(of->device, gone->view, NULL);
  vkDestroyImage(of->device, gone->image, NULL);
  vkFreeMemory(of->device, gone->memory, NULL);
}
