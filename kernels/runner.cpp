#include <utility>

#include <kiln/kernels/kernels.hpp>

#include "base/try.hpp"

namespace kiln {
namespace {

/// The job's buffers; allocates those that the caller did not provide.
Result<std::vector<std::shared_ptr<Buffer>>> memory_of(Device& device, const Job& job) {
  std::vector<std::shared_ptr<Buffer>> buffers;
  for (const JobMemory& memory : job.memory) {
    if (memory.buffer != nullptr) {
      buffers.push_back(memory.buffer);
      continue;
    }
    auto own = KILN_TRY(device.allocate(memory.bytes));
    buffers.push_back(std::move(own));
  }
  return buffers;
}

/// Runs the steps of a library job one after the other. Library jobs neither upload nor download.
Result<Pending> run_steps(Cache& cache, const Job& job) {
  auto& device = dynamic_cast<Device&>(cache.backend());
  for (const Pending& before : job.after)
    if (const Error* error = before.error()) return *error;
  const auto buffers = KILN_TRY(memory_of(device, job));
  std::vector<const Buffer*> places;
  for (const auto& buffer : buffers) places.push_back(buffer.get());
  for (const Step& step : job.steps) {
    auto program = KILN_TRY(cache.get(step.request));
    KILN_TRY(device.launch(program.module(), step.launch.with(places)));
  }
  return Pending();
}

}  // namespace

Runner::Runner(Cache& cache)
    : device_(dynamic_cast<Device*>(&cache.backend())),
      run_([&cache](const Job& job) { return run_steps(cache, job); }) {}

Runner::Runner(Executor& executor)
    : Runner(executor.device(),
             [&executor](Job job) -> Result<Pending> { return executor.submit(std::move(job)); }) {}

Runner::Runner(StreamExecutor& executor)
    : device_(dynamic_cast<Device*>(&executor.cache().backend())),
      run_([&executor](const Job& job) -> Result<Pending> {
        KILN_TRY(executor.submit(job));
        return Pending();
      }) {}

}  // namespace kiln
