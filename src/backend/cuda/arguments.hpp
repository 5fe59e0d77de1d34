#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/image.hpp"

namespace kiln::cuda {

/// How many bytes each argument of a kernel takes, as its image tells; nothing where the image is not whole, has no
/// such kernel, or does not tell. Drivers are handed arguments without their number, so that one must know it.
std::optional<std::vector<std::size_t>> argument_sizes(std::span<const std::byte> image, ImageKind kind,
                                                       const std::string& entry);

}  // namespace kiln::cuda
