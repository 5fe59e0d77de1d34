#include "store/json_file.hpp"

namespace kiln::store {
namespace {

constexpr std::uint64_t max_json_bytes = std::uint64_t{64} << 20;

}  // namespace

Result<void> write_json(const base::Folder& folder, const std::string& name, const nlohmann::ordered_json& json) {
  const std::string text = json_text(json);
  return folder.replace(name, std::as_bytes(std::span(text.data(), text.size())));
}

std::optional<nlohmann::ordered_json> read_json(const base::Folder& folder, const std::string& name) {
  auto file = folder.read(name, max_json_bytes);
  if (!file || !*file) return std::nullopt;
  return parse_json({reinterpret_cast<const char*>((*file)->bytes.data()), (*file)->bytes.size()});
}

}  // namespace kiln::store
