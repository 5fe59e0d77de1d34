#include "backend/opencl/memory.hpp"

#include <fmt/format.h>

#include <kiln/opencl.hpp>

#include "backend/launch_checks.hpp"

namespace kiln::opencl {

Result<std::unique_ptr<ClBuffer>> ClBuffer::allocate(std::shared_ptr<const Context> context, std::size_t bytes,
                                                     cl_mem_flags flags) {
  // Some drivers allocate more than there is without an error, and fail when it is used.
  const auto largest = context->cl().number<cl_ulong>(context->device(), CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  if (bytes > largest)
    return Error(ErrorCode::out_of_memory,
                 fmt::format("allocating {} bytes: a buffer can have at most {} on this device", bytes, largest));
  cl_int error = CL_SUCCESS;
  cl_mem memory =
      context->cl().clCreateBuffer(context->context(), flags, backend::allocated_bytes(bytes), nullptr, &error);
  if (memory == nullptr)
    return cl_error(error == CL_OUT_OF_RESOURCES ? CL_MEM_OBJECT_ALLOCATION_FAILURE : error,
                    fmt::format("allocating {} bytes", bytes));
  return std::make_unique<ClBuffer>(std::move(context), memory, bytes);
}

_cl_mem* memory(const Buffer& buffer) noexcept {
  const auto* own = dynamic_cast<const ClBuffer*>(&buffer);
  return own != nullptr ? own->memory() : nullptr;
}

Result<std::unique_ptr<Queue>> Queue::open(std::shared_ptr<const Context> context,
                                           cl_command_queue_properties properties) {
  cl_int error = CL_SUCCESS;
  cl_command_queue queue =
      context->cl().clCreateCommandQueue(context->context(), context->device(), properties, &error);
  if (queue == nullptr) return cl_error(error, "creating a command queue");
  return std::make_unique<Queue>(std::move(context), queue);
}

}  // namespace kiln::opencl
