#pragma once

#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <kiln/kernels.hpp>
#include <kiln/tune.hpp>

namespace kiln::kernels {

/// What a call of the library's comes to, without being run: its job and its result.
template <class F>
Result<Tunable::Call> call_of(const std::vector<Tensor>& inputs, F call) {
  Job job;
  const Runner keeps(*inputs.front().device(), [&job](Job given) -> Result<Pending> {
    job = std::move(given);
    return Pending();
  });
  auto result = call(keeps);
  if (!result) return std::move(result).error();
  return Tunable::Call{std::move(job), std::move(*result)};
}

}  // namespace kiln::kernels
