#include <array>

#include <kiln/bundle.hpp>

namespace kiln {
namespace {

constexpr std::array policies = {CompilePolicy::always, CompilePolicy::never, CompilePolicy::background};

}  // namespace

std::string_view to_string(CompilePolicy policy) noexcept {
  switch (policy) {
    case CompilePolicy::always: return "always";
    case CompilePolicy::never: return "never";
    case CompilePolicy::background: return "background";
  }
  return "unknown";
}

std::optional<CompilePolicy> compile_policy_of(std::string_view name) noexcept {
  for (const CompilePolicy policy : policies)
    if (to_string(policy) == name) return policy;
  return std::nullopt;
}

}  // namespace kiln
