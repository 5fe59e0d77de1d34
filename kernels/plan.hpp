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

/// kernel.request(language), made once for each kernel of the library: writing one down and hashing it takes as
/// long as some kernels run. Safe from any thread.
Result<Request> known_request(const Kernel& kernel, Language language);

/// An error about a call's arguments.
template <class... Arguments>
Error unfit(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  return Error(ErrorCode::invalid_request, fmt::format(text, std::forward<Arguments>(arguments)...));
}

/// Whether a device runs CUDA on an architecture that is not older, such as 80 for sm_80.
bool is_cuda_from(const DeviceInfo& device, int architecture);

/// Mesa's drivers for CPUs end a work item's loops after so many steps, all loops counted together, and tell
/// nobody.
constexpr std::int64_t most_loop_steps = 65535;
/// Whether a device does that.
inline bool ends_long_loops(const DeviceInfo& device) {
  return device.software && (device.language == Language::glsl || device.language == Language::vulkan_glsl);
}

/// Whether it goes through so many steps of loops.
inline bool goes_through(const DeviceInfo& device, std::int64_t loop_steps) {
  return !ends_long_loops(device) || loop_steps <= most_loop_steps;
}

/// So many work items keep a large GPU busy while each of them waits for memory.
constexpr std::int64_t items_of_a_busy_gpu = 65536;

/// `a / b`, rounded up.
constexpr std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// For kernels that stride over their work: a group for each piece, as far as every device has so many.
std::uint32_t groups_for(std::int64_t pieces);
/// How many pieces a group has then, at most.
inline std::int64_t pieces_each(std::int64_t pieces) { return quotient_up(pieces, groups_for(pieces)); }

/// A number for a kernel; all sizes of tensors are.
inline std::int32_t number(std::int64_t value) { return static_cast<std::int32_t>(value); }

/// A condition, as a parameter of a kernel.
inline std::string flag(bool is_so) { return std::to_string(is_so ? 1 : 0); }

/// How much a step computes and moves.
struct Work {
  double flops = 0;
  double bytes = 0;
  /// How many steps of loops a work item takes, at most; 0 is for few.
  std::int64_t loop_steps = 0;
};

/// The job of one call, as it is put together: tensors of f16 are converted before the first step and after the
/// last. An error in a step is kept, and is the answer of finish().
class Plan {
 public:
  using Place = std::size_t;

  /// `call` is what errors begin with. The tensors must be on the runner's device.
  static Result<Plan> of(std::string call, Runner on,
                         const std::vector<std::pair<const char*, const Tensor*>>& tensors);

  const DeviceInfo& device() const { return on_.device()->info(); }
  bool tuned() const { return on_.tuner() != nullptr; }
  /// For calls that do more than what is measured: nobody is told what they took.
  void do_not_tell() { tells_ = false; }
  /// The variant that the runner's tuner chooses for this call; it is told what that took.
  Variant choose(std::string_view kernel, std::span<const std::int64_t> sizes,
                 const std::function<Tunable()>& describe);
  /// Where a step finds a tensor as f32.
  Place read(const Tensor& tensor);
  /// Where it finds it as it is.
  Place read_as_it_is(const Tensor& tensor);
  /// Memory for so many floats, for the time of the job. More than Tensor::max_count are an error.
  Place scratch(std::int64_t floats);
  /// The call's result, as f32.
  Place write(Shape shape, Type type);
  /// The call's result, as it is.
  Place write_as_it_is(Shape shape, Type type);

  /// `groups` groups, in one dimension. What takes more steps of loops than the device goes through is an error.
  void step(const Kernel& kernel, std::uint32_t groups, std::vector<Place> memory,
            const std::vector<Scalar>& scalars, Work work);

  /// Runs it; of a result without elements, only what it waits for is waited for.
  Result<Tensor> finish() &&;

 private:
  Plan(std::string call, Runner on) : on_(on) { job_.name = std::move(call); }

  Runner on_;
  Job job_;
  std::shared_ptr<Device> device_;
  std::optional<Tensor> result_;
  /// Where the result is as f32, when it is to be f16, and where it is to be.
  std::optional<Place> unconverted_;
  Place converted_ = 0;
  std::optional<Error> error_;
  /// Whether a tuner is told what it took; not where tensors are converted.
  bool tells_ = true;
};

}  // namespace kiln::kernels
