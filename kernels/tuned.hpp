#pragma once

#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <kiln/kernels/kernels.hpp>
#include <kiln/kernels/tuner.hpp>

#include "base/try.hpp"

namespace kiln::kernels {

/// Adds the last parameter of every library kernel: whether the program is compiled for the sizes of the call.
inline Tunable with_constants(Tunable tunable) {
  tunable.parameters.push_back({.name = "c", .values = {0, 1}, .when_frequent = true});
  tunable.initial.push_back(0);
  return tunable;
}
inline bool takes_constants(const Variant& variant) { return variant.back() != 0; }

/// The job and result of a library call with a variant, without running it.
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
