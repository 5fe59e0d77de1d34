#include "contract/own_objects.hpp"

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <epoxy/egl.h>
#include <epoxy/gl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <kiln/opencl.hpp>
#include <kiln/opengl.hpp>

#include "backend/cuda/cuda.hpp"
#include "backend/hip/hip.hpp"
#include "backend/opencl/library.hpp"
#include "backend/opengl/egl.hpp"
#include "backend/opengl/lent_context.hpp"
#include "backend/own_vulkan_device.hpp"
#include "base/dynamic_library.hpp"

namespace kiln::contract {
namespace {

/// Where a device stands in Kiln's order of those of its API, in which GPUs come first.
std::size_t number_of(const DeviceInfo& opened) {
  return std::stoul(opened.name.substr(opened.name.find(':') + 1));
}

class OwnOpenGl final : public OwnObjects {
 public:
  explicit OwnOpenGl(EGLDisplay display) : display_(display) {
    // As Kiln asks for them: there are drivers that tell the version that was asked for, which is in the identity.
    const EGLint attributes[] = {
        EGL_CONTEXT_MAJOR_VERSION,           4,       EGL_CONTEXT_MINOR_VERSION, 3, EGL_CONTEXT_OPENGL_PROFILE_MASK,
        EGL_CONTEXT_OPENGL_CORE_PROFILE_BIT, EGL_NONE};
    context_ = eglCreateContext(display_, nullptr, EGL_NO_CONTEXT, attributes);
    if (context_ == EGL_NO_CONTEXT) throw Failure(error("making a context"));
    if (eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, context_) != EGL_TRUE) {
      const Error why = error("making a context current");
      eglDestroyContext(display_, context_);
      throw Failure(why);
    }
  }
  ~OwnOpenGl() override {
    EXPECT_EQ(eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT),
              static_cast<EGLBoolean>(EGL_TRUE));
    EXPECT_EQ(eglDestroyContext(display_, context_), static_cast<EGLBoolean>(EGL_TRUE));
  }

  Result<std::shared_ptr<Device>> adopt(const Log& log) const override { return opengl::adopt_current(log); }
  bool work() const override {
    if (eglGetCurrentContext() != context_) return false;
    for (const GLenum binding : {GL_CURRENT_PROGRAM, GL_COPY_WRITE_BUFFER_BINDING, GL_SHADER_STORAGE_BUFFER_BINDING,
                                 GL_UNIFORM_BUFFER_BINDING}) {
      GLint bound = -1;
      glGetIntegerv(binding, &bound);
      if (bound != 0) return false;
    }
    const GLuint sent = 7;
    GLuint received = 0;
    GLuint buffer = 0;
    glGenBuffers(1, &buffer);
    glBindBuffer(GL_COPY_READ_BUFFER, buffer);
    glBufferData(GL_COPY_READ_BUFFER, sizeof sent, &sent, GL_STATIC_READ);
    glGetBufferSubData(GL_COPY_READ_BUFFER, 0, sizeof received, &received);
    glDeleteBuffers(1, &buffer);
    return received == sent && glGetError() == GL_NO_ERROR;
  }
  std::unique_ptr<Stream> stream(Device& device) override { return opengl::stream(device).value(); }
  void finish(Stream&) const override { glFinish(); }

 private:
  static Error error(std::string_view doing) {
    return Error(ErrorCode::device_failed, fmt::format("{} {}", opengl::egl_error_name(eglGetError()), doing));
  }

  // Bound as long as the context is there: EGL has one current for each API.
  const opengl::ApiBinding api_;
  EGLDisplay display_;
  EGLContext context_ = EGL_NO_CONTEXT;
};

class OwnVulkan final : public OwnObjects {
 public:
  explicit OwnVulkan(std::size_t number) : device_(number) {}

  Result<std::shared_ptr<Device>> adopt(const Log& log) const override {
    return vulkan::adopt(device_.handles(), log);
  }
  bool work() const override {
    VkDevice device = device_.handles().device;
    VkFenceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
    VkFence fence = VK_NULL_HANDLE;
    if (device_.vk().CreateFence(device, &info, nullptr, &fence) != VK_SUCCESS) return false;
    const bool done = device_.vk().QueueSubmit(device_.handles().queue, 0, nullptr, fence) == VK_SUCCESS &&
                      device_.vk().WaitForFences(device, 1, &fence, VK_TRUE, UINT64_MAX) == VK_SUCCESS;
    device_.vk().DestroyFence(device, fence, nullptr);
    return done;
  }
  std::unique_ptr<Stream> stream(Device& device) override {
    return vulkan::stream(device, device_.handles().queue, device_.handles().queue_family).value();
  }
  void finish(Stream& stream) const override {
    dynamic_cast<vulkan::QueueStream&>(stream).submit().value();
    vulkan::check(device_.vk().QueueWaitIdle(device_.handles().queue), "waiting for a queue").value();
  }

 private:
  fakes::OwnVulkanDevice device_;
};

class OwnOpenCl final : public OwnObjects {
 public:
  explicit OwnOpenCl(const Identity& identity) : device_(find(identity)) {
    cl_int error = CL_SUCCESS;
    context_ = cl_->clCreateContext(nullptr, 1, &device_, nullptr, nullptr, &error);
    if (context_ == nullptr) throw Failure(opencl::cl_error(error, "making a context"));
  }
  ~OwnOpenCl() override {
    if (queue_ != nullptr) cl_->clReleaseCommandQueue(queue_);
    // Its number of holders tells nothing: a driver's thread may still hold the queue of work that is done.
    using Gone = void CL_CALLBACK(cl_context context, void* gone);
    const auto call_when_gone = base::DynamicLibrary::loaded("libOpenCL.so.1")
                                    .function<cl_int(cl_context, Gone*, void*)>("clSetContextDestructorCallback");
    const bool tells = call_when_gone != nullptr && cl_->text(device_, CL_DEVICE_VERSION).starts_with("OpenCL 3");
    const auto gone = std::make_shared<std::promise<void>>();
    if (tells) {
      Gone* const tell = [](cl_context, void* told) {
        const std::unique_ptr<std::shared_ptr<std::promise<void>>> last(
            static_cast<std::shared_ptr<std::promise<void>>*>(told));
        (*last)->set_value();
      };
      EXPECT_EQ(call_when_gone(context_, tell, new std::shared_ptr(gone)), CL_SUCCESS);
    }
    EXPECT_EQ(cl_->clReleaseContext(context_), CL_SUCCESS);
    if (tells) {
      EXPECT_EQ(gone->get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready)
          << "somebody still holds the context";
    }
  }

  Result<std::shared_ptr<Device>> adopt(const Log& log) const override {
    return opencl::adopt(context_, device_, log);
  }
  bool work() const override {
    const cl_uint sent = 7;
    cl_uint received = 0;
    cl_command_queue queue = cl_->clCreateCommandQueue(context_, device_, 0, nullptr);
    if (queue == nullptr) return false;
    cl_mem memory = cl_->clCreateBuffer(context_, CL_MEM_READ_WRITE, sizeof sent, nullptr, nullptr);
    const bool done = memory != nullptr &&
                      cl_->clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, sizeof sent, &sent, 0, nullptr,
                                                nullptr) == CL_SUCCESS &&
                      cl_->clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, sizeof received, &received, 0, nullptr,
                                               nullptr) == CL_SUCCESS;
    if (memory != nullptr) cl_->clReleaseMemObject(memory);
    cl_->clReleaseCommandQueue(queue);
    return done && received == sent;
  }
  std::unique_ptr<Stream> stream(Device& device) override {
    if (queue_ == nullptr) queue_ = cl_->clCreateCommandQueue(context_, device_, 0, nullptr);
    return opencl::stream(device, queue_).value();
  }
  void finish(Stream&) const override { cl_->clFinish(queue_); }

 private:
  /// The device, of all platforms, that has the name and the driver.
  cl_device_id find(const Identity& identity) const {
    cl_uint count = 0;
    cl_->clGetPlatformIDs(0, nullptr, &count);
    std::vector<cl_platform_id> platforms(count);
    if (count > 0) cl_->clGetPlatformIDs(count, platforms.data(), nullptr);
    for (cl_platform_id platform : platforms) {
      if (cl_->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS) continue;
      std::vector<cl_device_id> devices(count);
      cl_->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices.data(), nullptr);
      for (cl_device_id device : devices)
        if (cl_->text(device, CL_DEVICE_NAME) == identity.device &&
            cl_->text(device, CL_DRIVER_VERSION) == identity.driver)
          return device;
    }
    throw Failure(Error(ErrorCode::no_device, fmt::format("OpenCL has no {} here", identity.device)));
  }

  const std::shared_ptr<const opencl::Library> cl_ = opencl::Library::open().value();
  cl_device_id device_;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
};

/// The primary context of a device of CUDA or HIP, current on this thread.
class OwnPrimaryContext final : public OwnObjects {
 public:
  using Adopt = Result<std::shared_ptr<Device>> (*)(cuda::Handle context, const Log& log);
  using MakeStream = Result<std::unique_ptr<Stream>> (*)(Device& device, cuda::Handle stream);

  OwnPrimaryContext(const cuda::Platform& platform, std::size_t number, Adopt by, MakeStream make_stream)
      : driver_(cuda::Driver::open(*platform.driver).value()),
        device_(driver_->device(number).value()),
        adopt_(by),
        make_stream_(make_stream) {
    check(calls().context_retain(&context_, device_), "retaining a context");
    if (const cuda::Status status = calls().context_push(context_); status != cuda::status::success) {
      calls().context_release(device_);
      check(status, "making a context current");
    }
  }
  ~OwnPrimaryContext() override {
    if (stream_ != nullptr) calls().stream_destroy(stream_);
    cuda::Handle popped = nullptr;
    EXPECT_EQ(calls().context_pop(&popped), cuda::status::success);
    EXPECT_EQ(popped, context_) << "another context was current";
    EXPECT_EQ(calls().context_release(device_), cuda::status::success);
  }

  Result<std::shared_ptr<Device>> adopt(const Log& log) const override { return adopt_(context_, log); }
  bool work() const override {
    int device = -1;
    if (calls().context_device(&device) != cuda::status::success || device != device_) return false;
    const std::uint32_t sent = 7;
    std::uint32_t received = 0;
    cuda::Address memory = 0;
    if (calls().memory_allocate(&memory, sizeof sent) != cuda::status::success) return false;
    const bool done = calls().copy_to_device(memory, &sent, sizeof sent, nullptr) == cuda::status::success &&
                      calls().copy_to_host(&received, memory, sizeof received, nullptr) == cuda::status::success &&
                      calls().stream_wait(nullptr) == cuda::status::success;
    return calls().memory_free(memory) == cuda::status::success && done && received == sent;
  }
  std::unique_ptr<Stream> stream(Device& device) override {
    // CU_STREAM_NON_BLOCKING
    if (stream_ == nullptr) check(calls().stream_create(&stream_, 1), "making a stream");
    return make_stream_(device, stream_).value();
  }
  void finish(Stream&) const override { check(calls().stream_wait(stream_), "waiting for a stream"); }

 private:
  const cuda::Functions& calls() const noexcept { return *driver_->operator->(); }
  void check(cuda::Status status, std::string_view doing) const {
    if (status != cuda::status::success) throw Failure(driver_->error(status, doing));
  }

  const std::shared_ptr<const cuda::Driver> driver_;
  const int device_;
  const Adopt adopt_;
  const MakeStream make_stream_;
  cuda::Handle context_ = nullptr;
  cuda::Handle stream_ = nullptr;
};

}  // namespace

std::unique_ptr<OwnObjects> own_objects(const DeviceInfo& opened) {
  const std::string& api = opened.identity.api;
  const std::size_t number = number_of(opened);
  if (api == "opengl") return std::make_unique<OwnOpenGl>(opengl::list_displays().value().at(number).display);
  if (api == "vulkan") return std::make_unique<OwnVulkan>(number);
  if (api == "opencl") return std::make_unique<OwnOpenCl>(opened.identity);
  if (api == "cuda")
    return std::make_unique<OwnPrimaryContext>(
        cuda::platform(), number,
        [](cuda::Handle context, const Log& log) { return cuda::adopt(static_cast<CUcontext>(context), log); },
        [](Device& device, cuda::Handle stream) { return cuda::stream(device, static_cast<CUstream>(stream)); });
  if (api == "hip")
    return std::make_unique<OwnPrimaryContext>(
        hip::platform(), number,
        [](cuda::Handle context, const Log& log) { return hip::adopt(static_cast<hipCtx_t>(context), log); },
        [](Device& device, cuda::Handle stream) { return hip::stream(device, static_cast<hipStream_t>(stream)); });
  throw Failure(Error(ErrorCode::no_device, fmt::format("nobody has written down how to make objects of {}", api)));
}

}  // namespace kiln::contract
