#include "convolution.hpp"

#include <optional>

#include <fmt/format.h>

namespace kiln::bench {

std::string Convolution::name() const {
  return fmt::format("{}x{}x{}_{}x{}", images, channels, size, filters, extent);
}

Convolution::Work Convolution::work(const std::shared_ptr<Device>& device) const {
  std::vector<float> values(static_cast<std::size_t>(filters * channels * extent * extent));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3;
  const Tensor w = Tensor::from(device, {filters, channels, extent, extent}, values).value();
  const Tensor x = Tensor::empty(device, input()).value();
  std::optional<Job> job;
  const Runner keep(*device, [&job](Job made) -> Result<Pending> {
    job = std::move(made);
    return Pending();
  });
  conv2d(keep, x, w, {.padding = {extent / 2, extent / 2}}).value();
  Work work{job->steps.at(0), w.buffer()};
  for (Argument& argument : work.step.launch.arguments)
    if (const auto* place = argument.as<Argument::Memory>()) {
      const auto& buffer = job->memory[place->index].buffer;
      argument = job_memory(buffer == x.buffer() ? 0 : buffer == w.buffer() ? 1 : 2);
    }
  return work;
}

}  // namespace kiln::bench
