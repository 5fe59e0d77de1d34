#pragma once

#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <kiln/kernels/kernels.hpp>
#include <kiln/kernels/tuner.hpp>

#include "base/try.hpp"

namespace kiln::kernels {

/// The last parameter of every kernel of the library's: whether its program is for the sizes of the call alone.
inline Tunable with_constants(Tunable tunable) {
  tunable.parameters.push_back({.name = "c", .values = {0, 1}, .when_frequent = true});
  tunable.initial.push_back(0);
  return tunable;
}
inline bool takes_constants(const Variant& variant) { return variant.back() != 0; }

/// What a call of the library's comes to by a variant, without being run: its job and its result.
template <class F>
Result<Tunable::Call> call_of(const std::vector<Tensor>& inputs, const Variant& variant, F call) {
  Job job;
  const Runner keeps(*inputs.front().device(), [&job](Job given) -> Result<Pending> {
    job = std::move(given);
    return Pending();
  });
  auto result = KILN_TRY(call(takes_constants(variant) ? keeps.with_constants() : keeps));
  return Tunable::Call{std::move(job), std::move(result)};
}

}  // namespace kiln::kernels
