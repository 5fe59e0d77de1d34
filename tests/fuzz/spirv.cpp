#include "backend/vulkan/spirv.hpp"

#include "fuzz/input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  const auto bytes = fuzz::Input(data, size).rest_bytes();
  if (const auto interface = vulkan::interface_from(bytes)) {
    const auto written = vulkan::to_bytes(*interface);
    fuzz::expect(std::ranges::equal(written, bytes), "a interface is written as it was read");
  }
  std::vector<std::uint32_t> words = vulkan::spirv_words(bytes);
  const auto interface = vulkan::read_spirv(words);
  if (!interface) {
    const ErrorCode code = interface.error().code();
    fuzz::expect(code == ErrorCode::load_failed || code == ErrorCode::unsupported, "what is wrong is the module");
    return 0;
  }
  fuzz::expect(std::ranges::find(interface->group_size, 0U) == interface->group_size.end(), "a group has a size");
  fuzz::expect(interface->buffers <= 0x400000, "there are no more buffers than ids");
  fuzz::expect(vulkan::interface_from(vulkan::to_bytes(*interface)) == *interface,
               "a interface is read as it was written");
  words.push_back(0);
  fuzz::expect(!vulkan::read_spirv(words), "an instruction without a length is noticed");
  return 0;
}
