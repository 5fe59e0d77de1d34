#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <epoxy/gl.h>

#include <kiln/device.hpp>
#include <kiln/opengl.hpp>
#include <kiln/slot.hpp>

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
    device.launch(module, {.groups = {4, 1, 1}, .arguments = {buffer.get(), by_value(parameters)}}).value();
    const auto results = download<float>(device, *buffer).value();
    for (std::size_t i = 0; i < results.size(); ++i)
      if (results[i] != static_cast<float>(i) * static_cast<float>(factor) + offset) return false;
    return true;
  }

  /// The same, run in a slot.
  static bool scales_in(Slot& slot, Device& device, Module& module, int factor, float offset) {
    std::vector<float> numbers(256);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    const std::size_t bytes = numbers.size() * sizeof(float);
    const auto buffer = device.allocate(bytes).value();
    const auto staged = slot.staging(bytes).value();
    std::memcpy(staged.data(), numbers.data(), bytes);
    const auto parameters = std::as_bytes(std::span(&offset, 1));
    slot.upload(*buffer, 0, 0, bytes).value();
    slot.launch(module, {.groups = {4, 1, 1}, .arguments = {buffer.get(), by_value(parameters)}}).value();
    slot.download(*buffer, 0, 0, bytes).value();
    slot.submit().value();
    slot.wait().value();
    std::vector<float> results(numbers.size());
    std::memcpy(results.data(), staged.data(), bytes);
    for (std::size_t i = 0; i < results.size(); ++i)
      if (results[i] != numbers[i] * static_cast<float>(factor) + offset) return false;
    return true;
  }

  /// Dispatches a program as an application does, in the context that is current, while another thread compiles,
  /// launches and destroys others.
  static void dispatch_while_others_are_destroyed(Device& device) {
    const Compiled kept = device.compile(scale(3)).value();
    const auto dispatch = [&] {
      glUseProgram(dynamic_cast<opengl::Module&>(*kept.module).id());
      glDispatchCompute(1, 1, 1);
      glFinish();
    };
    GLuint buffers[2];
    glGenBuffers(2, buffers);
    glBindBufferBase(GL_SHADER_STORAGE_BUFFER, 0, buffers[0]);
    glBufferData(GL_SHADER_STORAGE_BUFFER, 4096, nullptr, GL_DYNAMIC_COPY);
    glBindBufferBase(GL_UNIFORM_BUFFER, 0, buffers[1]);
    glBufferData(GL_UNIFORM_BUFFER, 4096, nullptr, GL_DYNAMIC_COPY);
    for (int round = 0; round < 5; ++round) {
      Compiled here = device.compile(scale(10 + round)).value();
      const GLuint id = dynamic_cast<opengl::Module&>(*here.module).id();
      dispatch();
      std::thread([&] {
        here.module.reset();
        const Compiled there = device.compile(scale(30 + round)).value();
        EXPECT_TRUE(scales(device, *there.module, 30 + round, 1));
      }).join();
      glFinish();
      dispatch();
      static_cast<void>(opengl::make_current(device).value());
      EXPECT_EQ(glIsProgram(id), GL_FALSE);
      dispatch();
    }
    EXPECT_EQ(glGetError(), static_cast<GLenum>(GL_NO_ERROR));
    glUseProgram(0);
    glDeleteBuffers(2, buffers);
  }

  TemporaryFolder folder_;
  LogBook book_;
  std::shared_ptr<Device> device_;
};

}  // namespace kiln::fakes
