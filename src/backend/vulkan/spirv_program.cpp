#include "backend/vulkan/spirv_program.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <vulkan/vulkan_core.h>

#include "backend/sections.hpp"
#include "backend/source_text.hpp"
#include "base/try.hpp"

namespace kiln::vulkan {
namespace {

SpirvEnvironment environment_of(std::uint32_t vulkan_version) noexcept {
  if (vulkan_version >= VK_API_VERSION_1_3) return SpirvEnvironment::vulkan_1_3;
  return vulkan_version >= VK_API_VERSION_1_2 ? SpirvEnvironment::vulkan_1_2 : SpirvEnvironment::vulkan_1_1;
}

/// The lowest version of Vulkan that takes the SPIR-V; the highest that Kiln knows for SPIR-V that none takes.
std::uint32_t vulkan_version_for(std::span<const std::uint32_t> words) noexcept {
  for (const std::uint32_t version : {VK_API_VERSION_1_1, VK_API_VERSION_1_2})
    if (words.size() > 1 && words[1] <= spirv_version_of(version)) return version;
  return VK_API_VERSION_1_3;
}

/// The SPIR-V that the request has.
Result<ShaderModule> given_module(const Shaderc& shaderc, const Request& request, std::uint32_t vulkan_version) {
  auto words = spirv_words(std::as_bytes(std::span(request.source())));
  // The reader's messages are plainer than the validator's.
  auto entries =
      read_spirv(words, {.max_version = spirv_version_of(vulkan_version), .constants = &request.constants()});
  if (!entries)
    return Error(ErrorCode::compile_failed, fmt::format("{}: {}", request.name(), entries.error().message()));
  KILN_TRY(shaderc.validate(request.name(), words, environment_of(vulkan_version)));
  return ShaderModule{std::move(words), *std::move(entries)};
}

/// The entry points that the request names; all if it names none.
Result<std::vector<ShaderEntry>> chosen(const Request& request, std::vector<ShaderEntry> entries) {
  if (request.entries().empty()) return entries;
  std::vector<ShaderEntry> named;
  for (const std::string& name : request.entries()) {
    const auto found = std::ranges::find(entries, name, &ShaderEntry::name);
    if (found == entries.end())
      return Error(ErrorCode::compile_failed,
                   fmt::format("{} has no compute entry point called {}", request.name(), name));
    named.push_back(*found);
  }
  return named;
}

}  // namespace

Result<ShaderModule> shader_module(const Shaderc& shaderc, const Request& request, std::uint32_t vulkan_version) {
  KILN_TRY(backend::check_language(request, {Language::vulkan_glsl, Language::spirv}));
  auto module = KILN_TRY(request.language() == Language::spirv ? given_module(shaderc, request, vulkan_version)
                                                               : shaderc.compile(request));
  KILN_TRY(check_constants(request.name(), request.constants(), module.entries.front().interface.constants));
  module.entries = KILN_TRY(chosen(request, std::move(module.entries)));
  return module;
}

Identity portable_identity(const std::string& compiler) {
  return {.api = "vulkan", .device = "SPIR-V", .compiler = compiler, .formats = {portable_format}};
}

bool is_portable(const Identity& target) {
  static const Digest portable = portable_identity("").target_digest();
  return target.target_digest() == portable;
}

Result<Binary> compile_portable(const Shaderc& shaderc, const Request& request) {
  // Validated for the lowest version of Vulkan that takes it, whose rules later ones keep.
  const std::uint32_t version = request.language() == Language::spirv
                                    ? vulkan_version_for(spirv_words(std::as_bytes(std::span(request.source()))))
                                    : VK_API_VERSION_1_1;
  const auto module = KILN_TRY(shader_module(shaderc, request, version));
  return Binary{portable_format,
                backend::seal_sections({std::as_bytes(std::span(module.words)), to_bytes(module.entries),
                                        backend::as_section(request.name())})};
}

Result<PortableProgram> portable_program(const Binary& binary) {
  if (binary.format != portable_format)
    return Error(ErrorCode::load_failed, fmt::format("binary format {:#x} is not portable SPIR-V", binary.format));
  const auto sections = backend::unseal_sections(binary.bytes, 3);
  if (!sections) return Error(ErrorCode::load_failed, "the binary is damaged: its checksum does not match");
  PortableProgram program{std::string(backend::as_text((*sections)[2])), {spirv_words((*sections)[0]), {}}};
  // The checksum matches, so the stored entry points are those of the SPIR-V.
  auto entries = entries_from((*sections)[1]);
  if (!entries || entries->empty())
    return Error(ErrorCode::load_failed, fmt::format("{}: the binary is damaged", program.name));
  program.module.entries = *std::move(entries);
  return program;
}

}  // namespace kiln::vulkan
