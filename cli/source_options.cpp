#include "source_options.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/offline.hpp"
#include "base/process.hpp"
#include "key/source_scanner.hpp"

namespace kiln::cli {

std::vector<std::string> apis_of(Language language) {
  switch (language) {
    case Language::glsl: return {"opengl"};
    case Language::vulkan_glsl: return {"vulkan"};
    case Language::spirv: return {"vulkan", "opengl", "opencl"};
    case Language::opencl: return {"opencl"};
    case Language::cuda:
    case Language::ptx:
    case Language::cubin:
    case Language::fatbin: return {"cuda"};
    case Language::hip:
    case Language::code_object: return {"hip"};
  }
  return {};
}

namespace {

/// Suffixes of files. GLSL is for OpenGL or Vulkan, as the device decides.
constexpr std::array<std::pair<std::string_view, Language>, 9> suffixes = {{{".cl", Language::opencl},
                                                                            {".cu", Language::cuda},
                                                                            {".hip", Language::hip},
                                                                            {".spv", Language::spirv},
                                                                            {".ptx", Language::ptx},
                                                                            {".cubin", Language::cubin},
                                                                            {".fatbin", Language::fatbin},
                                                                            {".hsaco", Language::code_object},
                                                                            {".co", Language::code_object}}};

bool takes(const std::string& api, Language language) {
  const auto apis = apis_of(language);
  return std::ranges::find(apis, api) != apis.end();
}

/// Opens the first of these devices that works. If none does, the error says why for each.
Result<std::shared_ptr<Device>> open_first(const std::vector<std::string>& names, const Log& log) {
  if (names.size() == 1) return kiln::open_device(names[0], log);
  std::vector<std::string> reasons;
  for (const std::string& name : names) {
    auto device = kiln::open_device(name, log);
    if (device) return device;
    reasons.push_back(fmt::format("{}: {}", name, device.error().message()));
  }
  return Error(ErrorCode::no_device, fmt::format("no device can be opened: {}", fmt::join(reasons, "; ")));
}

Language language_of_api(std::string_view api) {
  return api == "cuda" ? Language::cuda : api == "hip" ? Language::hip : Language::glsl;
}

std::string read_source(const std::string& path) {
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, error))
    throw Failure(Error(ErrorCode::io, fmt::format("cannot read the source file {}; check the path", path)));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

void SourceOptions::add_request_options(CLI::App& command) {
  const auto repeatable = [&command](const char* flag, std::vector<std::string>& values, const char* help,
                                     const char* type) {
    command.add_option(flag, values, help)->allow_extra_args(false)->type_name(type);
  };
  command.add_option("--name", name, "Name of the program [the file name without its suffix]")->type_name("NAME");
  repeatable("--define,-D", defines, "Define a macro; a name alone is defined as 1; repeatable", "NAME=VALUE");
  repeatable("--include,-I", includes, "Add a folder for #include; repeatable", "DIR");
  repeatable("--option", options, "Add a compiler option; repeatable", "TEXT");
  repeatable("--entry", entries,
             "Entry point: a kernel, or a template with arguments, as in 'scale<float>'; repeatable [all]", "NAME");
  command
      .add_option(
          "--language", language,
          "Language of the file: glsl, vulkan, opencl, cuda, hip, or spirv, ptx, cubin, fatbin, code_object; "
          "by default, the suffix of the file decides, or the device if the suffix is unknown")
      ->check(CLI::IsMember(
                  {"glsl", "vulkan", "opencl", "cuda", "hip", "spirv", "ptx", "cubin", "fatbin", "code_object"})
                  .description(""))
      ->type_name("NAME");
}

void SourceOptions::add_to(CLI::App& command, Context& context) {
  add_request_options(command);
  command
      .add_option("--arch", architecture,
                  "Instead of a device: a GPU that need not be present, such as sm_90 or gfx906")
      ->type_name("NAME");
  context.add_device_option(command);
}

std::optional<Language> language_of_file(const SourceOptions& options, const std::string& file) {
  if (!options.language.empty()) return kiln::language_of(options.language);
  const std::string suffix = std::filesystem::path(file).extension().string();
  for (const auto& [known, language] : suffixes)
    if (suffix == known) return language;
  return std::nullopt;
}

Target open_target(const Context& context, const SourceOptions& options, std::optional<Language> language) {
  if (!options.architecture.empty()) {
    if (!context.device.empty()) throw UsageError("give --arch or --device, not both");
    if (language && key::is_compiled(*language))
      throw UsageError(
          fmt::format("--arch is for source files, but the language is {}, which is compiled already; "
                      "use --device",
                      to_string(*language)));
    auto backend = backend::open_offline(options.architecture, context.log()).value();
    const std::string api = backend->identity().api;
    if (language && !takes(api, *language))
      throw UsageError(fmt::format("--arch {} selects {}, but the language is {}", options.architecture,
                                   api == "cuda"  ? "a CUDA GPU"
                                   : api == "hip" ? "a HIP GPU"
                                                  : "Vulkan",
                                   to_string(*language)));
    return {std::move(backend), language_of_api(api)};
  }
  std::string wanted = context.device;
  std::vector<std::string> candidates = {wanted};
  if (language) {
    const char* preset = base::environment("KILN_DEVICE");
    if (wanted.empty() && preset != nullptr) wanted = preset;
    const bool fits = takes(wanted.substr(0, wanted.find(':')), *language);
    if (!context.device.empty() && !fits)
      throw UsageError(fmt::format("--device {} does not compile {}; use --device {}", wanted, to_string(*language),
                                   fmt::join(apis_of(*language), " or ")));
    candidates = fits ? std::vector{wanted} : apis_of(*language);
  }
  auto device = open_first(candidates, context.log());
  if (!device && (language == Language::cuda || language == Language::hip))
    throw Failure(Error(device.error().code(),
                        fmt::format("{}; to compile for a GPU that is not present, give its architecture, as in "
                                    "--arch {}",
                                    device.error().message(), language == Language::cuda ? "sm_90" : "gfx906"),
                        device.error().log()));
  const Language own = device.value()->info().language;
  return {*std::move(device), own};
}

Request request_for(const SourceOptions& options, const std::string& file, Language language) {
  Request::Fields fields;
  fields.name = options.name.value_or(std::filesystem::path(file).stem().string());
  fields.language = language_of_file(options, file).value_or(language);
  fields.entries = options.entries;
  fields.options = options.options;
  for (const auto& define : options.defines) {
    const std::size_t equals = define.find('=');
    if (equals == 0) throw UsageError(fmt::format("--define must be NAME or NAME=VALUE, but is \"{}\"", define));
    // As in a compiler, a name alone is defined as 1.
    fields.defines[define.substr(0, equals)] = equals == std::string::npos ? "1" : define.substr(equals + 1);
  }
  fields.source = read_source(file);
  // The first folder, so that #include "file" finds the files beside the source, as a compiler does.
  const auto folder = std::filesystem::path(file).parent_path();
  fields.include_folders.push_back(folder.empty() ? std::filesystem::current_path() : folder);
  for (const auto& include : options.includes) fields.include_folders.emplace_back(include);
  Request request(std::move(fields));
  if (request.error()) {
    const bool missing = request.error()->code() == ErrorCode::include_not_found;
    throw Failure(Error(request.error()->code(),
                        request.error()->message() + (missing ? "; give its folder with --include DIR" : "")));
  }
  return request;
}

}  // namespace kiln::cli
