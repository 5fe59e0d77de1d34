#include "backend/vulkan/shaderc.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include <unistd.h>

#include <fmt/format.h>

#include "backend/source_text.hpp"
#include "backend/symbols.hpp"
#include "base/installed.hpp"
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

constexpr const char* own_library = "libkiln_shaderc.so.0";
/// The shared shaderc of Debian 12 has undefined symbols and does not load.
constexpr const char* system_libraries[] = {own_library, "libshaderc_shared.so.1", "libshaderc.so.1"};

/// As version() has it, for the library that was built with Kiln.
std::string own_version(std::string_view releases) { return fmt::format("shaderc {}", releases); }

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

/// What to do about a library that does not load.
std::string_view remedy_for(const std::string& library) {
  const char* wanted = base::environment("KILN_SHADERC");
  return wanted != nullptr && library == wanted
             ? "set KILN_SHADERC to the libkiln_shaderc.so.0 of this build of Kiln, or unset it"
             : "install Kiln and its libkiln_shaderc.so.0 together";
}

/// Whether a program can run with the resources and parameters of `all`.
bool is_part(const ShaderInterface& part, const ShaderInterface& all) {
  return part.parameter_bytes <= all.parameter_bytes &&
         std::ranges::all_of(part.resources, [&](const backend::GlslResource& resource) {
           const auto found = std::ranges::find(all.resources, resource.place, &backend::GlslResource::place);
           return found != all.resources.end() && found->kind == resource.kind && found->count == resource.count;
         });
}

}  // namespace

class Shaderc::Loaded {
 public:
  /// The error says why the library cannot be used.
  static Result<std::shared_ptr<const Loaded>> open(const std::string& name) {
    auto library = KILN_TRY(base::DynamicLibrary::open(name));
    ShadercFunctions functions;
    if (const char* missing = find_functions(library, functions); missing != nullptr)
      return Error(ErrorCode::no_device, fmt::format("{} has no {}", name, missing));
    return std::make_shared<const Loaded>(std::move(library), functions);
  }

  Loaded(base::DynamicLibrary library, const ShadercFunctions& functions)
      : library_(std::move(library)), functions_(functions), compiler_(functions_.compiler_initialize()) {}
  ~Loaded() {
    if (!base::process_ends()) functions_.compiler_release(compiler_);
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  const ShadercFunctions& functions() const noexcept { return functions_; }
  shaderc_compiler_t compiler() const noexcept { return compiler_; }
  /// Null if the library was not built with Kiln.
  ValidateSpirv* validate() const { return library_.function<ValidateSpirv>("kiln_shaderc_validate"); }
  std::string version() const {
    if (const auto releases = library_.function<const char*()>("kiln_shaderc_version"))
      return own_version(releases());
    unsigned int version = 0;
    unsigned int revision = 0;
    functions_.get_spv_version(&version, &revision);
    return fmt::format("shaderc spirv {}.{} rev {}", version >> 16, version >> 8 & 0xff, revision);
  }

 private:
  const base::DynamicLibrary library_;
  const ShadercFunctions functions_;
  const shaderc_compiler_t compiler_;
};

Result<std::shared_ptr<const Shaderc>> Shaderc::find() {
#ifdef KILN_SHADERC_VERSION
  if (auto library = base::find_own_library(own_library, "KILN_SHADERC")) {
    // Only the variable can name a file that is not there.
    if (::access(library->c_str(), R_OK) != 0)
      return Error(ErrorCode::unsupported, fmt::format("shaderc is missing: there is no {}; {}", library->string(),
                                                       remedy_for(library->string())));
    return std::make_shared<const Shaderc>(library->string(), own_version(KILN_SHADERC_VERSION));
  }
#endif
  return open(system_libraries);
}

Result<std::shared_ptr<const Shaderc>> Shaderc::open(std::span<const char* const> libraries) {
  std::string reasons;
  std::string last;
  for (const char* name : libraries) {
    auto loaded = Loaded::open(name);
    if (loaded) return std::shared_ptr<const Shaderc>(new Shaderc(std::move(*loaded)));
    last = loaded.error().message();
    reasons += last + '\n';
  }
  return Error(
      ErrorCode::no_device,
      fmt::format("cannot load shaderc, which compiles Vulkan programs ({}); build Kiln with libshaderc-dev "
                  "installed, which creates libkiln_shaderc.so.0, or install a libshaderc.so.1 that loads",
                  last),
      std::move(reasons));
}

Shaderc::Shaderc(std::string library, std::string version)
    : library_(std::move(library)), version_(std::move(version)) {}

Shaderc::Shaderc(std::shared_ptr<const Loaded> loaded) : version_(loaded->version()), loaded_(std::move(loaded)) {}

bool Shaderc::is_loaded() const {
  const base::MutexLock lock(mutex_);
  return loaded_ != nullptr;
}

Result<std::shared_ptr<const Shaderc::Loaded>> Shaderc::load() const {
  const base::MutexLock lock(mutex_);
  if (loaded_) return loaded_;
  const std::string_view remedy = remedy_for(library_);
  auto opened = Loaded::open(library_);
  if (!opened) return Error(ErrorCode::unsupported, fmt::format("{}; {}", opened.error().message(), remedy));
  auto loaded = *std::move(opened);
  // The version is part of the device's identity, under which programs are stored.
  if (loaded->version() != version_)
    return Error(ErrorCode::unsupported, fmt::format("{} is {}, but this build of Kiln belongs to {}; {}", library_,
                                                     loaded->version(), version_, remedy));
  loaded_ = loaded;
  return loaded;
}

Result<ShaderModule> Shaderc::compile(const Request& request) const {
  KILN_TRY(backend::check_language(request, {Language::vulkan_glsl}));
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
  const auto loaded = KILN_TRY(load());
  auto plain = KILN_TRY(compile(*loaded, request, text, {shaderc_optimization_level_zero, options.debug_info}));
  const SpirvOptions reading{.count = SpirvOptions::Count::declared, .constants = &request.constants()};
  auto read = read_spirv(plain, reading);
  if (!read)
    return Error(
        read.error().code() == ErrorCode::unsupported ? ErrorCode::invalid_request : ErrorCode::compile_failed,
        fmt::format("{} cannot be run: {}", request.name(), read.error().message()));
  ShaderModule declared{std::move(plain), *std::move(read)};
  if (options.level == shaderc_optimization_level_zero) return declared;
  auto words = KILN_TRY(compile(*loaded, request, text, options));
  // The optimiser removes names, and what is not used, but launches match the declarations in the source.
  const auto optimised = read_spirv(words, reading);
  ShaderInterface& interface = declared.entries.front().interface;
  if (!optimised || !is_part(optimised->front().interface, interface)) return declared;
  interface.group_size = optimised->front().interface.group_size;
  interface.shared_bytes = optimised->front().interface.shared_bytes;
  declared.words = std::move(words);
  return declared;
}

namespace {

Error cannot_check(const std::string& name, std::string_view why) {
  return Error(
      ErrorCode::unsupported,
      fmt::format("{} is SPIR-V, which {} must check before the driver gets it; {}", name, own_library, why));
}

}  // namespace

Result<void> Shaderc::validate(const std::string& name, std::span<const std::uint32_t> words,
                               SpirvEnvironment environment) const {
  const auto loaded = load();
  if (!loaded) return cannot_check(name, loaded.error().message());
  const auto check = (*loaded)->validate();
  if (check == nullptr) return cannot_check(name, "build Kiln with libshaderc-dev installed, which creates it");
  std::array<char, 1024> message = {};
  if (check(words.data(), words.size(), environment, message.data(), message.size())) return {};
  return Error(ErrorCode::compile_failed, fmt::format("{} is not valid SPIR-V: {}", name, message.data()));
}

Result<void> SpirvValidator::validate(const std::string& name, std::span<const std::uint32_t> words,
                                      SpirvEnvironment environment) const {
  const auto found = shaderc();
  if (!found) return cannot_check(name, found.error().message());
  return (*found)->validate(name, words, environment);
}

Result<std::shared_ptr<const Shaderc>> SpirvValidator::shaderc() const {
  const base::MutexLock lock(mutex_);
  if (!shaderc_) shaderc_ = KILN_TRY(Shaderc::find());
  return shaderc_;
}

Result<std::vector<std::uint32_t>> Shaderc::compile(const Loaded& loaded, const Request& request,
                                                    const std::string& text, const Options& options) {
  const ShadercFunctions& call = loaded.functions();
  const std::unique_ptr<shaderc_compile_options, decltype(call.compile_options_release)> settings(
      call.compile_options_initialize(), call.compile_options_release);
  call.compile_options_set_target_env(settings.get(), shaderc_target_env_vulkan, shaderc_env_version_vulkan_1_1);
  call.compile_options_set_optimization_level(settings.get(), options.level);
  if (options.debug_info) call.compile_options_set_generate_debug_info(settings.get());
  const std::unique_ptr<shaderc_compilation_result, decltype(call.result_release)> result(
      call.compile_into_spv(loaded.compiler(), text.data(), text.size(), shaderc_glsl_compute_shader,
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
