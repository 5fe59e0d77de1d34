#include "store/remote/multistatus.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/try.hpp"

namespace kiln::store {
namespace {

constexpr std::string_view xml_spaces = " \t\r\n";
/// Far deeper than servers nest properties.
constexpr std::size_t max_xml_depth = 32;

Error invalid_listing(const std::string& why) {
  return Error(ErrorCode::io, "what is no WebDAV listing of this folder: " + why);
}

/// The character of "&NAME;"; nothing if it is none of XML's own, or no ASCII character.
std::optional<char> character_of(std::string_view name) {
  if (name == "amp") return '&';
  if (name == "lt") return '<';
  if (name == "gt") return '>';
  if (name == "quot") return '"';
  if (name == "apos") return '\'';
  if (!name.starts_with('#')) return std::nullopt;
  name.remove_prefix(1);
  const bool is_hexadecimal = name.starts_with('x');
  if (is_hexadecimal) name.remove_prefix(1);
  unsigned value = 0;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), value, is_hexadecimal ? 16 : 10);
  if (error != std::errc() || end != name.data() + name.size() || value == 0 || value > 0x7f) return std::nullopt;
  return static_cast<char>(value);
}

/// Replaces %XX; nothing if one is incomplete, or stands for a NUL.
std::optional<std::string> without_escapes(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const std::string_view digits = text.substr(i + 1, 2);
    unsigned value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc() || digits.size() != 2 || end != digits.data() + 2 || value == 0) return std::nullopt;
    decoded += static_cast<char>(value);
    i += 2;
  }
  return decoded;
}

/// Collects the texts of multistatus/response/href.
class MultistatusReader {
 public:
  explicit MultistatusReader(std::string_view xml) : rest_(xml) {}

  Result<std::vector<std::string>> hrefs() {
    while (!rest_.empty()) {
      const std::size_t tag = rest_.find('<');
      KILN_TRY(read_text(rest_.substr(0, tag)));
      rest_.remove_prefix(std::min(tag, rest_.size()));
      if (!rest_.empty()) KILN_TRY(read_markup());
    }
    if (!was_closed_) return invalid_listing("it is not complete");
    return std::move(hrefs_);
  }

 private:
  bool is_in_href() const {
    return open_.size() == 3 && local_name(open_[1]) == "response" && local_name(open_[2]) == "href";
  }
  /// Without the prefix of a namespace.
  static std::string_view local_name(std::string_view name) {
    const std::size_t colon = name.find(':');
    return colon == std::string_view::npos ? name : name.substr(colon + 1);
  }

  Result<void> read_text(std::string_view text) {
    if (open_.empty() && text.find_first_not_of(xml_spaces) != std::string_view::npos)
      return invalid_listing("there is text outside of its root");
    if (!is_in_href()) return {};
    while (!text.empty()) {
      const std::size_t entity = std::min(text.find('&'), text.size());
      hrefs_.back() += text.substr(0, entity);
      text.remove_prefix(entity);
      if (text.empty()) break;
      const std::size_t end = text.find(';');
      const auto character = end == std::string_view::npos ? std::nullopt : character_of(text.substr(1, end - 1));
      if (!character) return invalid_listing("it has an unknown entity");
      hrefs_.back() += *character;
      text.remove_prefix(end + 1);
    }
    return {};
  }

  /// Skips what ends with `end`.
  Result<void> skip(std::string_view end) {
    const std::size_t at = rest_.find(end);
    if (at == std::string_view::npos) return invalid_listing("it is not complete");
    rest_.remove_prefix(at + end.size());
    return {};
  }

  Result<void> read_markup() {
    if (rest_.starts_with("<?")) return skip("?>");
    if (rest_.starts_with("<!--")) return skip("-->");
    // A document type could define entities, and servers send neither it nor CDATA.
    if (rest_.starts_with("<!")) return invalid_listing("it has a document type or CDATA");
    const auto tag = KILN_TRY(take_tag());
    if (tag.starts_with('/')) return close(tag.substr(1));
    const bool is_empty = tag.ends_with('/');
    const std::string_view name = tag.substr(0, std::min(tag.find_first_of(" \t\r\n/"), tag.size()));
    KILN_TRY(open(name));
    return is_empty ? close(name) : Result<void>();
  }

  /// The text between '<' and '>'.
  Result<std::string_view> take_tag() {
    char quote = 0;
    for (std::size_t i = 1; i < rest_.size(); ++i) {
      const char c = rest_[i];
      if (quote != 0) {
        if (c == quote) quote = 0;
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == '<') {
        break;
      } else if (c == '>') {
        const std::string_view tag = rest_.substr(1, i - 1);
        rest_.remove_prefix(i + 1);
        return tag;
      }
    }
    return invalid_listing("a tag does not end");
  }

  Result<void> open(std::string_view name) {
    if (name.empty()) return invalid_listing("a tag has no name");
    if (was_closed_) return invalid_listing("it has more than one root");
    if (open_.empty() && local_name(name) != "multistatus") return invalid_listing("it is no multistatus");
    if (open_.size() == max_xml_depth) return invalid_listing("it is nested too deeply");
    if (is_in_href()) return invalid_listing("a path contains a tag");
    open_.push_back(name);
    if (is_in_href()) hrefs_.emplace_back();
    return {};
  }

  Result<void> close(std::string_view name) {
    name = name.substr(0, std::min(name.find_first_of(xml_spaces), name.size()));
    if (open_.empty() || open_.back() != name) return invalid_listing("its tags do not match");
    open_.pop_back();
    was_closed_ = open_.empty();
    return {};
  }

  std::string_view rest_;
  std::vector<std::string_view> open_;
  std::vector<std::string> hrefs_;
  bool was_closed_ = false;
};

/// The path of a URL, or the path itself.
std::string_view path_of_href(std::string_view href) {
  const auto spaces = href.find_first_not_of(xml_spaces);
  if (spaces == std::string_view::npos) return {};
  href = href.substr(spaces, href.find_last_not_of(xml_spaces) + 1 - spaces);
  if (const std::size_t scheme = href.find("://"); !href.starts_with('/') && scheme != std::string_view::npos)
    href.remove_prefix(std::min(href.find('/', scheme + 3), href.size()));
  return href;
}

}  // namespace

Result<std::vector<std::string>> names_in_multistatus(std::string_view xml, std::string_view folder) {
  const auto asked = without_escapes(folder);
  std::vector<std::string> names;
  bool has_folder = false;
  for (const std::string& href : KILN_TRY(MultistatusReader(xml).hrefs())) {
    const auto path = without_escapes(path_of_href(href));
    if (!asked || !path) return invalid_listing("a path has an invalid % escape");
    const bool is_folder = *path == *asked || *path + "/" == *asked;
    has_folder = has_folder || is_folder;
    if (is_folder || !path->starts_with(*asked)) continue;
    std::string name = path->substr(asked->size());
    if (name.ends_with('/')) name.pop_back();
    if (!name.empty() && name.find('/') == std::string::npos) names.push_back(std::move(name));
  }
  // Behind a proxy that changes paths, all names would seem to be absent.
  if (!has_folder) return invalid_listing("it does not name the folder");
  return names;
}

}  // namespace kiln::store
