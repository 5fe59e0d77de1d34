#include "store/json_file.hpp"

namespace kiln::store {
namespace {

constexpr std::uint64_t max_json_bytes = std::uint64_t{64} << 20;
constexpr int max_depth = 16;

}  // namespace

Result<void> write_json(const base::Folder& folder, const std::string& name, const nlohmann::ordered_json& json) {
  const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return folder.replace(name, std::as_bytes(std::span(text.data(), text.size())));
}

std::optional<nlohmann::ordered_json> parse_json(std::string_view text) {
  // Depth is bounded while parsing: destroying deeply nested JSON would overflow the stack.
  using Json = nlohmann::ordered_json;
  bool too_deep = false;
  const auto bound_depth = [&too_deep](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > max_depth;
    return !too_deep;
  };
  auto json = Json::parse(text.begin(), text.end(), bound_depth, false);
  if (too_deep || !json.is_object()) return std::nullopt;
  return json;
}

std::optional<nlohmann::ordered_json> read_json(const base::Folder& folder, const std::string& name) {
  auto file = folder.read(name, max_json_bytes);
  if (!file || !*file) return std::nullopt;
  return parse_json({reinterpret_cast<const char*>((*file)->bytes.data()), (*file)->bytes.size()});
}

}  // namespace kiln::store
