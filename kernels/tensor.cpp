#include <kiln/kernels/tensor.hpp>

#include <algorithm>

#include <fmt/format.h>

#include "base/try.hpp"
#include "kernels/half.hpp"

namespace kiln {
namespace {

std::size_t element_bytes(Type type) { return type == Type::f16 ? 2 : 4; }

/// Kernels access vectors of 16 bytes, and devices reject empty buffers.
std::size_t padded(std::size_t bytes) { return std::max<std::size_t>((bytes + 15) / 16 * 16, 16); }

Result<void> check(const Shape& shape, Type type) {
  if (type != Type::f32 && type != Type::f16)
    return Error(ErrorCode::invalid_request, "the type of a tensor must be f32 or f16");
  bool empty = false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0)
      return Error(ErrorCode::invalid_request,
                   fmt::format("a tensor of shape {}: dimension {} is negative", to_string(shape), i));
    empty = empty || shape[i] == 0;
  }
  std::int64_t count = empty ? 0 : 1;
  for (const std::int64_t extent : shape) {
    if (count > 0 && extent > Tensor::max_count / count)
      return Error(ErrorCode::unsupported, fmt::format("a tensor of shape {} has more than {} elements",
                                                       to_string(shape), Tensor::max_count));
    count *= extent;
  }
  return {};
}

}  // namespace

std::int64_t count_of(const Shape& shape) noexcept {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Tensor::Tensor(std::shared_ptr<Device> device, Shape shape, Type type, std::shared_ptr<Buffer> buffer) noexcept
    : device_(std::move(device)),
      shape_(std::move(shape)),
      count_(count_of(shape_)),
      type_(type),
      buffer_(std::move(buffer)) {}

Result<Tensor> Tensor::empty(std::shared_ptr<Device> device, Shape shape, Type type) {
  KILN_TRY(check(shape, type));
  const auto bytes = static_cast<std::size_t>(count_of(shape)) * element_bytes(type);
  auto buffer = KILN_TRY(device->allocate(padded(bytes)));
  return Tensor(std::move(device), std::move(shape), type, std::move(buffer));
}

Result<Tensor> Tensor::from(std::shared_ptr<Device> device, Shape shape, std::span<const float> values, Type type) {
  KILN_TRY(check(shape, type));
  if (std::cmp_not_equal(values.size(), count_of(shape)))
    return Error(ErrorCode::invalid_request, fmt::format("a tensor of shape {} has {} elements, but {} were given",
                                                         to_string(shape), count_of(shape), values.size()));
  auto tensor = empty(std::move(device), std::move(shape), type);
  if (!tensor || values.empty()) return tensor;
  std::vector<std::uint16_t> halves;
  if (type == Type::f16) std::ranges::transform(values, std::back_inserter(halves), kernels::to_half);
  const auto bytes = type == Type::f16 ? std::as_bytes(std::span(halves)) : std::as_bytes(values);
  KILN_TRY(tensor->device_->write(*tensor->buffer_, bytes));
  return tensor;
}

std::size_t Tensor::bytes() const noexcept { return static_cast<std::size_t>(count_) * element_bytes(type_); }

Tensor Tensor::with(Pending pending) const {
  Tensor same = *this;
  same.pending_ = std::move(pending);
  return same;
}

Result<Tensor> Tensor::reshaped(Shape shape) const {
  KILN_TRY(check(shape, type_));
  if (count_of(shape) != count_)
    return Error(ErrorCode::invalid_request,
                 fmt::format("a tensor of shape {} has {} elements, but shape {} needs {}", to_string(shape_),
                             count_, to_string(shape), count_of(shape)));
  Tensor same = *this;
  same.shape_ = std::move(shape);
  return same;
}

Result<std::vector<float>> Tensor::read() const {
  if (const Error* error = pending_.error()) return *error;
  std::vector<float> values(static_cast<std::size_t>(count_));
  if (values.empty()) return values;
  if (type_ == Type::f32) {
    KILN_TRY(device_->read(*buffer_, std::as_writable_bytes(std::span(values))));
    return values;
  }
  std::vector<std::uint16_t> halves(values.size());
  KILN_TRY(device_->read(*buffer_, std::as_writable_bytes(std::span(halves))));
  std::ranges::transform(halves, values.begin(), kernels::from_half);
  return values;
}

}  // namespace kiln
