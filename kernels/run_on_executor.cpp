#include <utility>

#include <kiln/kernels.hpp>

namespace kiln {

Runner::Runner(Executor& executor)
    : device_(&executor.device()), on_(&executor), run_([](void* on, Job job) -> Result<Pending> {
        return Pending(static_cast<Executor*>(on)->submit(std::move(job)));
      }) {}

}  // namespace kiln
