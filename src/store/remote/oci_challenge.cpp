#include "store/remote/oci_challenge.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.hpp"

namespace kiln::store {
namespace {

/// Reads the header from left to right.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool is_at_end() const { return text_.empty(); }
  bool skip(char c) {
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }
  void skip_blanks() { text_.remove_prefix(std::min(text_.find_first_not_of(" \t"), text_.size())); }
  void skip_commas() { text_.remove_prefix(std::min(text_.find_first_not_of(" \t,"), text_.size())); }
  void skip_to_comma() { text_.remove_prefix(std::min(text_.find(','), text_.size())); }

  /// A word of letters, digits and some punctuation; empty if there is none.
  std::string_view token() {
    constexpr std::string_view allowed =
        "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const auto word = text_.substr(0, text_.find_first_not_of(allowed));
    text_.remove_prefix(word.size());
    return word;
  }

  /// A token, or a text in quotes; nothing if the quotes do not end.
  std::optional<std::string> value() {
    if (!skip('"')) return std::string(token());
    std::string value;
    while (!text_.empty() && !text_.starts_with('"')) {
      if (text_.starts_with('\\')) text_.remove_prefix(1);
      if (text_.empty()) return std::nullopt;
      value += text_.front();
      text_.remove_prefix(1);
    }
    if (!skip('"')) return std::nullopt;
    return value;
  }

 private:
  std::string_view text_;
};

}  // namespace

std::vector<OciChallenge> parse_challenges(std::string_view header) {
  std::vector<OciChallenge> challenges;
  Reader reader(header);
  for (reader.skip_commas(); !reader.is_at_end(); reader.skip_commas()) {
    const std::string word = base::to_lower(reader.token());
    reader.skip_blanks();
    const bool is_parameter = !word.empty() && reader.skip('=');
    if (!is_parameter && !word.empty()) {
      // What follows are its parameters, which begin without a comma.
      challenges.push_back({word});
      continue;
    }
    reader.skip_blanks();
    auto value = is_parameter ? reader.value() : std::nullopt;
    if (value && !value->empty() && !challenges.empty())
      challenges.back().parameters.emplace(word, *std::move(value));
    else
      reader.skip_to_comma();
  }
  return challenges;
}

std::vector<std::string> token_scopes(const OciChallenge& challenge, const std::string& repository, bool writes) {
  const std::string resource = "repository:" + repository + ":";
  std::set<std::string> actions = {"pull"};
  if (writes) actions.insert("push");
  std::vector<std::string> scopes = {{}};
  const auto named = challenge.parameters.find("scope");
  std::istringstream words(named != challenge.parameters.end() ? named->second : "");
  for (std::string scope; words >> scope;) {
    if (!scope.starts_with(resource)) {
      scopes.push_back(scope);
      continue;
    }
    std::istringstream names(scope.substr(resource.size()));
    for (std::string action; std::getline(names, action, ',');) actions.insert(action);
  }
  scopes.front() = fmt::format("{}{}", resource, fmt::join(actions, ","));
  return scopes;
}

}  // namespace kiln::store
