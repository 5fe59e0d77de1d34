#include "store/remote/xml.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kiln::store {
namespace {

constexpr std::size_t max_depth = 16;

/// UTF-8; nothing if there is no such character.
std::optional<std::string> encoded_character(std::uint32_t code) {
  if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return std::nullopt;
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  std::string bytes;
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr std::uint32_t first[] = {0, 0xc0, 0xe0, 0xf0};
  bytes += static_cast<char>(first[more] | (code >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) bytes += static_cast<char>(0x80U | ((code >> (6 * i)) & 0x3fU));
  return bytes;
}

/// The character of "amp", "#38" or "#x26"; nothing if there is none.
std::optional<std::string> character(std::string_view name) {
  if (name == "amp") return "&";
  if (name == "lt") return "<";
  if (name == "gt") return ">";
  if (name == "quot") return "\"";
  if (name == "apos") return "'";
  if (!name.starts_with('#')) return std::nullopt;
  name.remove_prefix(1);
  const int base = name.starts_with('x') ? 16 : 10;
  if (base == 16) name.remove_prefix(1);
  std::uint32_t code = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), code, base);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return encoded_character(code);
}

bool append_decoded(std::string& to, std::string_view text) {
  while (!text.empty()) {
    const std::size_t plain = std::min(text.find('&'), text.size());
    to += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    const std::size_t end = text.find(';');
    if (end == std::string_view::npos) return false;
    const auto decoded = character(text.substr(1, end - 1));
    if (!decoded) return false;
    to += *decoded;
    text.remove_prefix(end + 1);
  }
  return true;
}

/// The position of the '>' of a tag: attributes may contain others in quotes.
std::size_t end_of_tag(std::string_view text) {
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quote != '\0') {
      if (text[i] == quote) quote = '\0';
    } else if (text[i] == '"' || text[i] == '\'') {
      quote = text[i];
    } else if (text[i] == '>') {
      return i;
    }
  }
  return std::string_view::npos;
}

constexpr std::string_view xml_spaces = " \t\r\n";

/// The document that is read, from its beginning to its end.
class XmlReader {
 public:
  XmlReader(std::string_view text, const std::function<void(std::string_view, std::string_view)>& element)
      : rest_(text), element_(element) {}

  bool read() {
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    if (rest_.starts_with(byte_order_mark)) rest_.remove_prefix(byte_order_mark.size());
    while (!rest_.empty()) {
      bool is_sound = false;
      if (!rest_.starts_with('<'))
        is_sound = read_text();
      else if (rest_.starts_with("<?"))
        is_sound = skip_past("?>");
      else if (rest_.starts_with("<!--"))
        is_sound = skip_past("-->");
      else if (!rest_.starts_with("<!"))
        is_sound = read_tag();
      if (!is_sound) return false;
    }
    return has_root_ && names_.empty();
  }

 private:
  bool skip_past(std::string_view end) {
    const std::size_t at = rest_.find(end);
    if (at == std::string_view::npos) return false;
    rest_.remove_prefix(at + end.size());
    return true;
  }

  bool read_text() {
    const std::string_view text = rest_.substr(0, rest_.find('<'));
    rest_.remove_prefix(text.size());
    if (names_.empty()) return text.find_first_not_of(xml_spaces) == std::string_view::npos;
    return append_decoded(text_, text);
  }

  bool read_tag() {
    const std::size_t end = end_of_tag(rest_);
    if (end == std::string_view::npos) return false;
    std::string_view tag = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    if (tag.starts_with('/')) {
      tag = tag.substr(1, tag.find_last_not_of(xml_spaces));
      return !names_.empty() && tag == names_.back() && leave();
    }
    const bool is_empty = tag.ends_with('/');
    if (is_empty) tag.remove_suffix(1);
    return enter(tag.substr(0, tag.find_first_of(xml_spaces))) && (!is_empty || leave());
  }

  bool enter(std::string_view name) {
    if (name.empty() || name.find_first_of("<&/\"'") != std::string_view::npos || names_.size() == max_depth ||
        (names_.empty() && has_root_))
      return false;
    has_root_ = true;
    lengths_.push_back(path_.size());
    if (!names_.empty()) path_ += '/';
    path_ += name.substr(name.find(':') + 1);
    names_.push_back(name);
    text_.clear();
    return true;
  }

  bool leave() {
    element_(path_, text_);
    path_.resize(lengths_.back());
    lengths_.pop_back();
    names_.pop_back();
    text_.clear();
    return true;
  }

  std::string_view rest_;
  const std::function<void(std::string_view, std::string_view)>& element_;
  /// Of the elements that are open.
  std::vector<std::string_view> names_;
  std::string path_;
  /// Of the path, before each of these names.
  std::vector<std::size_t> lengths_;
  /// Of the innermost one.
  std::string text_;
  bool has_root_ = false;
};

}  // namespace

bool read_xml(std::string_view text, const std::function<void(std::string_view, std::string_view)>& element) {
  return XmlReader(text, element).read();
}

}  // namespace kiln::store
