#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <kiln/device.hpp>
#include <kiln/future.hpp>
#include <kiln/kernel.hpp>
#include <kiln/result.hpp>

namespace kiln {

/// The extents of a tensor, the last one's elements side by side. Without any, it is one element.
using Shape = std::vector<std::int64_t>;

/// How many elements a shape has. Only meaningful for shapes that Tensor accepts.
std::int64_t count_of(const Shape& shape) noexcept;
/// As in "[2, 3, 4]".
std::string to_string(const Shape& shape);

/// Numbers on a device, in the order of their shape, f32 or f16. A value: copies are cheap and share the memory,
/// which is written once, by what made the tensor, and never again. All functions may be called from any thread.
class Tensor {
 public:
  /// The most elements a tensor has: so many less than an int holds that kernels may count past the last one, by a
  /// tile or by the rows of all groups.
  static constexpr std::int64_t max_count = 0x80000000 - 0x100000;

  /// A tensor that holds a copy of `values`, as many as the shape has elements.
  static Result<Tensor> from(std::shared_ptr<Device> device, Shape shape, std::span<const float> values,
                             Type type = Type::f32);
  /// A tensor of unspecified content, for callers that write its buffer before others read it: see with().
  static Result<Tensor> empty(std::shared_ptr<Device> device, Shape shape, Type type = Type::f32);

  const Shape& shape() const noexcept { return shape_; }
  /// f32 or f16.
  Type type() const noexcept { return type_; }
  std::int64_t count() const noexcept { return count_; }
  /// What it takes in memory, without the padding of the buffer to whole 16 bytes.
  std::size_t bytes() const noexcept;
  const std::shared_ptr<Buffer>& buffer() const noexcept { return buffer_; }
  const std::shared_ptr<Device>& device() const noexcept { return device_; }
  /// When its content is there.
  const Pending& pending() const noexcept { return pending_; }
  /// The same memory, whose content is there when `pending` is.
  Tensor with(Pending pending) const;
  /// The same memory in another shape of as many elements.
  Result<Tensor> reshaped(Shape shape) const;

  /// Waits for the content and copies it out, halves as floats. The error of what should have made it, if that
  /// failed.
  Result<std::vector<float>> read() const;

 private:
  Tensor(std::shared_ptr<Device> device, Shape shape, Type type, std::shared_ptr<Buffer> buffer) noexcept;

  std::shared_ptr<Device> device_;
  Shape shape_;
  std::int64_t count_ = 0;
  Type type_ = Type::f32;
  std::shared_ptr<Buffer> buffer_;
  Pending pending_;
};

}  // namespace kiln
