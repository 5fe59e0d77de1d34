#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <kiln/backend.hpp>
#include <kiln/device.hpp>
#include <kiln/log.hpp>
#include <kiln/opencl.hpp>

#include "backend/header_folders.hpp"
#include "backend/opencl/library.hpp"
#include "backend/pool.hpp"
#include "backend/quirks/pocl_dlhandle_cache.hpp"
#include "backend/quirks/pocl_kernel_cache.hpp"
#include "base/process.hpp"

namespace kiln::opencl {

/// The only format of Kiln's OpenCL binaries, sealed as in seal_sections(): the program's name, the kernel's name,
/// the kinds of its arguments, the driver's binary.
constexpr std::uint32_t binary_format = 2;

/// The kind of a kernel's argument. Drivers report it only for programs built from source, so binaries store it.
enum class ArgumentKind : char {
  buffer = 'b',
  value = 'v',
  local = 'l',
  /// An image or a sampler.
  object = 'o',
  /// The driver does not report the kind.
  unknown = '?',
};

/// A context with one device. Programs, buffers, queues and slots share ownership of it.
class Context {
 public:
  /// Takes ownership of one reference to `context`.
  Context(std::shared_ptr<const Library> library, cl_context context, cl_device_id device, Log log)
      : library_(std::move(library)), context_(context), device_(device), log_(std::move(log)) {
    base::expect_process_end();
    pocl_kernel_cache_ = backend::quirks::PoclKernelCache::of(cl(), device, log_);
    has_pocl_dlhandle_cache_ = backend::quirks::PoclDlhandleCache::affects(cl(), device);
  }
  ~Context() { cl().clReleaseContext(context_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Library& cl() const noexcept { return base::process_ends() ? *stubs_ : *library_; }
  cl_context context() const noexcept { return context_; }
  cl_device_id device() const noexcept { return device_; }
  const Log& log() const noexcept { return log_; }
  /// Work-arounds; empty and false if the driver does not need them.
  const std::optional<backend::quirks::PoclKernelCache>& pocl_kernel_cache() const noexcept {
    return pocl_kernel_cache_;
  }
  bool has_pocl_dlhandle_cache() const noexcept { return has_pocl_dlhandle_cache_; }

 private:
  std::shared_ptr<const Library> library_;
  std::shared_ptr<const Library> stubs_ = Library::stubs();
  cl_context context_;
  cl_device_id device_;
  Log log_;
  std::optional<backend::quirks::PoclKernelCache> pocl_kernel_cache_;
  bool has_pocl_dlhandle_cache_ = false;
};

/// A kernel object, which holds the arguments of a launch. Used by one thread at a time.
class KernelObject {
 public:
  KernelObject(const Context& context, cl_kernel kernel) noexcept : context_(context), kernel_(kernel) {}
  ~KernelObject() { context_.cl().clReleaseKernel(kernel_); }
  KernelObject(const KernelObject&) = delete;
  KernelObject& operator=(const KernelObject&) = delete;
  cl_kernel get() const noexcept { return kernel_; }

 private:
  const Context& context_;
  cl_kernel kernel_;
};

/// A built program and a pool of its kernel objects.
class BuiltProgram final : public Module {
 public:
  /// Takes ownership of the cl_program, which need not be built yet. The object can be used once open_kernel() has
  /// succeeded.
  BuiltProgram(std::shared_ptr<const Context> context, cl_program program, std::string name, std::string entry);
  ~BuiltProgram() override;
  BuiltProgram(const BuiltProgram&) = delete;
  BuiltProgram& operator=(const BuiltProgram&) = delete;

  static Result<Compiled> compile(const std::shared_ptr<const Context>& context, const Request& request);
  /// Loads a binary that compile() returned.
  static Result<std::unique_ptr<kiln::Module>> load(const std::shared_ptr<const Context>& context,
                                                    const Binary& binary);

  const Context& context() const noexcept { return *context_; }
  cl_program program() const noexcept override { return program_; }
  const std::string& name() const noexcept { return name_; }
  const std::string& entry() const noexcept override { return entry_; }
  std::size_t bytes() const noexcept override { return bytes_; }
  std::size_t argument_count() const noexcept { return arguments_.size(); }
  ArgumentKind argument(std::size_t i) const noexcept { return static_cast<ArgumentKind>(arguments_[i]); }

  /// Queues a launch of a kernel object. Returns the driver's error code. `event` may be null.
  cl_int enqueue(cl_command_queue queue, cl_kernel kernel, const std::array<std::size_t, 3>& global,
                 const std::array<std::size_t, 3>& local, cl_event* event) const;

  /// Lends a kernel object for one launch.
  Result<backend::Pool<KernelObject>::Loan> borrow_kernel() const;

 private:
  static Result<std::unique_ptr<BuiltProgram>> from_source(const std::shared_ptr<const Context>& context,
                                                           const Request& request, const std::string& source,
                                                           const std::string& options,
                                                           const backend::HeaderFolders& folders);
  /// Builds with Kiln's options (`own`) and the request's (`asked`).
  Result<void> build(const std::string& own, const std::string& asked);
  std::string build_log() const;
  /// Makes the first kernel object, and checks that the device has enough local memory for it.
  Result<void> open_kernel();
  /// Reads the kinds of the arguments. The program must have been built from source.
  Result<void> read_arguments();
  Result<std::vector<std::byte>> image() const;

  std::shared_ptr<const Context> context_;
  cl_program program_;
  std::string name_;
  std::string entry_;
  /// One ArgumentKind per argument.
  std::string arguments_;
  std::size_t bytes_ = 0;
  // This member and those below are thread-safe.
  mutable backend::Pool<KernelObject> kernels_;
  /// Null if the driver does not need it.
  std::shared_ptr<backend::quirks::PoclDlhandleCache> pocl_dlhandle_cache_;
  mutable backend::quirks::PoclDlhandleCache::Widest widest_;
};

/// A validated launch, and a kernel object that holds its arguments. The program must outlive it.
class PreparedLaunch {
 public:
  /// The error says what does not fit. `context` and `info` are the device's.
  static Result<PreparedLaunch> make(const kiln::Module& module, const Launch& launch, const Context& context,
                                     const DeviceInfo& info);

  const BuiltProgram& program() const noexcept { return program_; }
  /// False if the launch has no groups: drivers treat it differently.
  bool is_work() const noexcept;
  /// Returns the driver's error code. The kernel object may be reused at once: a queued command keeps the arguments
  /// that it was queued with.
  cl_int enqueue(cl_command_queue queue, cl_event* event) const;

 private:
  using KernelLoan = backend::Pool<KernelObject>::Loan;
  using Sizes = std::array<std::size_t, 3>;

  PreparedLaunch(const BuiltProgram& program, KernelLoan kernel, Sizes global, Sizes local) noexcept
      : program_(program), kernel_(std::move(kernel)), global_(global), local_(local) {}

  const BuiltProgram& program_;
  KernelLoan kernel_;
  Sizes global_;
  Sizes local_;
};

}  // namespace kiln::opencl
