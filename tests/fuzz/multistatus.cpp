#include "store/remote/multistatus.hpp"

#include "fuzz/input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  const std::string_view xml = fuzz::Input(data, size).rest();
  const auto names = store::names_in_multistatus(xml, "/cache/3/");
  if (!names) {
    fuzz::expect(names.error().code() == ErrorCode::io, "a malformed listing is a failure of the server");
    return 0;
  }
  std::size_t bytes = 0;
  for (const std::string& name : *names) {
    fuzz::expect(!name.empty() && name.find('/') == std::string::npos, "a name is one step below the folder");
    fuzz::expect(name.find('\0') == std::string::npos || xml.find('\0') != std::string_view::npos,
                 "no escape stands for a NUL");
    bytes += name.size();
  }
  fuzz::expect(bytes <= xml.size(), "names are not longer than the answer");
  return 0;
}
