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

/// The extents of a tensor; elements of the last dimension are adjacent. A shape without extents has one element.
using Shape = std::vector<std::int64_t>;

/// How many elements a shape has. Only for shapes that Tensor accepts: others may overflow.
std::int64_t count_of(const Shape& shape) noexcept;
/// As in "[2, 3, 4]".
std::string to_string(const Shape& shape);

/// Numbers on a device, in the order of their shape, f32 or f16. A value: copies are cheap and share ownership of
/// the memory and of the device. The content is written once, by the call that made the tensor, and does not
/// change. All functions may be called from any thread.
class Tensor {
 public:
  /// The most elements that a tensor can have: less than an int holds, because indexes in kernels may exceed the
  /// last element by a tile, or by the rows of all groups.
  static constexpr std::int64_t max_count = 0x80000000 - 0x100000;

  /// A tensor that holds a copy of `values`, one for each element of the shape. Fails with invalid_request if their
  /// number is another, an extent is negative or `type` is neither f32 nor f16; with unsupported for more than
  /// max_count elements; and as Device::allocate() and Device::write() do.
  static Result<Tensor> from(std::shared_ptr<Device> device, Shape shape, std::span<const float> values,
                             Type type = Type::f32);
  /// A tensor of unspecified content, for callers that write its buffer before others read it: see with(). Fails as
  /// from() does.
  static Result<Tensor> empty(std::shared_ptr<Device> device, Shape shape, Type type = Type::f32);

  /// This and all references below are valid as long as the tensor.
  const Shape& shape() const noexcept { return shape_; }
  /// f32 or f16.
  Type type() const noexcept { return type_; }
  /// How many elements it has.
  std::int64_t count() const noexcept { return count_; }
  /// The size of its elements. The buffer may be larger: it is padded to whole 16 bytes.
  std::size_t bytes() const noexcept;
  /// The memory. Do not write to it once others may read the tensor.
  const std::shared_ptr<Buffer>& buffer() const noexcept { return buffer_; }
  /// The device that the memory is on.
  const std::shared_ptr<Device>& device() const noexcept { return device_; }
  /// Ready when the content is there; its error is that of the work that should have made it.
  const Pending& pending() const noexcept { return pending_; }
  /// The same memory, whose content is there when `pending` is ready.
  Tensor with(Pending pending) const;
  /// The same memory in another shape. Fails with invalid_request if it has another number of elements.
  Result<Tensor> reshaped(Shape shape) const;

  /// Waits for the content and copies it out, f16 as floats. Fails with the error of pending(), and as
  /// Device::read() does.
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
