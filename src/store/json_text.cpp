#include "store/json_text.hpp"

#include <cstddef>
#include <vector>

namespace kiln::store {
namespace {

using Json = nlohmann::ordered_json;

/// Checks two bounds before values are built: destroying deeply nested values would overflow the stack, and
/// inserting into an ordered object takes linear time per member. A parser callback could also stop early, but
/// makes the parser scan whole arrays after each element.
class Bounds : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return ++members_.back() <= max_members; }
  bool start_object(std::size_t) override { return begin(); }
  bool end_object() override { return end(); }
  bool start_array(std::size_t) override { return begin(); }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  static constexpr std::size_t max_depth = 16;
  static constexpr std::size_t max_members = 2048;

  bool begin() {
    members_.push_back(0);
    return members_.size() <= max_depth;
  }
  bool end() {
    members_.pop_back();
    return true;
  }

  /// The number of members read so far of each open object; 0 for arrays.
  std::vector<std::size_t> members_;
};

}  // namespace

std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::optional<nlohmann::ordered_json> parse_json(std::string_view text) {
  Bounds bounds;
  if (!Json::sax_parse(text.begin(), text.end(), &bounds)) return std::nullopt;
  auto json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_object()) return std::nullopt;
  return json;
}

}  // namespace kiln::store
