#include <utility>

#include <kiln/backend.hpp>

#include "base/try.hpp"

namespace kiln {

unsigned Backend::accepts(const Identity& target) const {
  return target.target_digest() == identity().target_digest() ? 1 : 0;
}

Result<Compiled> Backend::adapt(const Identity& /*target*/, const Binary& binary) {
  return Compiled{.module = KILN_TRY(load(binary))};
}

}  // namespace kiln
