#include "backend/opencl/program.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <kiln/opencl.hpp>

#include "backend/header_folders.hpp"
#include "backend/launch_checks.hpp"
#include "backend/opencl/memory.hpp"
#include "backend/quirks/nvidia_opencl.hpp"
#include "backend/sections.hpp"
#include "backend/source_text.hpp"
#include "base/try.hpp"

namespace kiln::opencl {
namespace {

/// The origin of a line of the compiled text, as "file:line", according to the last #line directive before it.
std::string origin_of(std::string_view text, std::size_t line) {
  std::string file = "<kernel>";
  std::size_t number = 0;
  for (std::size_t begin = 0, at = 1; begin < text.size() && at <= line; ++at) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view words = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (!words.starts_with("#line ")) continue;
    number = std::strtoul(words.data() + 6, nullptr, 10) - 1;
    const std::size_t quote = words.find('"');
    if (quote != std::string_view::npos) file = words.substr(quote + 1, words.rfind('"') - quote - 1);
  }
  return fmt::format("{}:{}", file, number);
}

ArgumentKind kind_of(const Library& cl, cl_kernel kernel, cl_uint argument) {
  cl_kernel_arg_address_qualifier space = 0;
  if (cl.clGetKernelArgInfo(kernel, argument, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof space, &space, nullptr) !=
      CL_SUCCESS)
    return ArgumentKind::unknown;
  const std::string type = cl.argument_type(kernel, argument);
  switch (space) {
    case CL_KERNEL_ARG_ADDRESS_LOCAL: return ArgumentKind::local;
    case CL_KERNEL_ARG_ADDRESS_PRIVATE: return type == "sampler_t" ? ArgumentKind::object : ArgumentKind::value;
    // Images are in global memory too.
    default: return type.starts_with("image") && !type.ends_with('*') ? ArgumentKind::object : ArgumentKind::buffer;
  }
}

/// Inserts source locations into NVIDIA's logs: the compiler ignores #line and calls every file "<kernel>".
std::string with_origins(const std::string& log, std::string_view text) {
  constexpr std::string_view mark = "<kernel>:";
  std::string mapped;
  std::size_t begin = 0;
  for (std::size_t at = log.find(mark); at != std::string::npos; at = log.find(mark, begin)) {
    std::size_t end = at + mark.size();
    const std::size_t line = std::strtoul(log.c_str() + end, nullptr, 10);
    while (end < log.size() && log[end] >= '0' && log[end] <= '9') ++end;
    mapped += log.substr(begin, at - begin) + origin_of(text, line);
    begin = end;
  }
  return mapped + log.substr(begin);
}

/// Converts an error from loading a binary. Caches remove entries that return load_failed, so return it only if the
/// binary is at fault.
Error of_load(const std::string& name, Error error) {
  if (error.code() == ErrorCode::out_of_memory || error.code() == ErrorCode::device_failed) return error;
  return Error(ErrorCode::load_failed,
               fmt::format("the driver refuses the binary of {}: {}", name, error.message()));
}

}  // namespace

BuiltProgram::BuiltProgram(std::shared_ptr<const Context> context, cl_program program, std::string name,
                           std::string entry)
    : context_(std::move(context)), program_(program), name_(std::move(name)), entry_(std::move(entry)) {
  if (context_->has_pocl_dlhandle_cache()) pocl_dlhandle_cache_ = backend::quirks::PoclDlhandleCache::of(entry_);
}

BuiltProgram::~BuiltProgram() {
  kernels_.clear();
  context_->cl().clReleaseProgram(program_);
}

Result<std::unique_ptr<BuiltProgram>> BuiltProgram::from_source(const std::shared_ptr<const Context>& context,
                                                                const Request& request, const std::string& source,
                                                                const std::string& options,
                                                                const backend::HeaderFolders& folders) {
  const Library& cl = context->cl();
  const char* text = source.data();
  const std::size_t length = source.size();
  cl_int error = CL_SUCCESS;
  cl_program made = cl.clCreateProgramWithSource(context->context(), 1, &text, &length, &error);
  if (made == nullptr) return cl_error(error, fmt::format("compiling {}", request.name()));
  auto program = std::make_unique<BuiltProgram>(context, made, request.name(), request.entry());
  auto built = program->build("-cl-kernel-arg-info", options);
  if (!built && built.error().code() == ErrorCode::compile_failed &&
      backend::quirks::NvidiaOpenCl::may_fail_with_argument_info(cl, context->device()))
    built = program->build("", options);
  if (!built)
    return built.error().code() == ErrorCode::compile_failed
               ? backend::refusal(request, folders.with_names(with_origins(program->build_log(), source)))
               : std::move(built).error();
  KILN_TRY(program->open_kernel());
  KILN_TRY(program->read_arguments());
  return program;
}

Result<Compiled> BuiltProgram::compile(const std::shared_ptr<const Context>& context, const Request& request) {
  using namespace std::chrono_literals;
  KILN_TRY(backend::check_language(request, Language::opencl));
  const std::string source = backend::with_defines(request);
  const auto folders = KILN_TRY(backend::HeaderFolders::create(request));
  std::string options;
  for (const std::string& folder : folders.paths()) options += fmt::format("-I {} ", folder);
  options += fmt::format("{}", fmt::join(request.options(), " "));
  const auto& quirk = context->pocl_kernel_cache();
  std::optional<backend::quirks::PoclKernelCache::CompileLock> lock;
  if (quirk) lock = quirk->lock(source, options, 10s);
  if (lock && !lock->held())
    context->log().debug(request.name() +
                         " may be compiled by several processes at once: PoCL's cache is not locked");
  // Each process that compiles the same source without Kiln removes the file once.
  constexpr int most_tries = 16;
  for (int tries = 1;; ++tries) {
    auto program = KILN_TRY(from_source(context, request, source, options, folders));
    const auto image = KILN_TRY(program->image());
    const bool whole = !quirk || quirk->has_program(backend::as_text(image));
    if (!whole) context->log().debug("PoCL left the program out of the binary of " + request.name());
    if (!whole && tries < most_tries) continue;
    program->bytes_ = image.size();
    std::optional<Binary> binary;
    if (whole && !image.empty())
      binary = Binary{binary_format, backend::seal_sections({backend::as_section(program->name()),
                                                             backend::as_section(program->entry()),
                                                             backend::as_section(program->arguments_), image})};
    return Compiled{std::move(program), std::move(binary)};
  }
}

Result<std::unique_ptr<kiln::Module>> BuiltProgram::load(const std::shared_ptr<const Context>& context,
                                                         const Binary& binary) {
  if (binary.format != binary_format)
    return Error(ErrorCode::load_failed,
                 fmt::format("OpenCL devices do not support binary format {}", binary.format));
  const auto sections = backend::unseal_sections(binary.bytes, 4);
  if (!sections) return Error(ErrorCode::load_failed, "the binary is damaged: its checksum does not match");
  const auto image = (*sections)[3];
  const std::string name(backend::as_text((*sections)[0]));
  if (context->pocl_kernel_cache() && !backend::quirks::PoclKernelCache::has_program(backend::as_text(image)))
    return Error(ErrorCode::load_failed,
                 fmt::format("the binary of {} is incomplete: PoCL left its program out", name));
  const auto* bytes = reinterpret_cast<const unsigned char*>(image.data());
  const std::size_t size = image.size();
  cl_device_id device = context->device();
  cl_int status = CL_SUCCESS;
  cl_int error = CL_SUCCESS;
  cl_program made =
      context->cl().clCreateProgramWithBinary(context->context(), 1, &device, &size, &bytes, &status, &error);
  if (made == nullptr) {
    if (status == CL_SUCCESS && error != CL_INVALID_BINARY && error != CL_INVALID_VALUE)
      return cl_error(error, fmt::format("loading {}", name));
    return Error(ErrorCode::load_failed, fmt::format("the driver refuses the binary of {}: {}", name,
                                                     error_name(status != CL_SUCCESS ? status : error)));
  }
  auto program = std::make_unique<BuiltProgram>(context, made, name, std::string(backend::as_text((*sections)[1])));
  program->arguments_ = backend::as_text((*sections)[2]);
  program->bytes_ = size;
  if (auto built = program->build("", ""); !built) return of_load(name, std::move(built).error());
  if (auto opened = program->open_kernel(); !opened) return of_load(name, std::move(opened).error());
  return std::unique_ptr<kiln::Module>(std::move(program));
}

Result<void> BuiltProgram::build(const std::string& own, const std::string& asked) {
  cl_device_id device = context_->device();
  const std::string options = own + (own.empty() || asked.empty() ? "" : " ") + asked;
  const cl_int error = context_->cl().clBuildProgram(program_, 1, &device, options.c_str(), nullptr, nullptr);
  if (error == CL_SUCCESS) return {};
  if (error == CL_BUILD_PROGRAM_FAILURE || error == CL_INVALID_BINARY)
    return Error(ErrorCode::compile_failed, "its build failed");
  if (error == CL_INVALID_BUILD_OPTIONS)
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} has options that the compiler does not support: {}", name_, asked));
  return cl_error(error, fmt::format("building {}", name_));
}

std::string BuiltProgram::build_log() const {
  std::size_t size = 0;
  context_->cl().clGetProgramBuildInfo(program_, context_->device(), CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  std::string log(size, '\0');
  context_->cl().clGetProgramBuildInfo(program_, context_->device(), CL_PROGRAM_BUILD_LOG, size, log.data(),
                                       nullptr);
  log.resize(std::min(log.find('\0'), log.size()));
  return log;
}

Result<void> BuiltProgram::open_kernel() {
  auto kernel = KILN_TRY(borrow_kernel());
  const Library& cl = context_->cl();
  cl_ulong used = 0;
  cl.clGetKernelWorkGroupInfo(kernel->get(), context_->device(), CL_KERNEL_LOCAL_MEM_SIZE, sizeof used, &used,
                              nullptr);
  const auto has = cl.number<cl_ulong>(context_->device(), CL_DEVICE_LOCAL_MEM_SIZE);
  if (used > has)
    return Error(ErrorCode::unsupported,
                 fmt::format("{} uses {} bytes of local memory; the device has {}", name_, used, has));
  return {};
}

Result<void> BuiltProgram::read_arguments() {
  auto kernel = KILN_TRY(borrow_kernel());
  const Library& cl = context_->cl();
  cl_uint count = 0;
  if (const cl_int error = cl.clGetKernelInfo(kernel->get(), CL_KERNEL_NUM_ARGS, sizeof count, &count, nullptr);
      error != CL_SUCCESS)
    return cl_error(error, fmt::format("counting the arguments of {}", name_));
  for (cl_uint i = 0; i < count; ++i) arguments_ += static_cast<char>(kind_of(cl, kernel->get(), i));
  return {};
}

Result<backend::Pool<KernelObject>::Loan> BuiltProgram::borrow_kernel() const {
  return kernels_.borrow([this]() -> Result<std::unique_ptr<KernelObject>> {
    cl_int error = CL_SUCCESS;
    cl_kernel kernel = context_->cl().clCreateKernel(program_, entry_.c_str(), &error);
    if (kernel != nullptr) return std::make_unique<KernelObject>(*context_, kernel);
    if (error == CL_INVALID_KERNEL_NAME)
      return Error(ErrorCode::compile_failed,
                   fmt::format("there is no kernel {} in the source of {}", entry_, name_));
    return cl_error(error, fmt::format("creating the kernel {} of {}", entry_, name_));
  });
}

cl_int BuiltProgram::enqueue(cl_command_queue queue, cl_kernel kernel, const std::array<std::size_t, 3>& global,
                             const std::array<std::size_t, 3>& local, cl_event* event) const {
  const Library& cl = context_->cl();
  const auto enqueue_on = [&](cl_event* given) {
    return cl.clEnqueueNDRangeKernel(queue, kernel, 3, nullptr, global.data(), local.data(), 0, nullptr, given);
  };
  if (pocl_dlhandle_cache_ == nullptr) return enqueue_on(event);
  return pocl_dlhandle_cache_->run(cl, queue, widest_, global, local, event, enqueue_on);
}

Result<std::vector<std::byte>> BuiltProgram::image() const {
  const Library& cl = context_->cl();
  std::size_t size = 0;
  if (const cl_int error = cl.clGetProgramInfo(program_, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr);
      error != CL_SUCCESS)
    return cl_error(error, fmt::format("reading the binary of {}", name_));
  std::vector<std::byte> bytes(size);
  auto* data = reinterpret_cast<unsigned char*>(bytes.data());
  if (size > 0)
    if (const cl_int error =
            cl.clGetProgramInfo(program_, CL_PROGRAM_BINARIES, sizeof(unsigned char*), &data, nullptr);
        error != CL_SUCCESS)
      return cl_error(error, fmt::format("reading the binary of {}", name_));
  return bytes;
}

namespace {

/// Checks the number and the kinds of a launch's arguments. Drivers do not: they read a value as a handle and
/// crash.
Result<void> check_arguments(const BuiltProgram& program, const Launch& launch) {
  const std::size_t buffers = launch.buffers.size();
  const std::size_t given = buffers + (launch.parameters.empty() ? 0 : 1);
  const auto refuse = [&](std::string why) {
    return Error(ErrorCode::invalid_request, fmt::format("{}{}", program.name(), why));
  };
  if (program.argument_count() != given)
    return refuse(fmt::format(" takes {} arguments; the launch has {} buffers{}", program.argument_count(), buffers,
                              launch.parameters.empty() ? "" : " and parameters"));
  for (std::size_t i = 0; i < given; ++i) {
    switch (program.argument(i)) {
      case ArgumentKind::buffer:
        if (i == buffers) return refuse(fmt::format(": argument {} takes a buffer; the launch has parameters", i));
        break;
      case ArgumentKind::value:
        if (i < buffers) return refuse(fmt::format(": argument {} takes a value; the launch has a buffer", i));
        break;
      case ArgumentKind::local:
        return refuse(fmt::format(": argument {} is local memory; declare it in the kernel instead", i));
      case ArgumentKind::object:
        return refuse(
            fmt::format(": argument {} is an image or a sampler; launches have buffers and parameters", i));
      case ArgumentKind::unknown: break;
    }
  }
  return {};
}

/// The group size: that of the launch, or the one that the source requires.
Result<std::array<std::size_t, 3>> group_size(const BuiltProgram& program, const Launch& launch, cl_kernel kernel,
                                              const DeviceLimits& limits) {
  std::array<std::size_t, 3> demanded{};
  program.context().cl().clGetKernelWorkGroupInfo(kernel, program.context().device(),
                                                  CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof demanded,
                                                  demanded.data(), nullptr);
  const bool demands = demanded[0] != 0;
  const bool given = launch.group_size[0] != 0;
  if (!demands && !given)
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} does not declare a group size; set Launch::group_size", program.name()));
  std::array<std::size_t, 3> size = demanded;
  if (given) size = {launch.group_size[0], launch.group_size[1], launch.group_size[2]};
  if (demands && size != demanded)
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} requires groups of {} x {} x {}; the launch has {} x {} x {}", program.name(),
                             demanded[0], demanded[1], demanded[2], size[0], size[1], size[2]));
  std::size_t items = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    items *= size[i];
    if (size[i] == 0 || size[i] > limits.max_group_size[i] || items > limits.max_group_items)
      return Error(
          ErrorCode::invalid_request,
          fmt::format("{} is launched in groups of {} x {} x {}; the device allows {} x {} x {} and at most {} "
                      "work items",
                      program.name(), size[0], size[1], size[2], limits.max_group_size[0], limits.max_group_size[1],
                      limits.max_group_size[2], limits.max_group_items));
  }
  return size;
}

Result<void> set_arguments(const BuiltProgram& program, const Launch& launch, cl_kernel kernel,
                           std::string_view device) {
  KILN_TRY(check_arguments(program, launch));
  const Library& cl = program.context().cl();
  const auto buffers = KILN_TRY(backend::own_buffers<ClBuffer>(launch, program.context(), device, program.name()));
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const cl_mem memory = buffers[i]->memory();
    if (const cl_int error = cl.clSetKernelArg(kernel, static_cast<cl_uint>(i), sizeof(cl_mem), &memory);
        error != CL_SUCCESS)
      return Error(ErrorCode::invalid_request, fmt::format("{}: argument {} is not a buffer in the source ({})",
                                                           program.name(), i, error_name(error)));
  }
  if (launch.parameters.empty()) return {};
  const std::size_t last = launch.buffers.size();
  if (const cl_int error =
          cl.clSetKernelArg(kernel, static_cast<cl_uint>(last), launch.parameters.size(), launch.parameters.data());
      error != CL_SUCCESS)
    return Error(ErrorCode::invalid_request,
                 fmt::format("{}: argument {} does not take {} bytes ({})", program.name(), last,
                             launch.parameters.size(), error_name(error)));
  return {};
}

}  // namespace

Result<PreparedLaunch> PreparedLaunch::make(const kiln::Module& module, const Launch& launch,
                                            const Context& context, const DeviceInfo& info) {
  const auto* own = dynamic_cast<const BuiltProgram*>(&module);
  if (own == nullptr || &own->context() != &context)
    return backend::foreign_program(own != nullptr ? own->name() : "the program", info.name);
  const BuiltProgram& program = *own;
  auto kernel = KILN_TRY(program.borrow_kernel());
  const auto local = KILN_TRY(group_size(program, launch, kernel->get(), info.limits));
  KILN_TRY(set_arguments(program, launch, kernel->get(), info.name));
  Sizes global{};
  for (std::size_t i = 0; i < 3; ++i) global[i] = launch.groups[i] * local[i];
  return PreparedLaunch(program, std::move(kernel), global, local);
}

bool PreparedLaunch::is_work() const noexcept {
  return std::ranges::find(global_, std::size_t{0}) == global_.end();
}

cl_int PreparedLaunch::enqueue(cl_command_queue queue, cl_event* event) const {
  return program_.enqueue(queue, kernel_->get(), global_, local_, event);
}

}  // namespace kiln::opencl
