#include "store/json_file.hpp"

#include <array>

namespace kiln::store {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t max_json_bytes = std::uint64_t{64} << 20;
constexpr int max_depth = 16;
constexpr std::uint64_t max_comparisons = 50'000'000;

/// Gives up on a text that would cost too much: destroying what is deeply nested overflows the stack, and an
/// ordered object looks for each of its keys among those before it.
class Bounds {
 public:
  bool exceeded() const noexcept { return exceeded_; }

  bool keep(int depth, Json::parse_event_t event) {
    if (depth > max_depth) exceeded_ = true;
    if (exceeded_) return false;
    const auto level = static_cast<std::size_t>(depth);
    if (event == Json::parse_event_t::object_start) keys_[level + 1] = 0;
    if (event == Json::parse_event_t::key) comparisons_ += keys_[level]++;
    exceeded_ = comparisons_ > max_comparisons;
    return !exceeded_;
  }

 private:
  bool exceeded_ = false;
  std::uint64_t comparisons_ = 0;
  /// How many the object at each depth has so far.
  std::array<std::uint64_t, max_depth + 2> keys_ = {};
};

}  // namespace

Result<void> write_json(const base::Folder& folder, const std::string& name, const nlohmann::ordered_json& json) {
  const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return folder.replace(name, std::as_bytes(std::span(text.data(), text.size())));
}

std::optional<nlohmann::ordered_json> parse_json(std::string_view text) {
  Bounds bounds;
  const auto keep = [&bounds](int depth, Json::parse_event_t event, Json&) { return bounds.keep(depth, event); };
  auto json = Json::parse(text.begin(), text.end(), keep, false);
  if (bounds.exceeded() || !json.is_object()) return std::nullopt;
  return json;
}

std::optional<nlohmann::ordered_json> read_json(const base::Folder& folder, const std::string& name) {
  auto file = folder.read(name, max_json_bytes);
  if (!file || !*file) return std::nullopt;
  return parse_json({reinterpret_cast<const char*>((*file)->bytes.data()), (*file)->bytes.size()});
}

}  // namespace kiln::store
