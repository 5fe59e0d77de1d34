#include "exec/job.hpp"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

namespace kiln::exec {

std::string title(const Job& job) { return job.name.empty() ? "a job" : job.name; }

std::size_t size_of(const JobMemory& memory) {
  if (memory.buffer != nullptr) return memory.buffer->size();
  return std::max({memory.bytes, memory.upload.size(), memory.download.size()});
}

std::size_t rounded(std::size_t bytes) {
  constexpr std::size_t smallest = 4096;
  if (bytes <= smallest) return smallest;
  const std::size_t step = std::bit_floor(bytes) / 4;
  return bytes + (step - 1) < bytes ? bytes : (bytes + step - 1) / step * step;
}

Result<void> check(const Job& job) {
  const auto refuse = [&job](std::string why) {
    return Error(ErrorCode::invalid_request, fmt::format("{}: {}", title(job), why));
  };
  for (std::size_t i = 0; i < job.memory.size(); ++i) {
    const JobMemory& memory = job.memory[i];
    if (memory.fill && !memory.upload.empty())
      return refuse(fmt::format("memory {} has both upload and fill; set only one", i));
    if (memory.drain && !memory.download.empty())
      return refuse(fmt::format("memory {} has both download and drain; set only one", i));
    if (memory.buffer == nullptr) continue;
    for (const std::size_t bytes : {memory.bytes, memory.upload.size(), memory.download.size()})
      if (bytes > memory.buffer->size())
        return refuse(fmt::format("{} bytes of memory {} do not fit in its buffer of {} bytes", bytes, i,
                                  memory.buffer->size()));
  }
  for (const Step& step : job.steps)
    for (const Argument& argument : step.launch.arguments) {
      // After a timeout, the device may still use what the caller has destroyed.
      if (argument.as<Argument::Range>() != nullptr || argument.as<NativeObject>() != nullptr)
        return refuse(
            fmt::format("{} has a buffer, an image or a sampler as an argument; put buffers into Job::memory, "
                        "and give job_memory()",
                        step.request.name()));
      if (const auto* memory = argument.as<Argument::Memory>();
          memory != nullptr && memory->index >= job.memory.size())
        return refuse(fmt::format("{} uses memory {}, but Job::memory has size {}", step.request.name(),
                                  memory->index, job.memory.size()));
    }
  return {};
}

}  // namespace kiln::exec
