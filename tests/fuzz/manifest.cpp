#include "store/directory.hpp"

#include "fuzz/input.hpp"
#include "store/json_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  const auto json = store::parse_json(fuzz::Input(data, size).rest());
  const auto identity = json ? store::identity_in(*json) : std::nullopt;
  if (!identity) return 0;
  fuzz::expect(fuzz::is_plain_file_name(identity->folder()), "a device folder has a plain name");
  const auto again = store::parse_json(store::manifest_of(*identity).dump());
  fuzz::expect(again && store::identity_in(*again) == identity, "an identity is read as it was written");
  return 0;
}
