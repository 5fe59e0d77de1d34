#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/kernel.hpp>
#include <kiln/kernels/tuner.hpp>

#include "contract/contract.hpp"

namespace kiln {

inline constexpr std::int64_t count = 5000;

/// y = 2 x, by groups of GROUP work items that take EACH elements each. With BUG 1 it computes something else, with
/// BUG 2 it does not compile, with BUG 3 it does not end, with BUG 5 it writes nothing.
inline Kernel twice(const Variant& variant) {
  return {.name = "twice_g" + std::to_string(variant[0]) + "_e" + std::to_string(variant[1]) + "_b" +
                  std::to_string(variant[2]),
          .buffers = {{"x"},
                      variant[2] == 3 ? KernelBuffer{"y", Type::u32, Access::read_write}
                                      : KernelBuffer{"y", Type::f32, Access::write}},
          .scalars = {{"count"}},
          .group_size = {static_cast<std::uint32_t>(variant[0]), 1, 1},
          .parameters = {{"EACH", std::to_string(variant[1])}, {"BUG", std::to_string(variant[2])}},
          .source = R"(KERNEL {
#if BUG == 3
  while (atomicAdd(y[0], 0u) != 7u) {
  }
#else
  for (int e = 0; e < EACH; ++e) {
    int i = (group_id_x * EACH + e) * GROUP_X + local_id_x;
    if (BUG != 5 && i < count) y[i] = 2.0f * x[i] + (BUG == 1 ? 0.5f : 0.0f);
  }
#endif
#if BUG == 2
  this is no program;
#endif
}
)"};
}

inline Tunable tunable(const std::shared_ptr<Device>& device, std::vector<int> bugs = {0},
                       std::int64_t size = count) {
  Tunable result{.kernel = "twice",
                 .sizes = {{"count", size}},
                 .parameters = {{"group", {32, 64}}, {"each", {1, 2, 4}}, {"bug", std::move(bugs)}},
                 .initial = {64, 1, 0},
                 .inputs = {{size}}};
  result.call = [device, size](const Variant& variant, const std::vector<Tensor>& inputs) -> Result<Tunable::Call> {
    const Kernel kernel = twice(variant);
    auto request = kernel.request(*device);
    if (!request) return std::move(request).error();
    auto y = Tensor::empty(device, {size});
    if (!y) return std::move(y).error();
    const auto per_group = static_cast<std::int64_t>(variant[0]) * variant[1];
    Step step{.request = *request,
              .launch = {.groups = {(size + per_group - 1) / per_group},
                         .group_size = kernel.group_size,
                         .arguments = {job_memory(0), job_memory(1), static_cast<std::int32_t>(size)}}};
    // Mesa's CPU drivers end all loops after 65,535 rounds; over so many groups, that takes years.
    if (variant[2] == 3) step.launch.groups = {65535, 65535};
    Job job{.name = "twice", .memory = {{.buffer = inputs[0].buffer()}, {.buffer = y->buffer()}}, .steps = {step}};
    return Tunable::Call{std::move(job), std::move(*y)};
  };
  return result;
}

class Tuning : public contract::Contract {
 protected:
  std::unique_ptr<Tuner> open(Cache& cache, TunePolicy policy = TunePolicy::lookup) {
    return open(cache, {.policy = policy});
  }
  std::unique_ptr<Tuner> open(Cache& cache, TuneOptions how) {
    how.duty = 1;
    how.begin_after = {};
    how.log = book_.log(LogLevel::info);
    return Tuner::create(device_, cache, how).value();
  }
  bool told(std::string_view text) const {
    return std::ranges::any_of(
        book_.records(), [&](const LogRecord& record) { return record.message.find(text) != std::string::npos; });
  }
  /// Calls it so often, each of which took so long by the device's clock.
  static void call(Tuner& tuner, const Tunable& tunable, int times,
                   const std::function<std::chrono::nanoseconds(const Variant&)>& took) {
    std::vector<std::int64_t> sizes;
    for (const TuneSize& size : tunable.sizes) sizes.push_back(size.value);
    for (int i = 0; i < times; ++i) {
      const Variant variant = tuner.choose(tunable);
      if (const auto report = tuner.watch(tunable.kernel, sizes, variant)) report({.compute = took(variant)});
    }
  }
};

}  // namespace kiln
