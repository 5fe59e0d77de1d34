#include "backend/vulkan/shaderc.hpp"

#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "backend/source_text.hpp"
#include "backend/symbols.hpp"
#include "backend/vulkan/spirv.hpp"
#include "base/process.hpp"
#include "base/try.hpp"
#include "key/source_scanner.hpp"

namespace kiln::vulkan {

struct Shaderc::Options {
  shaderc_optimization_level level = shaderc_optimization_level_performance;
  bool debug_info = false;
};

namespace {

/// Finds all functions. Returns the name of the first missing one, or null.
const char* find_functions(const base::DynamicLibrary& library, ShadercFunctions& functions) {
  if (const auto bundled = library.function<const ShadercFunctions*()>("kiln_shaderc_functions")) {
    functions = *bundled();
    return nullptr;
  }
  backend::SymbolLookup lookup(library);
  functions.fill(lookup);
  return lookup.missing();
}

/// The libraries to try. The shared shaderc of Debian 12 has undefined symbols and does not load, so Kiln's build
/// makes a shared library from the static shaderc if that is installed.
constexpr const char* known_libraries[] = {
    "libshaderc_shared.so.1",
    "libshaderc.so.1",
    "libkiln_shaderc.so.0",
#ifdef KILN_SHADERC_LIBRARY
    KILN_SHADERC_LIBRARY,
#endif
};

/// Without #version, or with an old version, glslang assumes a language without compute shaders and prints its
/// built-in declarations to standard output.
Result<void> check_version(const Request& request) {
  const std::string& source = request.source();
  key::SourceScanner scanner(source);
  const auto first = scanner.next();
  int version = 0;
  if (first && first->name == "version") {
    const std::size_t begin = std::min(source.find_first_not_of(" \t", first->rest_begin), source.size());
    std::from_chars(source.data() + begin, source.data() + source.size(), version);
  }
  if (version == 0)
    return Error(
        ErrorCode::compile_failed,
        fmt::format("{} does not compile: it does not start with #version; add #version 450", request.name()));
  if (version < 310)
    return Error(ErrorCode::compile_failed,
                 fmt::format("{} does not compile: #version {} has no compute shaders; write #version 450",
                             request.name(), version));
  return {};
}

}  // namespace

Result<std::shared_ptr<const Shaderc>> Shaderc::open() { return open(known_libraries); }

Result<std::shared_ptr<const Shaderc>> Shaderc::open(std::span<const char* const> libraries) {
  std::string reasons;
  std::string last;
  for (const char* name : libraries) {
    auto library = base::DynamicLibrary::open(name);
    if (!library) {
      last = library.error().message();
      reasons += last + '\n';
      continue;
    }
    ShadercFunctions functions;
    const char* missing = find_functions(*library, functions);
    if (missing == nullptr)
      return std::shared_ptr<const Shaderc>(std::make_shared<Shaderc>(std::move(*library), functions));
    last = fmt::format("{} has no {}", name, missing);
    reasons += last + '\n';
  }
  return Error(
      ErrorCode::no_device,
      fmt::format("cannot load shaderc, which compiles Vulkan programs ({}); build Kiln with libshaderc-dev "
                  "installed, which creates libkiln_shaderc.so.0, or install a libshaderc.so.1 that loads",
                  last),
      std::move(reasons));
}

Shaderc::Shaderc(base::DynamicLibrary library, const ShadercFunctions& functions)
    : library_(std::move(library)),
      functions_(functions),
      compiler_(functions_.compiler_initialize()),
      version_([this] {
        unsigned int version = 0;
        unsigned int revision = 0;
        functions_.get_spv_version(&version, &revision);
        const auto package = library_.function<const char*()>("kiln_shaderc_version");
        const std::string release = package != nullptr ? package() : "";
        return fmt::format("shaderc {}{}spirv {}.{} rev {}", release, release.empty() ? "" : " ", version >> 16,
                           version >> 8 & 0xff, revision);
      }()) {}

Shaderc::~Shaderc() {
  if (!base::process_ends()) functions_.compiler_release(compiler_);
}

Result<std::vector<std::uint32_t>> Shaderc::compile(const Request& request) const {
  KILN_TRY(backend::check_language(request, Language::vulkan_glsl));
  Options options;
  for (const std::string& option : request.options()) {
    if (option == "-O0") {
      options.level = shaderc_optimization_level_zero;
    } else if (option == "-O") {
      options.level = shaderc_optimization_level_performance;
    } else if (option == "-Os") {
      options.level = shaderc_optimization_level_size;
    } else if (option == "-g") {
      options.debug_info = true;
    } else {
      return Error(ErrorCode::invalid_request,
                   fmt::format("{} has the unknown option {}; use -O0, -O, -Os or -g", request.name(), option));
    }
  }
  KILN_TRY(check_version(request));
  const std::string text = backend::with_defines(request);
  auto declared = compile(request, text, {shaderc_optimization_level_zero, options.debug_info});
  if (!declared || options.level == shaderc_optimization_level_zero) return declared;
  auto optimised = compile(request, text, options);
  if (!optimised) return optimised;
  // The optimiser removes unused buffers and parameters, but launches must match the declarations in the source. If
  // the interface changed, use the unoptimised module; the driver optimises it.
  const auto before = read_spirv(*declared);
  const auto after = read_spirv(*optimised);
  const bool same =
      before && after && before->buffers == after->buffers && before->parameter_bytes == after->parameter_bytes;
  return same ? std::move(optimised) : std::move(declared);
}

Result<std::vector<std::uint32_t>> Shaderc::compile(const Request& request, const std::string& text,
                                                    const Options& options) const {
  const ShadercFunctions& call = functions_;
  const std::unique_ptr<shaderc_compile_options, decltype(call.compile_options_release)> settings(
      call.compile_options_initialize(), call.compile_options_release);
  call.compile_options_set_target_env(settings.get(), shaderc_target_env_vulkan, shaderc_env_version_vulkan_1_1);
  call.compile_options_set_optimization_level(settings.get(), options.level);
  if (options.debug_info) call.compile_options_set_generate_debug_info(settings.get());
  const std::unique_ptr<shaderc_compilation_result, decltype(call.result_release)> result(
      call.compile_into_spv(compiler_, text.data(), text.size(), shaderc_glsl_compute_shader,
                            request.name().c_str(), "main", settings.get()),
      call.result_release);
  if (result == nullptr)
    return Error(ErrorCode::compile_failed,
                 fmt::format("{} does not compile: shaderc returned no result", request.name()));
  if (call.result_get_compilation_status(result.get()) != shaderc_compilation_status_success)
    return backend::compile_error(request, call.result_get_error_message(result.get()));
  return spirv_words(
      std::as_bytes(std::span(call.result_get_bytes(result.get()), call.result_get_length(result.get()))));
}

}  // namespace kiln::vulkan
