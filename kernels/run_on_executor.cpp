#include <utility>

#include <kiln/kernels/kernels.hpp>

namespace kiln {

Runner::Runner(Executor& executor)
    : Runner(executor.device(),
             [&executor](Job job) -> Result<Pending> { return executor.submit(std::move(job)); }) {}

}  // namespace kiln
