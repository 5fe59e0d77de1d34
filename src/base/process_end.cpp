#include "base/process_end.hpp"

#include <atomic>
#include <cstdlib>

#include <link.h>

namespace kiln::base {
namespace {

std::atomic<bool> ends{false};
std::atomic<unsigned long long> libraries_expected{0};

/// How many libraries this process has ever loaded.
unsigned long long libraries_loaded() {
  unsigned long long count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* told) {
        *static_cast<unsigned long long*>(told) = info->dlpi_adds;
        return 1;
      },
      &count);
  return count;
}

}  // namespace

void expect_process_end() {
  // Handlers run last in, first out: this one before those of the libraries there are now. Later ones need another.
  const unsigned long long loaded = libraries_loaded();
  if (libraries_expected.exchange(loaded) != loaded)
    static_cast<void>(std::atexit([] { ends.store(true, std::memory_order_relaxed); }));
}

bool process_ends() noexcept { return ends.load(std::memory_order_relaxed); }

}  // namespace kiln::base
