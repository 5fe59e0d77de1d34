#include "backend/refusal.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "backend/source_text.hpp"

namespace kiln::backend {
namespace {

/// Too much memory in the words of Mesa, of NVIDIA's ptxas and GLSL compiler, and of AMD's compilers.
constexpr std::array<std::string_view, 5> too_much_memory = {
    "Too much shared memory used", "uses too much shared data", "cannot locate suitable resource to bind variable",
    "local memory limit exceeded", "error: local memory ("};

}  // namespace

Error refusal(const Request& request, std::string log) {
  const bool lacks_memory = std::ranges::any_of(
      too_much_memory, [&](std::string_view words) { return log.find(words) != std::string::npos; });
  if (!lacks_memory) return compile_error(request, std::move(log));
  return Error(ErrorCode::unsupported,
               fmt::format("{} needs more shared memory, or larger arrays, than the device has", request.name()),
               std::move(log));
}

}  // namespace kiln::backend
