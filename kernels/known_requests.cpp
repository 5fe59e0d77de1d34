#include "kernels/plan.hpp"

#include <map>
#include <utility>

#include "base/mutex.hpp"

namespace kiln::kernels {
namespace {

struct Known {
  Kernel kernel;
  Request request;
};

struct Requests {
  base::Mutex mutex;
  /// Keyed by the kernel's name and the language.
  std::map<std::pair<std::string, Language>, Known> known KILN_GUARDED_BY(mutex);
};

}  // namespace

Result<Request> known_request(const Kernel& kernel, Language language) {
  // A process-wide cache, because a kernel's request never changes. Bounded: variants are few, but kernels
  // specialised for the sizes of one call may be many.
  constexpr std::size_t most = 4096;
  static auto* const requests = new Requests;
  {
    const base::MutexLock lock(requests->mutex);
    const auto found = requests->known.find({kernel.name, language});
    if (found != requests->known.end() && found->second.kernel == kernel) return found->second.request;
  }
  auto made = kernel.request(language);
  if (!made) return made;
  const base::MutexLock lock(requests->mutex);
  if (requests->known.size() >= most) requests->known.clear();
  requests->known.insert_or_assign({kernel.name, language}, Known{kernel, *made});
  return made;
}

}  // namespace kiln::kernels
