#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <kiln/device.hpp>
#include <kiln/opengl.hpp>

#include "fakes/cache_fixture.hpp"

namespace kiln::fakes {

/// A program that multiplies every number of buffer 0 by `factor`, and adds the parameter.
inline Request scale(int factor) {
  return Request({.name = "scale_" + std::to_string(factor),
                  .source = R"(#version 430
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Data { float data[]; };
layout(std140, binding = 0) uniform Parameters { float offset; };
void main() { data[gl_GlobalInvocationID.x] = data[gl_GlobalInvocationID.x] * FACTOR + offset; }
)",
                  .defines = {{"FACTOR", std::to_string(factor) + ".0"}}});
}

/// The real driver of this machine: llvmpipe where there is no GPU.
class GlTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_device("opengl", book_.log());
    ASSERT_TRUE(opened) << opened.error().describe();
    device_ = *opened;
  }

  CacheOptions options() {
    CacheOptions options;
    options.directory = folder_.path() / "cache";
    options.log = book_.log();
    return options;
  }

  /// Whether the program, run on the device, does what scale(factor) says.
  static bool scales(Device& device, Module& module, int factor, float offset) {
    std::vector<float> numbers(256);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    const auto buffer = upload(device, numbers).value();
    const auto parameters = std::as_bytes(std::span(&offset, 1));
    device
        .launch(
            module,
            {.groups = {4, 1, 1}, .buffers = {buffer.get()}, .parameters = {parameters.begin(), parameters.end()}})
        .value();
    const auto results = download<float>(device, *buffer).value();
    for (std::size_t i = 0; i < results.size(); ++i)
      if (results[i] != static_cast<float>(i) * static_cast<float>(factor) + offset) return false;
    return true;
  }

  TemporaryFolder folder_;
  LogBook book_;
  std::shared_ptr<Device> device_;
};

}  // namespace kiln::fakes
