// A program that uses Vulkan and shaderc alone. vulkan_after.cpp is the same program with Kiln.
#include "vulkan_context.hpp"

#include <shaderc/shaderc.h>

#include <cstring>
#include <iostream>
#include <vector>

const char* source = R"(#version 450
layout(local_size_x = 64) in;
layout(push_constant) uniform Parameters { int n; float a; };
layout(std430, binding = 0) readonly buffer X { float x[]; };
layout(std430, binding = 1) buffer Y { float y[]; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i < n) y[i] += a * x[i];
}
)";

int main() try {
  Context context;
  if (!context.open()) return 77;
  VkDevice device = context.device;

  // Compiles in every process: to SPIR-V here, to code for the GPU in vkCreateComputePipelines.
  shaderc_compiler_t compiler = shaderc_compiler_initialize();
  shaderc_compilation_result_t spirv = shaderc_compile_into_spv(
      compiler, source, std::strlen(source), shaderc_glsl_compute_shader, "saxpy", "main", nullptr);
  if (shaderc_result_get_compilation_status(spirv) != shaderc_compilation_status_success) {
    std::cerr << shaderc_result_get_error_message(spirv);
    return 1;
  }
  VkShaderModuleCreateInfo shader_info{};
  shader_info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  shader_info.codeSize = shaderc_result_get_length(spirv);
  shader_info.pCode = reinterpret_cast<const std::uint32_t*>(shaderc_result_get_bytes(spirv));
  VkShaderModule shader = nullptr;
  check(vkCreateShaderModule(device, &shader_info, nullptr, &shader));
  shaderc_result_release(spirv);
  shaderc_compiler_release(compiler);

  // The layout repeats by hand what the shader declares.
  VkDescriptorSetLayoutBinding bindings[2]{};
  for (std::uint32_t i = 0; i < 2; ++i)
    bindings[i] = {i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr};
  const VkDescriptorSetLayoutCreateInfo set_info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, nullptr, 0, 2,
                                                 bindings};
  VkDescriptorSetLayout set_layout = nullptr;
  check(vkCreateDescriptorSetLayout(device, &set_info, nullptr, &set_layout));
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, 8};
  const VkPipelineLayoutCreateInfo layout_info{
      VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, nullptr, 0, 1, &set_layout, 1, &range};
  VkPipelineLayout layout = nullptr;
  check(vkCreatePipelineLayout(device, &layout_info, nullptr, &layout));
  VkComputePipelineCreateInfo pipeline_info{};
  pipeline_info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  pipeline_info.stage = {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                         nullptr,
                         0,
                         VK_SHADER_STAGE_COMPUTE_BIT,
                         shader,
                         "main",
                         nullptr};
  pipeline_info.layout = layout;
  VkPipeline pipeline = nullptr;
  check(vkCreateComputePipelines(device, nullptr, 1, &pipeline_info, nullptr, &pipeline));

  const int n = 1000;
  bool right = false;
  {
    const HostBuffer x(context, std::vector<float>(n, 2.0F));
    const HostBuffer y(context, std::vector<float>(n, 1.0F));

    const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 2};
    const VkDescriptorPoolCreateInfo pool_info{
        VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, nullptr, 0, 1, 1, &size};
    VkDescriptorPool pool = nullptr;
    check(vkCreateDescriptorPool(device, &pool_info, nullptr, &pool));
    const VkDescriptorSetAllocateInfo sets{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, nullptr, pool, 1,
                                           &set_layout};
    VkDescriptorSet set = nullptr;
    check(vkAllocateDescriptorSets(device, &sets, &set));
    const VkDescriptorBufferInfo buffers[] = {{x.handle, 0, VK_WHOLE_SIZE}, {y.handle, 0, VK_WHOLE_SIZE}};
    VkWriteDescriptorSet write{};
    write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
    write.dstSet = set;
    write.descriptorCount = 2;
    write.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    write.pBufferInfo = buffers;
    vkUpdateDescriptorSets(device, 1, &write, 0, nullptr);

    context.begin();
    const struct {
      int n;
      float a;
    } parameters = {n, 3.0F};
    vkCmdBindPipeline(context.commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    vkCmdBindDescriptorSets(context.commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &set, 0, nullptr);
    vkCmdPushConstants(context.commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof parameters, &parameters);
    vkCmdDispatch(context.commands, 16, 1, 1);
    const VkMemoryBarrier barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, VK_ACCESS_SHADER_WRITE_BIT,
                                  VK_ACCESS_HOST_READ_BIT};
    vkCmdPipelineBarrier(context.commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
                         &barrier, 0, nullptr, 0, nullptr);
    context.submit_and_wait();

    std::cout << y.content[0] << ' ' << y.content[n - 1] << '\n';
    right = y.content[0] == 7 && y.content[n - 1] == 7;
    vkDestroyDescriptorPool(device, pool, nullptr);
  }
  vkDestroyPipeline(device, pipeline, nullptr);
  vkDestroyPipelineLayout(device, layout, nullptr);
  vkDestroyDescriptorSetLayout(device, set_layout, nullptr);
  vkDestroyShaderModule(device, shader, nullptr);
  return right ? 0 : 1;
} catch (const std::exception& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
