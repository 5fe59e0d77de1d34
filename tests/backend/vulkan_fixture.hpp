#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include <kiln/device.hpp>
#include <kiln/slot.hpp>
#include <kiln/vulkan.hpp>

#include "fakes/cache_fixture.hpp"

namespace kiln::fakes {

/// A program that multiplies every number of buffer 0 by `factor`, and adds the parameter.
inline Request vulkan_scale(int factor) {
  return Request({.name = "scale_" + std::to_string(factor),
                  .source = R"(#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Data { float data[]; };
layout(push_constant) uniform Parameters { float offset; };
void main() { data[gl_GlobalInvocationID.x] = data[gl_GlobalInvocationID.x] * FACTOR + offset; }
)",
                  .language = Language::vulkan_glsl,
                  .defines = {{"FACTOR", std::to_string(factor) + ".0"}}});
}

/// A program of one item a group, that has `body` in it and `declarations` before it.
inline Request vulkan_program(std::string name, const std::string& declarations, const std::string& body) {
  return Request(
      {.name = std::move(name),
       .source = "#version 450\nlayout(local_size_x = 1) in;\n" + declarations + "\nvoid main() { " + body + " }\n",
       .language = Language::vulkan_glsl});
}

/// The real driver of this machine: lavapipe where there is no GPU.
class VulkanTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_device("vulkan", book_.log());
    ASSERT_TRUE(opened) << opened.error().describe();
    device_ = *opened;
  }

  CacheOptions options() {
    CacheOptions options;
    options.directory = folder_.path() / "cache";
    options.log = book_.log();
    return options;
  }

  /// Whether the program, run on the device, does what vulkan_scale(factor) says.
  static bool scales(Device& device, Module& module, int factor, float offset) {
    std::vector<float> numbers(256);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    const auto buffer = upload(device, numbers).value();
    const auto parameters = std::as_bytes(std::span(&offset, 1));
    device.launch(module, {.groups = {4, 1, 1}, .arguments = {buffer.get(), by_value(parameters)}}).value();
    const auto results = download<float>(device, *buffer).value();
    for (std::size_t i = 0; i < results.size(); ++i)
      if (results[i] != static_cast<float>(i) * static_cast<float>(factor) + offset) return false;
    return true;
  }

  /// Whether bytes come back through a slot as they went to a buffer.
  static bool passes_through(Slot& slot, Device& device) {
    constexpr std::size_t count = 100'003;
    const auto buffer = device.allocate(count).value();
    const auto staged = slot.staging(2 * count).value();
    for (std::size_t i = 0; i < count; ++i) staged[i] = static_cast<std::byte>(i * 7 + (i >> 8U));
    slot.upload(*buffer, 0, 0, count).value();
    slot.download(*buffer, 0, count, count).value();
    slot.submit().value();
    slot.wait().value();
    return std::equal(staged.begin(), staged.begin() + count, staged.begin() + count, staged.begin() + 2 * count);
  }

  TemporaryFolder folder_;
  LogBook book_;
  std::shared_ptr<Device> device_;
};

}  // namespace kiln::fakes
