#pragma once

#include <cstddef>
#include <vector>

#include <kiln/kernel.hpp>

namespace kiln::bench {

/// `count` different programs of the size that people write: convolutions, matrix products and attention, unrolled
/// in different shapes.
std::vector<Kernel> programs(std::size_t count);

/// `count` different programs of a few lines each.
std::vector<Kernel> small_programs(std::size_t count);

}  // namespace kiln::bench
