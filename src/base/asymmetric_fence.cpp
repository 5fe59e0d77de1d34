#include "base/asymmetric_fence.hpp"

#include <cstdlib>

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace kiln::base {

namespace {

bool register_process() noexcept {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

bool fence_all_threads() noexcept { return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0; }

}  // namespace

bool AsymmetricFence::available() noexcept {
  static const bool registered = register_process();
  return registered;
}

void AsymmetricFence::heavy() noexcept {
  if (fence_all_threads()) return;
  // A forked child may have to register itself. Going on without the fence could hand out a freed program.
  if (!register_process() || !fence_all_threads()) std::abort();
}

}  // namespace kiln::base
