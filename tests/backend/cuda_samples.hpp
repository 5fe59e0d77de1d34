#pragma once

#include <span>
#include <string>
#include <vector>

#include <kiln/device.hpp>

namespace kiln::fakes {

/// A program that multiplies every number of its buffer by `factor`, and adds the parameter.
inline Request cuda_scale(int factor, Language language = Language::cuda) {
  return Request({.name = "scale_" + std::to_string(factor),
                  .source = R"(struct Parameters { float offset; };
extern "C" __global__ void scale(float* data, Parameters parameters) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] = data[i] * FACTOR + parameters.offset;
}
)",
                  .entries = {"scale"},
                  .language = language,
                  .defines = {{"FACTOR", std::to_string(factor) + ".0f"}}});
}

/// A launch on 256 numbers.
inline Launch cuda_launch(const Buffer& buffer, float offset) {
  return {.groups = {4, 1, 1}, .group_size = {64, 1, 1}, .arguments = {&buffer, offset}};
}

/// Whether the program, run on the device, does what cuda_scale(factor) says.
inline bool cuda_scales(Device& device, Module& module, int factor, float offset) {
  std::vector<float> numbers(256);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const auto buffer = upload(device, numbers).value();
  device.launch(module, cuda_launch(*buffer, offset)).value();
  const auto results = download<float>(device, *buffer).value();
  for (std::size_t i = 0; i < results.size(); ++i)
    if (results[i] != static_cast<float>(i) * static_cast<float>(factor) + offset) return false;
  return true;
}

}  // namespace kiln::fakes
