#include <utility>

#include <kiln/kernels/kernels.hpp>

namespace kiln {
namespace {

/// A step's own memory where the job has none of the caller's.
Result<std::vector<std::shared_ptr<Buffer>>> memory_of(Device& device, const Job& job) {
  std::vector<std::shared_ptr<Buffer>> buffers;
  for (const JobMemory& memory : job.memory) {
    if (memory.buffer != nullptr) {
      buffers.push_back(memory.buffer);
      continue;
    }
    auto own = device.allocate(memory.bytes);
    if (!own) return std::move(own).error();
    buffers.push_back(std::move(*own));
  }
  return buffers;
}

/// Runs the steps of a job of the library's one after the other. Such a job neither uploads nor downloads.
Result<Pending> run_steps(Cache& cache, const Job& job) {
  auto& device = dynamic_cast<Device&>(cache.backend());
  for (const Pending& before : job.after)
    if (const Error* error = before.error()) return *error;
  auto buffers = memory_of(device, job);
  if (!buffers) return std::move(buffers).error();
  for (const Step& step : job.steps) {
    auto program = cache.get(step.request);
    if (!program) return std::move(program).error();
    Launch launch{.groups = step.groups, .group_size = step.group_size, .parameters = step.parameters};
    for (const std::size_t place : step.memory) launch.buffers.push_back((*buffers)[place].get());
    if (auto done = device.launch(program->module(), launch); !done) return std::move(done).error();
  }
  return Pending();
}

}  // namespace

Runner::Runner(Cache& cache)
    : device_(dynamic_cast<Device*>(&cache.backend())),
      run_([&cache](const Job& job) { return run_steps(cache, job); }) {}

}  // namespace kiln
