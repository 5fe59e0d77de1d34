#include "backend/vulkan/spirv.hpp"

#include "fuzz/input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  const auto bytes = fuzz::Input(data, size).rest_bytes();
  if (const auto entries = vulkan::entries_from(bytes))
    fuzz::expect(vulkan::entries_from(vulkan::to_bytes(*entries)) == *entries,
                 "entry points are read as they were");
  std::vector<std::uint32_t> words = vulkan::spirv_words(bytes);
  static_cast<void>(vulkan::check_capabilities("fuzz", words, {}));
  const auto entries = vulkan::read_spirv(words);
  const auto any = vulkan::read_spirv(words, 0x00010300, vulkan::Resources::any);
  if (any)
    for (const vulkan::ShaderEntry& entry : *any)
      fuzz::expect(std::ranges::find(entry.interface.group_size, 0U) == entry.interface.group_size.end(),
                   "a group has a size whatever the module declares");
  if (!entries) {
    const ErrorCode code = entries.error().code();
    fuzz::expect(code == ErrorCode::load_failed || code == ErrorCode::unsupported, "what is wrong is the module");
    return 0;
  }
  fuzz::expect(any && *any == *entries, "a module that Vulkan takes is read the same for OpenGL");
  for (const vulkan::ShaderEntry& entry : *entries) {
    fuzz::expect(entry.name.size() <= 4096, "entry points can be stored");
    fuzz::expect(entry.interface.buffers <= 0x400000, "there are no more buffers than ids");
  }
  fuzz::expect(vulkan::entries_from(vulkan::to_bytes(*entries)) == *entries, "entry points are read as written");
  words.push_back(0);
  fuzz::expect(!vulkan::read_spirv(words), "an instruction without a length is noticed");
  return 0;
}
