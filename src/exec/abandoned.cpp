#include "exec/abandoned.hpp"

#include <vector>

#include "base/mutex.hpp"

namespace kiln::exec {

void abandon(std::shared_ptr<const void> thing) {
  struct Abandoned {
    base::Mutex mutex;
    std::vector<std::shared_ptr<const void>> things KILN_GUARDED_BY(mutex);
  };
  // Of the process, and never destroyed: a device is not done with a thing when its executor is.
  static auto* const abandoned = new Abandoned;
  const base::MutexLock lock(abandoned->mutex);
  abandoned->things.push_back(std::move(thing));
}

}  // namespace kiln::exec
