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
#include "backend/quirks/nvidia_opencl.hpp"
#include "backend/sections.hpp"
#include "backend/source_text.hpp"
#include "backend/vulkan/spirv.hpp"
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

ArgumentKind kind_of(cl_kernel_arg_address_qualifier space, const std::string& type) {
  switch (space) {
    case CL_KERNEL_ARG_ADDRESS_LOCAL: return ArgumentKind::local;
    case CL_KERNEL_ARG_ADDRESS_PRIVATE: return type == "sampler_t" ? ArgumentKind::sampler : ArgumentKind::value;
    // Images are in global memory too.
    default: return type.starts_with("image") && !type.ends_with('*') ? ArgumentKind::image : ArgumentKind::buffer;
  }
}

DeclaredArgument declared(const Library& cl, cl_kernel kernel, cl_uint argument) {
  cl_kernel_arg_address_qualifier space = 0;
  if (cl.clGetKernelArgInfo(kernel, argument, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof space, &space, nullptr) !=
      CL_SUCCESS)
    return {};
  std::string type = cl.argument_type(kernel, argument);
  const ArgumentKind kind = kind_of(space, type);
  return {kind, std::move(type), cl.argument_name(kernel, argument)};
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

/// A program that is not built yet, of source text or SPIR-V.
Result<cl_program> create_program(const Context& context, const Request& request, const std::string& source) {
  const Library& cl = context.cl();
  cl_int error = CL_SUCCESS;
  cl_program made = nullptr;
  if (request.language() == Language::spirv) {
    constexpr cl_device_info il_version = 0x105B;  // CL_DEVICE_IL_VERSION
    if (cl.clCreateProgramWithIL == nullptr || cl.text(context.device(), il_version).empty())
      return Error(ErrorCode::unsupported,
                   fmt::format("{} is SPIR-V, which the device does not support: its CL_DEVICE_IL_VERSION is empty",
                               request.name()));
    const auto words = vulkan::spirv_words(std::as_bytes(std::span(source)));
    KILN_TRY(context.spirv_validator().validate(request.name(), words, vulkan::SpirvEnvironment::opencl));
    made = cl.clCreateProgramWithIL(context.context(), source.data(), source.size(), &error);
  } else {
    const char* text = source.data();
    const std::size_t length = source.size();
    made = cl.clCreateProgramWithSource(context.context(), 1, &text, &length, &error);
  }
  if (made == nullptr) return cl_error(error, fmt::format("compiling {}", request.name()));
  return made;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (;;) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return lines;
    text.remove_prefix(end + 1);
  }
}

/// Converts an error from loading a binary. Caches remove entries that return load_failed, so return it only if the
/// binary is at fault.
Error of_load(const std::string& name, Error error) {
  if (error.code() == ErrorCode::out_of_memory || error.code() == ErrorCode::device_failed) return error;
  return Error(ErrorCode::load_failed,
               fmt::format("the driver refuses the binary of {}: {}", name, error.message()));
}

}  // namespace

std::string_view to_string(ArgumentKind kind) noexcept {
  switch (kind) {
    case ArgumentKind::buffer: return "buffer";
    case ArgumentKind::value: return "value";
    case ArgumentKind::local: return "local memory";
    case ArgumentKind::image: return "image";
    case ArgumentKind::sampler: return "sampler";
    case ArgumentKind::unknown: break;
  }
  return "unknown";
}

std::size_t DeclaredArgument::bytes() const noexcept {
  static constexpr std::array<std::pair<std::string_view, std::size_t>, 13> scalars = {{{"char", 1},
                                                                                        {"uchar", 1},
                                                                                        {"short", 2},
                                                                                        {"ushort", 2},
                                                                                        {"half", 2},
                                                                                        {"int", 4},
                                                                                        {"uint", 4},
                                                                                        {"float", 4},
                                                                                        {"long", 8},
                                                                                        {"ulong", 8},
                                                                                        {"double", 8},
                                                                                        {"size_t", sizeof(void*)},
                                                                                        {"bool", 1}}};
  if (kind != ArgumentKind::value) return 0;
  const std::size_t end = std::min(type.find_last_not_of("0123456789") + 1, type.size());
  const auto* scalar = std::ranges::find(scalars, std::string_view(type).substr(0, end),
                                         &std::pair<std::string_view, std::size_t>::first);
  if (scalar == scalars.end()) return 0;
  const std::size_t elements = end < type.size() ? std::strtoul(type.c_str() + end, nullptr, 10) : 1;
  // Vectors of 3 have the size of vectors of 4.
  return elements > 16 ? 0 : scalar->second * (elements == 3 ? 4 : elements);
}

std::string to_text(const std::vector<DeclaredArgument>& arguments) {
  std::string text;
  for (const DeclaredArgument& argument : arguments) {
    if (!text.empty()) text += '\t';
    // Names have no spaces, types may have.
    text += fmt::format("{} {} {}", static_cast<char>(argument.kind), argument.type, argument.name);
  }
  return text;
}

std::vector<DeclaredArgument> arguments_in(std::string_view text) {
  std::vector<DeclaredArgument> arguments;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find('\t'));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    const std::size_t name = std::min(one.rfind(' '), one.size());
    DeclaredArgument argument;
    if (!one.empty() && std::string_view("bvlis").find(one[0]) != std::string_view::npos)
      argument.kind = static_cast<ArgumentKind>(one[0]);
    if (name > 2 && name < one.size()) argument.type = one.substr(2, name - 2);
    if (name < one.size()) argument.name = one.substr(name + 1);
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

ProgramKernel::ProgramKernel(const BuiltProgram& program, std::string entry)
    : program_(program), entry_(std::move(entry)) {
  if (program_.context().has_pocl_dlhandle_cache())
    pocl_dlhandle_cache_ = backend::quirks::PoclDlhandleCache::of(entry_);
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
  cl_program made = KILN_TRY(create_program(*context, request, source));
  auto program = std::make_unique<BuiltProgram>(context, made, request.name());
  auto built = program->build("-cl-kernel-arg-info", options);
  if (!built && built.error().code() == ErrorCode::compile_failed &&
      backend::quirks::NvidiaOpenCl::may_fail_with_argument_info(cl, context->device()))
    built = program->build("", options);
  if (!built)
    return built.error().code() == ErrorCode::compile_failed
               ? backend::refusal(request, folders.with_names(with_origins(program->build_log(), source)))
               : std::move(built).error();
  const auto entries = request.entries().empty() ? KILN_TRY(program->kernel_names()) : request.entries();
  if (entries.empty())
    return Error(ErrorCode::compile_failed,
                 fmt::format("{} has no kernel; declare one as __kernel", request.name()));
  for (const std::string& entry : entries) {
    auto* kernel = KILN_TRY(program->add_kernel(entry));
    KILN_TRY(kernel->read_arguments());
  }
  return program;
}

Result<Compiled> BuiltProgram::compile(const std::shared_ptr<const Context>& context, const Request& request) {
  using namespace std::chrono_literals;
  KILN_TRY(backend::check_language(request, {Language::opencl, Language::spirv}));
  if (!request.constants().empty())
    return Error(
        ErrorCode::invalid_request,
        fmt::format("{} has specialisation constants, which Kiln sets only in Vulkan and OpenGL", request.name()));
  const std::string source =
      request.language() == Language::spirv ? request.source() : backend::with_defines(request);
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
    std::string entries;
    std::string arguments;
    for (const auto& kernel : program->kernels()) {
      if (!entries.empty()) entries += '\n', arguments += '\n';
      entries += kernel->entry();
      arguments += to_text(kernel->arguments());
    }
    std::optional<Binary> binary;
    if (whole && !image.empty())
      binary = Binary{binary_format,
                      backend::seal_sections({backend::as_section(program->name()), backend::as_section(entries),
                                              backend::as_section(arguments), image})};
    return Compiled{ProgramModule::of(std::move(program)), std::move(binary)};
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
  auto program = std::make_unique<BuiltProgram>(context, made, name);
  program->bytes_ = size;
  if (auto built = program->build("", ""); !built) return of_load(name, std::move(built).error());
  const auto entries = lines_of(backend::as_text((*sections)[1]));
  const auto arguments = lines_of(backend::as_text((*sections)[2]));
  if (entries.size() != arguments.size())
    return Error(ErrorCode::load_failed, fmt::format("the binary of {} is damaged", name));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    auto kernel = program->add_kernel(std::string(entries[i]));
    if (!kernel) return of_load(name, std::move(kernel).error());
    (*kernel)->set_arguments(arguments_in(arguments[i]));
  }
  program->is_complete_ = !context->is_pocl() || backend::quirks::PoclSpecialisation::has_code(
                                                     backend::as_text(image), {entries.begin(), entries.end()});
  return std::unique_ptr<kiln::Module>(ProgramModule::of(std::move(program)));
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

Result<std::vector<std::string>> BuiltProgram::kernel_names() const {
  const Library& cl = context_->cl();
  std::size_t size = 0;
  cl_int error = cl.clGetProgramInfo(program_, CL_PROGRAM_KERNEL_NAMES, 0, nullptr, &size);
  std::string text(size, '\0');
  if (error == CL_SUCCESS)
    error = cl.clGetProgramInfo(program_, CL_PROGRAM_KERNEL_NAMES, size, text.data(), nullptr);
  if (error != CL_SUCCESS) return cl_error(error, fmt::format("listing the kernels of {}", name_));
  text.resize(std::min(text.find('\0'), text.size()));
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(';', begin), text.size());
    if (end > begin) names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

Result<ProgramKernel*> BuiltProgram::add_kernel(const std::string& entry) {
  auto kernel = std::make_unique<ProgramKernel>(*this, entry);
  KILN_TRY(kernel->open());
  kernels_.push_back(std::move(kernel));
  return kernels_.back().get();
}

Result<void> ProgramKernel::open() {
  auto kernel = KILN_TRY(borrow());
  const Context& context = program_.context();
  cl_ulong used = 0;
  context.cl().clGetKernelWorkGroupInfo(kernel->get(), context.device(), CL_KERNEL_LOCAL_MEM_SIZE, sizeof used,
                                        &used, nullptr);
  const auto has = context.cl().number<cl_ulong>(context.device(), CL_DEVICE_LOCAL_MEM_SIZE);
  if (used > has)
    return Error(ErrorCode::unsupported,
                 fmt::format("{} uses {} bytes of local memory; the device has {}", program_.name(), used, has));
  local_bytes_ = used;
  return {};
}

Result<void> ProgramKernel::read_arguments() {
  auto kernel = KILN_TRY(borrow());
  const Library& cl = program_.context().cl();
  cl_uint count = 0;
  if (const cl_int error = cl.clGetKernelInfo(kernel->get(), CL_KERNEL_NUM_ARGS, sizeof count, &count, nullptr);
      error != CL_SUCCESS)
    return cl_error(error, fmt::format("counting the arguments of {}", entry_));
  for (cl_uint i = 0; i < count; ++i) arguments_.push_back(declared(cl, kernel->get(), i));
  return {};
}

Result<backend::Pool<KernelObject>::Loan> ProgramKernel::borrow() const {
  return objects_.borrow([this]() -> Result<std::unique_ptr<KernelObject>> {
    const Context& context = program_.context();
    cl_int error = CL_SUCCESS;
    cl_kernel kernel = context.cl().clCreateKernel(program_.program(), entry_.c_str(), &error);
    if (kernel != nullptr) return std::make_unique<KernelObject>(context, kernel);
    if (error == CL_INVALID_KERNEL_NAME)
      return Error(ErrorCode::compile_failed, fmt::format("{} has no kernel called {}", program_.name(), entry_));
    return cl_error(error, fmt::format("creating the kernel {} of {}", entry_, program_.name()));
  });
}

cl_int ProgramKernel::enqueue(cl_command_queue queue, cl_kernel kernel, const std::array<std::size_t, 3>& offset,
                              const std::array<std::size_t, 3>& global, const std::array<std::size_t, 3>& local,
                              cl_event* event) const {
  const Library& cl = program_.context().cl();
  const auto enqueue_on = [&](cl_event* given) {
    return cl.clEnqueueNDRangeKernel(queue, kernel, 3, offset.data(), global.data(),
                                     local[0] != 0 ? local.data() : nullptr, 0, nullptr, given);
  };
  if (pocl_dlhandle_cache_ == nullptr) return enqueue_on(event);
  return pocl_dlhandle_cache_->run(cl, queue, widest_, global, local, event, enqueue_on);
}

std::unique_ptr<ProgramModule> ProgramModule::of(std::shared_ptr<const BuiltProgram> program) {
  const auto& kernels = program->kernels();
  if (kernels.size() == 1) return std::make_unique<ProgramModule>(program, kernels[0].get());
  auto module = std::make_unique<ProgramModule>(program, nullptr);
  for (const auto& kernel : kernels)
    module->entries_.push_back(std::make_unique<ProgramModule>(program, kernel.get()));
  return module;
}

const std::string& ProgramModule::kernel_name() const noexcept {
  static const std::string none;
  return kernel_ != nullptr ? kernel_->entry() : none;
}

std::vector<std::string> ProgramModule::entries() const {
  if (kernel_ != nullptr) return {kernel_->entry()};
  std::vector<std::string> names;
  for (const auto& kernel : program_->kernels()) names.push_back(kernel->entry());
  return names;
}

kiln::Module* ProgramModule::entry(std::string_view name) noexcept {
  if (kernel_ != nullptr) return kernel_->entry() == name ? this : nullptr;
  for (const auto& module : entries_)
    if (module->kernel_->entry() == name) return module.get();
  return nullptr;
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

}  // namespace kiln::opencl
