#include <algorithm>

#include "fuzz/input.hpp"
#include "store/remote/aws_settings.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  const std::string_view text = fuzz::Input(data, size).rest();
  for (const auto file : {store::AwsFile::credentials, store::AwsFile::config})
    for (const char* name : {"default", "ci"}) {
      const auto profile = store::find_aws_profile(text, file, name);
      fuzz::expect(!profile || text.find(name) != std::string_view::npos, "a profile is named in the text");
      if (!profile) continue;
      for (const auto& [setting, value] : *profile) {
        fuzz::expect(setting.size() + value.size() < text.size(), "settings are parts of the text");
        fuzz::expect((setting + value).find('\n') == std::string::npos, "a setting is one line");
        fuzz::expect(std::ranges::none_of(setting, [](char c) { return c >= 'A' && c <= 'Z'; }),
                     "names are in lower case");
      }
    }
  return 0;
}
