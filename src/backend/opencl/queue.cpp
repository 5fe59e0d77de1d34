#include "backend/opencl/queue.hpp"

namespace kiln::opencl {

Result<std::unique_ptr<Queue>> Queue::open(std::shared_ptr<const Context> context,
                                           cl_command_queue_properties properties) {
  cl_int error = CL_SUCCESS;
  cl_command_queue queue =
      context->cl().clCreateCommandQueue(context->context(), context->device(), properties, &error);
  if (queue == nullptr) return cl_error(error, "making a command queue");
  return std::make_unique<Queue>(std::move(context), queue);
}

}  // namespace kiln::opencl
