#pragma once

#include <kiln/kernel.hpp>

namespace kiln::kernels {

/// kernel.request(language), made once for each kernel of the library: writing one down and hashing it takes as
/// long as some kernels run. Safe from any thread.
Result<Request> known_request(const Kernel& kernel, Language language);

}  // namespace kiln::kernels
