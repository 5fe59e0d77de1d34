#include <cmath>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "backend/gl_fixture.hpp"

namespace kiln {
namespace {

using fakes::scale;

/// Launches in the context that is current.
class OpenGlStream : public fakes::GlTest {
 protected:
  Module& source(const std::string& text) {
    compiled_.push_back(device_->compile(Request({.name = "kernel", .source = text})).value());
    return *compiled_.back().module;
  }
  std::vector<Compiled> compiled_;
};

TEST_F(OpenGlStream, LaunchesAreCommandsOfTheContext) {
  const auto current = opengl::make_current(*device_).value();
  const auto stream = opengl::stream(*device_).value();
  const Compiled twice = device_->compile(scale(2)).value();
  const auto x = upload(*device_, std::vector<float>(64, 1)).value();
  for (int i = 0; i < 3; ++i) stream->launch(*twice.module, {.arguments = {x, static_cast<float>(i)}}).value();
  // A command of the application sees what the launches wrote.
  std::vector<float> numbers(64);
  glBindBuffer(GL_COPY_READ_BUFFER, opengl::memory(*x));
  glGetBufferSubData(GL_COPY_READ_BUFFER, 0, 256, numbers.data());
  EXPECT_EQ(numbers, std::vector<float>(64, 12));
  EXPECT_EQ(glGetError(), static_cast<GLenum>(GL_NO_ERROR));
}

TEST_F(OpenGlStream, LaunchesInFlightHaveUniformsOfTheirOwn) {
  const auto current = opengl::make_current(*device_).value();
  const auto stream = opengl::stream(*device_).value();
  Module& sum = source(R"(#version 430
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Data { float data[]; };
uniform float addend;
uniform int rounds;
void main() {
  float part = 0.0;
  for (int i = 0; i < rounds; ++i) part += sin(float(i)) * 1e-30;
  data[gl_GlobalInvocationID.x] += addend + part;
}
)");
  const auto x = upload(*device_, std::vector<float>(64, 0)).value();
  float expected = 0;
  for (int i = 0; i < 40; ++i) {
    const auto addend = static_cast<float>(i);
    stream->launch(sum, {.arguments = {x, named("addend", addend), named("rounds", 1000)}}).value();
    expected += addend;
  }
  glFinish();
  EXPECT_EQ(download<float>(*device_, *x).value(), std::vector<float>(64, expected));
}

TEST_F(OpenGlStream, IsForTheContextAndTheThreadThatHasIt) {
  EXPECT_EQ(opengl::stream(*device_).error().message(),
            "no context of " + device_->info().name + " is current on this thread; see opengl::make_current()");
  const auto current = opengl::make_current(*device_).value();
  const auto stream = opengl::stream(*device_).value();
  const Compiled twice = device_->compile(scale(2)).value();
  const auto x = upload(*device_, std::vector<float>(64, 1)).value();
  std::thread([&] {
    const auto launched = stream->launch(*twice.module, {.arguments = {x, 1.0F}});
    ASSERT_FALSE(launched);
    EXPECT_EQ(launched.error().code(), ErrorCode::invalid_request);
    EXPECT_EQ(launched.error().message(), "the context of " + device_->info().name +
                                              " with which the stream was made is not current on this thread");
  }).join();
  EXPECT_EQ(download<float>(*device_, *x).value(), std::vector<float>(64, 1));
}

TEST_F(OpenGlStream, MayBeDestroyedOnAnotherThread) {
  const auto current = opengl::make_current(*device_).value();
  auto stream = opengl::stream(*device_).value();
  auto thing = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = thing;
  stream->hold(std::move(thing));
  glFlush();
  std::thread([&] { stream.reset(); }).join();
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace kiln
