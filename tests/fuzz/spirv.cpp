#include "backend/vulkan/spirv.hpp"

#include "fuzz/input.hpp"

namespace kiln::fuzz {
namespace {

using backend::GlslMember;
using backend::GlslResource;
using vulkan::place_of;

/// What a launch relies on.
void check(const vulkan::ShaderInterface& interface, bool is_vulkan) {
  for (const GlslMember& member : interface.members) {
    expect(member.bytes > 0, "a member has a size");
    expect(std::uint64_t{member.offset} + member.bytes <= interface.parameter_bytes, "a member is in its block");
  }
  expect(interface.members.size() <= vulkan::max_members, "there are not too many members");
  for (std::size_t i = 0; i < interface.resources.size(); ++i) {
    const GlslResource& resource = interface.resources[i];
    expect(resource.count > 0, "a resource is there at least once");
    expect(resource.name.size() <= vulkan::max_name, "the name of a resource can be stored");
    if (i > 0) expect(place_of(interface.resources[i - 1]) <= place_of(resource), "resources are sorted");
    if (!is_vulkan) continue;
    expect(resource.place.binding <= vulkan::max_binding, "a binding is not too high");
    if (i > 0) expect(place_of(interface.resources[i - 1]) < place_of(resource), "a binding has one resource");
  }
}

}  // namespace
}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  const auto bytes = fuzz::Input(data, size).rest_bytes();
  if (const auto entries = vulkan::entries_from(bytes)) {
    fuzz::expect(vulkan::entries_from(vulkan::to_bytes(*entries)) == *entries,
                 "entry points are read as they were");
    for (const vulkan::ShaderEntry& entry : *entries) fuzz::check(entry.interface, true);
  }
  std::vector<std::uint32_t> words = vulkan::spirv_words(bytes);
  static_cast<void>(vulkan::check_capabilities("fuzz", words, {}));
  const vulkan::Constants constants = {{0, 64U}, {1, true}, {2, 0.5F}, {3, std::int64_t{1}}};
  using Options = vulkan::SpirvOptions;
  for (const auto api : {Options::Api::vulkan, Options::Api::opengl})
    for (const auto count : {Options::Count::used, Options::Count::declared})
      for (const vulkan::Constants* given : {static_cast<const vulkan::Constants*>(nullptr), &constants}) {
        const bool is_vulkan = api == Options::Api::vulkan;
        const auto entries =
            vulkan::read_spirv(words, {.max_version = 0x00010600, .api = api, .count = count, .constants = given});
        if (!entries) {
          const ErrorCode code = entries.error().code();
          fuzz::expect(code == ErrorCode::load_failed || code == ErrorCode::unsupported,
                       "what is wrong is the module");
          continue;
        }
        for (const vulkan::ShaderEntry& entry : *entries) {
          fuzz::expect(entry.name.size() <= vulkan::max_entry_name, "entry points can be stored");
          fuzz::expect(std::ranges::find(entry.interface.group_size, 0U) == entry.interface.group_size.end(),
                       "a group has a size whatever the module declares");
          fuzz::check(entry.interface, is_vulkan);
          if (given == nullptr)
            for (const vulkan::SpecConstant& constant : entry.interface.constants)
              fuzz::expect(!constant.is_given, "constants have their defaults");
          static_cast<void>(vulkan::check_constants("fuzz", constants, entry.interface.constants));
        }
        if (is_vulkan)
          fuzz::expect(vulkan::entries_from(vulkan::to_bytes(*entries)) == *entries,
                       "entry points are read as written");
      }
  const bool is_read = vulkan::read_spirv(words).ok();
  words.push_back(0);
  fuzz::expect(!is_read || !vulkan::read_spirv(words), "an instruction without a length is noticed");
  return 0;
}
