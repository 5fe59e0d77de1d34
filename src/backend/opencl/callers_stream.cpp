#include <optional>
#include <utility>

#include <fmt/format.h>

#include <kiln/opencl.hpp>

#include "backend/held.hpp"
#include "backend/opencl/device.hpp"
#include "backend/opencl/launch.hpp"
#include "backend/opencl/memory.hpp"
#include "base/try.hpp"

namespace kiln::opencl {
namespace {

/// A place in the work of a queue. After an error, all places count as passed.
class Fence {
 public:
  /// Null after an error.
  static std::unique_ptr<Fence> in(const Library& cl, cl_command_queue queue) {
    cl_event event = nullptr;
    if (cl.clEnqueueMarkerWithWaitList(queue, 0, nullptr, &event) != CL_SUCCESS) return nullptr;
    return std::make_unique<Fence>(cl, event);
  }
  Fence(const Library& cl, cl_event event) noexcept : cl_(cl), event_(event) {}
  ~Fence() { cl_.clReleaseEvent(event_); }
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

  bool passed() const {
    cl_int state = CL_COMPLETE;
    return cl_.clGetEventInfo(event_, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr) !=
               CL_SUCCESS ||
           state <= CL_COMPLETE;
  }
  void wait() const { cl_.clWaitForEvents(1, &event_); }

 private:
  const Library& cl_;
  const cl_event event_;
};

class CallersStream final : public kiln::Stream {
 public:
  CallersStream(std::shared_ptr<const Context> context, DeviceInfo info, cl_command_queue queue, bool in_order)
      : context_(std::move(context)), info_(std::move(info)), queue_(queue), in_order_(in_order) {}
  ~CallersStream() override {
    held_.reset();
    context_->cl().clReleaseCommandQueue(queue_);
  }

  Result<void> launch(kiln::Module& module, const Launch& launch) override {
    const auto prepared = KILN_TRY(PreparedLaunch::make(module, launch, *context_, info_));
    if (!prepared.is_work()) return {};
    const cl_int error = prepared.enqueue(queue_, nullptr);
    return error == CL_SUCCESS ? Result<void>() : cl_error(error, fmt::format("launching {}", prepared.name()));
  }
  void hold(std::shared_ptr<const void> thing) override {
    held_->add(Fence::in(context_->cl(), queue_), std::move(thing));
  }
  bool in_order() const noexcept override { return in_order_; }

 private:
  const std::shared_ptr<const Context> context_;
  const DeviceInfo info_;
  const cl_command_queue queue_;
  const bool in_order_;
  std::optional<backend::Held<Fence>> held_{std::in_place};
};

Result<const ClDevice*> device_of(const Device& device) {
  if (const auto* own = dynamic_cast<const ClDevice*>(&device)) return own;
  return Error(ErrorCode::invalid_request, fmt::format("{} is not a device of opencl", device.info().name));
}

}  // namespace

Result<std::unique_ptr<Stream>> stream(Device& device, _cl_command_queue* queue) {
  const auto own = KILN_TRY(device_of(device));
  const std::shared_ptr<const Context>& context = own->context();
  const Library& cl = context->cl();
  cl_context of_queue = nullptr;
  cl_device_id device_of_queue = nullptr;
  cl_command_queue_properties properties = 0;
  cl_int error = queue != nullptr
                     ? cl.clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof of_queue, &of_queue, nullptr)
                     : CL_INVALID_COMMAND_QUEUE;
  if (error == CL_SUCCESS)
    error = cl.clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device_of_queue, &device_of_queue, nullptr);
  if (error == CL_SUCCESS)
    error = cl.clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, nullptr);
  if (error != CL_SUCCESS)
    return Error(ErrorCode::invalid_request, fmt::format("the command queue is not valid ({})", error_name(error)));
  if (of_queue != context->context() || device_of_queue != context->device())
    return Error(ErrorCode::invalid_request,
                 fmt::format("the command queue belongs to another context or device than {}; open the device with "
                             "opencl::adopt()",
                             device.info().name));
  if (error = cl.clRetainCommandQueue(queue); error != CL_SUCCESS)
    return cl_error(error, "retaining a command queue");
  const bool in_order = (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
  return std::unique_ptr<Stream>(std::make_unique<CallersStream>(context, device.info(), queue, in_order));
}

Result<std::unique_ptr<Buffer>> wrap(Device& device, _cl_mem* memory) {
  const auto own = KILN_TRY(device_of(device));
  const std::shared_ptr<const Context>& context = own->context();
  const Library& cl = context->cl();
  cl_mem_object_type type = 0;
  cl_context of_memory = nullptr;
  std::size_t bytes = 0;
  cl_int error = memory != nullptr ? cl.clGetMemObjectInfo(memory, CL_MEM_TYPE, sizeof type, &type, nullptr)
                                   : CL_INVALID_MEM_OBJECT;
  if (error == CL_SUCCESS)
    error = cl.clGetMemObjectInfo(memory, CL_MEM_CONTEXT, sizeof of_memory, &of_memory, nullptr);
  if (error == CL_SUCCESS) error = cl.clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof bytes, &bytes, nullptr);
  if (error != CL_SUCCESS)
    return Error(ErrorCode::invalid_request, fmt::format("the memory object is not valid ({})", error_name(error)));
  if (type != CL_MEM_OBJECT_BUFFER)
    return Error(ErrorCode::invalid_request, "the memory object is not a buffer; pass images by opencl::image()");
  if (of_memory != context->context())
    return Error(ErrorCode::invalid_request,
                 fmt::format("the memory object belongs to another context than {}; open the device with "
                             "opencl::adopt()",
                             device.info().name));
  if (error = cl.clRetainMemObject(memory); error != CL_SUCCESS)
    return cl_error(error, "retaining a memory object");
  return std::unique_ptr<Buffer>(std::make_unique<ClBuffer>(context, memory, bytes));
}

}  // namespace kiln::opencl
