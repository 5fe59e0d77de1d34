#include "key/source_lines.hpp"

#include <algorithm>
#include <array>

namespace kiln::key {
namespace {

/// Whether a line continuation is between two characters that can belong to one word, such as "include" or "%:".
bool splits_word(std::string_view text) {
  const auto is_apart = [](char c) { return is_blank(c) || c == '\n'; };
  for (std::size_t at = text.find('\\'); at != std::string_view::npos; at = text.find('\\', at + 1)) {
    const std::size_t end = at + continuation(text, at);
    if (end > at && at > 0 && !is_apart(text[at - 1]) && end < text.size() && !is_apart(text[end])) return true;
  }
  return false;
}

std::string replaced(std::string_view text, std::string_view from, char to) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = std::min(text.find(from, at), text.size());
    result.append(text.substr(at, found - at));
    if (found < text.size()) result += to;
    at = found + from.size();
  }
  return result;
}

std::string joined(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = std::min(text.find('\\', at), text.size());
    result.append(text.substr(at, found - at));
    const std::size_t length = continuation(text, found);
    if (length == 0 && found < text.size()) result += '\\';
    at = found + std::max<std::size_t>(length, 1);
  }
  return result;
}

}  // namespace

std::size_t continuation(std::string_view text, std::size_t at) noexcept {
  if (at >= text.size() || text[at] != '\\') return 0;
  std::size_t end = at + 1;
  while (end < text.size() && is_blank(text[end])) ++end;
  return end < text.size() && text[end] == '\n' ? end + 1 - at : 0;
}

std::optional<std::string> other_spelling(std::string_view text) {
  std::optional<std::string> result;
  const auto replace = [&](std::string_view from, char to) {
    if (text.find(from) == std::string_view::npos) return;
    result = replaced(text, from, to);
    text = *result;
  };
  replace("?\?=", '#');
  replace("?\?/", '\\');
  if (splits_word(text)) {
    result = joined(text);
    text = *result;
  }
  replace("%:", '#');
  return result;
}

bool SourceLines::starts_line(std::size_t at) const noexcept {
  // Bytes beyond ASCII may be a byte order mark, or one of Unicode's blanks. Compilers also ignore NUL characters.
  const auto may_be_blank = [](char c) {
    return (is_blank(c) && c != '\r') || c == '\0' || static_cast<unsigned char>(c) >= 0x80;
  };
  while (at > 0 && may_be_blank(text_[at - 1])) --at;
  return at == 0 || text_[at - 1] == '\n' || text_[at - 1] == '\r' || (at > 1 && has(at - 2, "*/"));
}

std::size_t SourceLines::comment_end(std::size_t at) noexcept {
  const std::size_t from = at + 2;
  if (from >= none_from_) return size();
  if (from < searched_from_ || from > found_) {
    searched_from_ = from;
    found_ = text_.find("*/", from);
    if (found_ == std::string_view::npos) none_from_ = from;
  }
  return found_ == std::string_view::npos ? size() : found_ + 2;
}

std::size_t SourceLines::skip_blanks(std::size_t at) noexcept {
  for (;;) {
    if (is_blank((*this)[at])) {
      ++at;
    } else if (const std::size_t length = continuation(text_, at)) {
      at += length;
    } else if (has(at, "/*")) {
      at = comment_end(at);
    } else {
      return at;
    }
  }
}

std::string_view SourceLines::read_identifier(std::size_t& at) const noexcept {
  const std::size_t begin = std::min(at, size());
  while (is_identifier_char((*this)[at])) ++at;
  return text_.substr(begin, at - begin);
}

SourceLines::Line SourceLines::rest_of_line(std::size_t at) {
  Line line;
  char quote = 0;
  while (at < size() && text_[at] != '\n') {
    if (line.text.size() >= max_line) {
      line.is_cut = true;
      break;
    }
    if (const std::size_t length = continuation(text_, at)) {
      at += length;
    } else if (quote == 0 && has(at, "//")) {
      break;
    } else if (quote == 0 && has(at, "/*")) {
      at = comment_end(at);
      line.text += ' ';
    } else {
      const char c = text_[at++];
      line.text += c;
      if (quote != 0 && c == '\\' && at < size() && text_[at] != '\n')
        line.text += text_[at++];
      else if (c == quote)
        quote = 0;
      else if (quote == 0 && (c == '"' || c == '\''))
        quote = c;
    }
  }
  while (!line.text.empty() && is_blank(line.text.back())) line.text.pop_back();
  return line;
}

}  // namespace kiln::key
