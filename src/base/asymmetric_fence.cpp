#include "base/asymmetric_fence.hpp"

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

bool AsymmetricFence::heavy() noexcept {
  if (!available()) return true;
  // A forked child may need its own registration.
  return fence_all_threads() || (register_process() && fence_all_threads());
}

}  // namespace kiln::base
