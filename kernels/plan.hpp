#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <kiln/kernel.hpp>
#include <kiln/kernels/kernels.hpp>
#include <kiln/kernels/tensor.hpp>

namespace kiln::kernels {

/// kernel.request(language), cached per kernel and language: building and hashing a request takes as long as some
/// kernels run. Safe from any thread.
Result<Request> known_request(const Kernel& kernel, Language language);

/// An error for invalid arguments of a call.
template <class... Arguments>
Error unfit(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  return Error(ErrorCode::invalid_request, fmt::format(text, std::forward<Arguments>(arguments)...));
}

/// Whether the device runs CUDA on this architecture or a newer one, for example 80 for sm_80.
bool is_cuda_from(const DeviceInfo& device, int architecture);

/// Mesa's CPU drivers silently end the loops of a work item after this many iterations, summed over all loops.
constexpr std::int64_t most_loop_steps = 65535;
/// Whether a device has this limit.
inline bool ends_long_loops(const DeviceInfo& device) {
  return device.software && (device.language == Language::glsl || device.language == Language::vulkan_glsl);
}

/// Whether the device runs this many loop iterations.
inline bool goes_through(const DeviceInfo& device, std::int64_t loop_steps) {
  return !ends_long_loops(device) || loop_steps <= most_loop_steps;
}

/// The number of work items that keeps a large GPU busy while they wait for memory.
constexpr std::int64_t items_of_a_busy_gpu = 65536;

/// a / b, rounded up.
constexpr std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The number of groups for kernels that stride over their work: one per piece, up to the limit of all devices.
std::uint32_t groups_for(std::int64_t pieces);
/// The largest number of pieces per group then.
inline std::int64_t pieces_each(std::int64_t pieces) { return quotient_up(pieces, groups_for(pieces)); }

/// Converts a size for a kernel; sizes of tensors always fit.
inline std::int32_t number(std::int64_t value) { return static_cast<std::int32_t>(value); }

/// A condition as a kernel parameter.
inline std::string flag(bool is_so) { return std::to_string(is_so ? 1 : 0); }

/// The operations and memory traffic of a step.
struct Work {
  double flops = 0;
  double bytes = 0;
  /// An upper bound for the loop iterations of a work item; 0 if there are few.
  std::int64_t loop_steps = 0;
};

/// Builds the job of one call. Converts f16 tensors before the first step and after the last. Keeps the first
/// error, which finish() returns.
class Plan {
 public:
  using Place = std::size_t;

  /// `call` is the prefix of error messages. Fails unless all tensors are on the runner's device.
  static Result<Plan> of(std::string call, Runner on,
                         const std::vector<std::pair<const char*, const Tensor*>>& tensors);

  const DeviceInfo& device() const { return on_.device()->info(); }
  bool tuned() const { return on_.tuner() != nullptr; }
  /// For calls that do more work than the tuned one: does not report their times to the tuner.
  void do_not_tell() { tells_ = false; }
  /// The variant that the runner's tuner chooses for this call. The job reports its time to the tuner.
  Variant choose(std::string_view kernel, std::span<const std::int64_t> sizes,
                 const std::function<Tunable()>& describe);
  /// The place of a tensor as f32, converted if necessary.
  Place read(const Tensor& tensor);
  /// The place of a tensor in its own type.
  Place read_as_it_is(const Tensor& tensor);
  /// Temporary memory for this many floats. More than Tensor::max_count is an error.
  Place scratch(std::int64_t floats);
  /// The place for the call's result as f32; converted at the end if `type` is f16.
  Place write(Shape shape, Type type);
  /// The place for the call's result in its own type.
  Place write_as_it_is(Shape shape, Type type);

  /// Adds a one-dimensional launch of `groups` groups. More loop iterations than the device runs are an error.
  void step(const Kernel& kernel, std::uint32_t groups, const std::vector<Place>& memory,
            const std::vector<Scalar>& scalars, Work work);

  /// Runs the job. If the result is empty, only waits for the inputs.
  Result<Tensor> finish() &&;

 private:
  Plan(std::string call, Runner on) : on_(on) { job_.name = std::move(call); }

  Runner on_;
  Job job_;
  std::shared_ptr<Device> device_;
  std::optional<Tensor> result_;
  /// If the result is f16: the places of the f32 result and of the converted one.
  std::optional<Place> unconverted_;
  Place converted_ = 0;
  std::optional<Error> error_;
  /// Whether to report the time to the tuner; false if tensors are converted.
  bool tells_ = true;
};

}  // namespace kiln::kernels
