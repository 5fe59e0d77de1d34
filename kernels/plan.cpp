#include "kernels/plan.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/try.hpp"
#include "kernels/rows.hpp"
#include "kernels/tuned.hpp"

namespace kiln::kernels {

bool is_cuda_from(const DeviceInfo& device, int architecture) {
  constexpr std::string_view start = "sm_";
  const std::string& name = device.traits.architecture;
  return device.language == Language::cuda && name.starts_with(start) &&
         std::atoi(name.c_str() + start.size()) >= architecture;
}

std::uint32_t groups_for(std::int64_t pieces) {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(pieces, 1, 65535));
}

Result<Plan> Plan::of(std::string call, Runner on,
                      const std::vector<std::pair<const char*, const Tensor*>>& tensors) {
  if (on.device() == nullptr) return unfit("{}: the backend of the cache is not a device", call);
  for (const auto& [name, tensor] : tensors)
    if (tensor->device().get() != on.device())
      return unfit("{}: {} is on another device; the call runs on {}", call, name, on.device()->info().name);
  Plan plan(std::move(call), on);
  plan.device_ = tensors.front().second->device();
  return plan;
}

Plan::Place Plan::read_as_it_is(const Tensor& tensor) {
  if (!tensor.pending().ready() || tensor.pending().error() != nullptr) job_.after.push_back(tensor.pending());
  for (Place place = 0; place < job_.memory.size(); ++place)
    if (job_.memory[place].buffer == tensor.buffer()) return place;
  job_.memory.push_back({.buffer = tensor.buffer()});
  return job_.memory.size() - 1;
}

Plan::Place Plan::read(const Tensor& tensor) {
  const Place place = read_as_it_is(tensor);
  if (tensor.type() == Type::f32) return place;
  tells_ = false;
  const Place converted = scratch(tensor.count());
  add_conversion(*this, {place, Type::f16}, {converted, Type::f32}, tensor.count());
  return converted;
}

Plan::Place Plan::scratch(std::int64_t floats) {
  if (!error_ && floats > Tensor::max_count)
    error_.emplace(ErrorCode::unsupported, fmt::format("{}: its {} intermediate values exceed the limit of {}",
                                                       job_.name, floats, Tensor::max_count));
  job_.memory.push_back(
      {.bytes = static_cast<std::size_t>(std::max<std::int64_t>(quotient_up(floats, 4), 1)) * 16});
  return job_.memory.size() - 1;
}

Plan::Place Plan::write_as_it_is(Shape shape, Type type) {
  auto result = Tensor::empty(device_, std::move(shape), type);
  if (!result) {
    if (!error_) error_.emplace(result.error().code(), fmt::format("{}: {}", job_.name, result.error().message()));
    return 0;
  }
  result_ = std::move(*result);
  job_.memory.push_back({.buffer = result_->buffer()});
  return job_.memory.size() - 1;
}

Plan::Place Plan::write(Shape shape, Type type) {
  const Place place = write_as_it_is(std::move(shape), type);
  if (error_ || type == Type::f32) return place;
  tells_ = false;
  converted_ = place;
  unconverted_ = scratch(result_->count());
  return *unconverted_;
}

void Plan::step(const Kernel& kernel, std::uint32_t groups, const std::vector<Place>& memory,
                const std::vector<Scalar>& scalars, Work work) {
  if (error_) return;
  if (auto fits = kernel.fits(*on_.device()); !fits) {
    error_ = std::move(fits).error();
    return;
  }
  const bool runs = !result_ || result_->count() > 0;
  if (runs && !goes_through(device(), work.loop_steps)) {
    error_.emplace(
        ErrorCode::unsupported,
        fmt::format("{}: the loops of a work item need about {} steps, but the driver of {} stops them after {}",
                    job_.name, work.loop_steps, device().name, most_loop_steps));
    return;
  }
  const auto special = on_.constants() ? kernel.specialised(scalars) : Result<Kernel>(kernel);
  if (!special) {
    error_ = special.error();
    return;
  }
  auto request = known_request(*special, on_.device()->info().language);
  std::vector<Scalar> others = scalars;
  if (on_.constants())
    std::erase_if(others, [](const Scalar& scalar) { return std::holds_alternative<std::int32_t>(scalar); });
  auto parameters = special->pack(others);
  if (!request || !parameters) {
    error_ = !request ? request.error() : parameters.error();
    return;
  }
  Launch launch{.groups = {groups}, .group_size = kernel.group_size};
  for (const Place place : memory) launch.arguments.emplace_back(job_memory(place));
  if (!parameters->empty()) launch.arguments.push_back(by_value(*parameters));
  job_.steps.push_back(
      {.request = std::move(*request), .launch = std::move(launch), .flops = work.flops, .bytes = work.bytes});
}

Variant Plan::choose(std::string_view kernel, std::span<const std::int64_t> sizes,
                     const std::function<Tunable()>& describe) {
  Variant variant = on_.tuner()->choose(kernel, sizes, describe);
  if (takes_constants(variant)) on_ = on_.with_constants();
  job_.report = on_.tuner()->watch(kernel, sizes, variant);
  return variant;
}

Result<Tensor> Plan::finish() && {
  const bool empty = !error_ && result_->count() == 0;
  if (empty && job_.after.empty()) return std::move(*result_);
  if (empty) {
    // There is nothing to compute, but an input may still fail.
    job_.memory.clear();
    job_.steps.clear();
    tells_ = false;
  } else if (!error_ && unconverted_) {
    add_conversion(*this, {*unconverted_, Type::f32}, {converted_, Type::f16}, result_->count());
  }
  if (error_) return std::move(*error_);
  if (!tells_) job_.report = {};
  auto pending = KILN_TRY(on_.run(std::move(job_)));
  return result_->with(std::move(pending));
}

}  // namespace kiln::kernels
