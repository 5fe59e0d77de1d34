#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kiln/backend.hpp>
#include <kiln/device.hpp>
#include <kiln/log.hpp>
#include <kiln/opencl.hpp>

#include "backend/header_folders.hpp"
#include "backend/opencl/library.hpp"
#include "backend/pool.hpp"
#include "backend/quirks/pocl_dlhandle_cache.hpp"
#include "backend/quirks/pocl_kernel_cache.hpp"
#include "backend/quirks/pocl_specialisation.hpp"
#include "backend/vulkan/shaderc.hpp"
#include "base/process.hpp"

namespace kiln::opencl {

/// The only format of Kiln's OpenCL binaries, sealed as in seal_sections(): the program's name, the names of its
/// kernels, their arguments, the driver's binary. Names and arguments have a line for each kernel. Arguments are
/// separated by tabs, each as in "b float* data": kind, type and name.
constexpr std::uint32_t binary_format = 3;

/// The kind of a kernel's argument. Drivers report it only for programs built from source, so binaries store it.
enum class ArgumentKind : char {
  buffer = 'b',
  value = 'v',
  local = 'l',
  image = 'i',
  sampler = 's',
  /// The driver does not report the kind.
  unknown = '?',
};

/// As in "local memory".
std::string_view to_string(ArgumentKind kind) noexcept;

/// An argument as a kernel declares it.
struct DeclaredArgument {
  ArgumentKind kind = ArgumentKind::unknown;
  /// As in "float4*"; empty if the driver does not report it.
  std::string type = {};
  std::string name = {};

  /// The size of a value of a built-in type; 0 for others.
  std::size_t bytes() const noexcept;
};

/// As they are stored. Kinds that are unknown are read as ArgumentKind::unknown.
std::string to_text(const std::vector<DeclaredArgument>& arguments);
std::vector<DeclaredArgument> arguments_in(std::string_view text);

/// A context with one device. Programs, buffers, queues and slots share ownership of it.
class Context {
 public:
  /// Takes ownership of one reference to `context`.
  Context(std::shared_ptr<const Library> library, cl_context context, cl_device_id device, Log log)
      : library_(std::move(library)), context_(context), device_(device), log_(std::move(log)) {
    base::expect_process_end();
    pocl_kernel_cache_ = backend::quirks::PoclKernelCache::of(cl(), device, log_);
    has_pocl_dlhandle_cache_ = backend::quirks::PoclDlhandleCache::affects(cl(), device);
    is_pocl_ = backend::quirks::PoclSpecialisation::affects(cl().text(device, CL_DEVICE_VERSION),
                                                            cl().text(device, CL_DRIVER_VERSION));
  }
  ~Context() { cl().clReleaseContext(context_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Library& cl() const noexcept { return base::process_ends() ? *stubs_ : *library_; }
  cl_context context() const noexcept { return context_; }
  cl_device_id device() const noexcept { return device_; }
  const Log& log() const noexcept { return log_; }
  const vulkan::SpirvValidator& spirv_validator() const noexcept { return spirv_validator_; }
  /// Work-arounds; empty and false if the driver does not need them.
  const std::optional<backend::quirks::PoclKernelCache>& pocl_kernel_cache() const noexcept {
    return pocl_kernel_cache_;
  }
  bool has_pocl_dlhandle_cache() const noexcept { return has_pocl_dlhandle_cache_; }
  bool is_pocl() const noexcept { return is_pocl_; }

 private:
  std::shared_ptr<const Library> library_;
  std::shared_ptr<const Library> stubs_ = Library::stubs();
  cl_context context_;
  cl_device_id device_;
  Log log_;
  vulkan::SpirvValidator spirv_validator_;
  std::optional<backend::quirks::PoclKernelCache> pocl_kernel_cache_;
  bool has_pocl_dlhandle_cache_ = false;
  bool is_pocl_ = false;
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

class BuiltProgram;

/// A kernel of a built program. Thread-safe once it is open.
class ProgramKernel {
 public:
  /// `program` must outlive it.
  ProgramKernel(const BuiltProgram& program, std::string entry);
  ProgramKernel(const ProgramKernel&) = delete;
  ProgramKernel& operator=(const ProgramKernel&) = delete;

  const BuiltProgram& program() const noexcept { return program_; }
  const std::string& entry() const noexcept { return entry_; }
  const std::vector<DeclaredArgument>& arguments() const noexcept { return arguments_; }

  /// Makes the first kernel object, and checks that the device has enough local memory for it.
  Result<void> open();
  /// Reads the arguments of a program that was built from source, or sets them.
  Result<void> read_arguments();
  void set_arguments(std::vector<DeclaredArgument> arguments) { arguments_ = std::move(arguments); }
  /// The bytes of local memory that the kernel declares, without its arguments.
  std::uint64_t local_bytes() const noexcept { return local_bytes_; }

  /// Lends a kernel object for one launch.
  Result<backend::Pool<KernelObject>::Loan> borrow() const;
  /// Queues a launch of a kernel object. Returns the driver's error code. `event` may be null.
  /// `local` is {} if the driver chooses the group size.
  cl_int enqueue(cl_command_queue queue, cl_kernel kernel, const std::array<std::size_t, 3>& offset,
                 const std::array<std::size_t, 3>& global, const std::array<std::size_t, 3>& local,
                 cl_event* event) const;
  /// Whether the driver needs to know the group size of every launch.
  bool needs_group_size() const noexcept { return pocl_dlhandle_cache_ != nullptr; }

 private:
  const BuiltProgram& program_;
  const std::string entry_;
  std::vector<DeclaredArgument> arguments_;
  std::uint64_t local_bytes_ = 0;
  // This member and those below are thread-safe.
  mutable backend::Pool<KernelObject> objects_;
  /// Null if the driver does not need it.
  std::shared_ptr<backend::quirks::PoclDlhandleCache> pocl_dlhandle_cache_;
  mutable backend::quirks::PoclDlhandleCache::Widest widest_;
};

/// A built program and its kernels.
class BuiltProgram {
 public:
  /// Takes ownership of the cl_program, which need not be built yet.
  BuiltProgram(std::shared_ptr<const Context> context, cl_program program, std::string name)
      : context_(std::move(context)), program_(program), name_(std::move(name)) {}
  ~BuiltProgram();
  BuiltProgram(const BuiltProgram&) = delete;
  BuiltProgram& operator=(const BuiltProgram&) = delete;

  static Result<Compiled> compile(const std::shared_ptr<const Context>& context, const Request& request);
  /// Loads a binary that compile() returned.
  static Result<std::unique_ptr<kiln::Module>> load(const std::shared_ptr<const Context>& context,
                                                    const Binary& binary);

  const Context& context() const noexcept { return *context_; }
  cl_program program() const noexcept { return program_; }
  const std::string& name() const noexcept { return name_; }
  std::size_t bytes() const noexcept { return bytes_; }
  bool is_complete() const noexcept { return is_complete_; }
  /// At least one, in the order of the request.
  const std::vector<std::unique_ptr<ProgramKernel>>& kernels() const noexcept { return kernels_; }

 private:
  static Result<std::unique_ptr<BuiltProgram>> from_source(const std::shared_ptr<const Context>& context,
                                                           const Request& request, const std::string& source,
                                                           const std::string& options,
                                                           const backend::HeaderFolders& folders);
  /// Builds with Kiln's options (`own`) and the request's (`asked`).
  Result<void> build(const std::string& own, const std::string& asked);
  std::string build_log() const;
  /// The names of all kernels of the built program.
  Result<std::vector<std::string>> kernel_names() const;
  Result<ProgramKernel*> add_kernel(const std::string& entry);
  Result<std::vector<std::byte>> image() const;

  std::shared_ptr<const Context> context_;
  cl_program program_;
  std::string name_;
  std::size_t bytes_ = 0;
  bool is_complete_ = true;
  std::vector<std::unique_ptr<ProgramKernel>> kernels_;
};

/// The module of a built program, or of one of its kernels.
class ProgramModule final : public Module {
 public:
  static std::unique_ptr<ProgramModule> of(std::shared_ptr<const BuiltProgram> program);
  /// `kernel` is null if the program has several.
  ProgramModule(std::shared_ptr<const BuiltProgram> program, const ProgramKernel* kernel) noexcept
      : program_(std::move(program)), kernel_(kernel) {}

  const BuiltProgram& built() const noexcept { return *program_; }
  const ProgramKernel* kernel() const noexcept { return kernel_; }

  cl_program program() const noexcept override { return program_->program(); }
  const std::string& kernel_name() const noexcept override;
  std::size_t bytes() const noexcept override { return program_->bytes(); }
  bool is_complete() const noexcept override { return program_->is_complete(); }
  std::vector<std::string> entries() const override;
  kiln::Module* entry(std::string_view name) noexcept override;

 private:
  std::shared_ptr<const BuiltProgram> program_;
  const ProgramKernel* kernel_;
  /// A module for each kernel, if there are several.
  std::vector<std::unique_ptr<ProgramModule>> entries_;
};

}  // namespace kiln::opencl
