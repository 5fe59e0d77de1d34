#include "backend/vulkan/spirv.hpp"

#include "fuzz/input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  const auto bytes = fuzz::Input(data, size).rest_bytes();
  if (const auto entries = vulkan::entries_from(bytes))
    fuzz::expect(vulkan::entries_from(vulkan::to_bytes(*entries)) == *entries,
                 "entry points are read as they were");
  std::vector<std::uint32_t> words = vulkan::spirv_words(bytes);
  const auto names = vulkan::entry_names(words);
  const auto entries = vulkan::read_spirv(words);
  if (!entries) {
    const ErrorCode code = entries.error().code();
    fuzz::expect(code == ErrorCode::load_failed || code == ErrorCode::unsupported, "what is wrong is the module");
    return 0;
  }
  fuzz::expect(names.size() == entries->size() && !names.empty(), "a module has the entry points that it names");
  for (std::size_t i = 0; i < names.size(); ++i) {
    const vulkan::ShaderInterface& interface = (*entries)[i].interface;
    fuzz::expect((*entries)[i].name == names[i], "entry points are in order");
    fuzz::expect(std::ranges::find(interface.group_size, 0U) == interface.group_size.end(), "a group has a size");
    fuzz::expect(interface.buffers <= 0x400000, "there are no more buffers than ids");
  }
  fuzz::expect(vulkan::entries_from(vulkan::to_bytes(*entries)) == *entries, "entry points are read as written");
  words.push_back(0);
  fuzz::expect(!vulkan::read_spirv(words), "an instruction without a length is noticed");
  return 0;
}
