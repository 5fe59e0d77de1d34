#include "key/source_scanner.hpp"

#include <algorithm>

namespace kiln::key {

std::optional<SourceScanner::Directive> SourceScanner::next() {
  while (position_ < text_.size()) {
    if (text_[position_] == '\n') {
      pass_line_end();
    } else if (text_[position_] == '#' && line_is_blank_) {
      line_is_blank_ = false;
      Directive directive;
      directive.begin = position_++;
      directive.line = line_;
      while (at(position_) == ' ' || at(position_) == '\t') ++position_;
      const std::size_t name_begin = position_;
      while (is_word(at(position_))) ++position_;
      directive.name = text_.substr(name_begin, position_ - name_begin);
      directive.rest_begin = position_;
      directive.rest = text_.substr(position_, std::min(text_.find('\n', position_), text_.size()) - position_);
      return directive;
    } else {
      pass();
    }
  }
  return std::nullopt;
}

std::size_t SourceScanner::next_line() {
  while (position_ < text_.size() && text_[position_] != '\n') pass();
  if (position_ < text_.size()) pass_line_end();
  return position_;
}

void SourceScanner::pass_line_end() {
  ++line_;
  ++position_;
  line_is_blank_ = true;
}

void SourceScanner::pass() {
  const char c = text_[position_];
  if (const std::size_t length = continuation()) {
    ++line_;
    position_ += length;
  } else if (starts("//")) {
    pass_line_comment();
  } else if (starts("/*")) {
    pass_block_comment();
  } else if (starts("R\"") && (position_ == 0 || !is_word(text_[position_ - 1]))) {
    line_is_blank_ = false;
    pass_raw_string();
  } else if (c == '"' || c == '\'') {
    line_is_blank_ = false;
    pass_literal(c);
  } else {
    if (c != ' ' && c != '\t' && c != '\r' && c != '\v' && c != '\f') line_is_blank_ = false;
    ++position_;
  }
}

std::size_t SourceScanner::continuation() const {
  if (starts("\\\n")) return 2;
  return starts("\\\r\n") ? 3 : 0;
}

void SourceScanner::pass_line_comment() {
  while (position_ < text_.size() && text_[position_] != '\n') {
    const std::size_t length = continuation();
    if (length != 0) ++line_;
    position_ += length != 0 ? length : 1;
  }
}

void SourceScanner::pass_block_comment() {
  const std::size_t end = std::min(text_.find("*/", position_ + 2), text_.size());
  if (end == text_.size()) unfinished_ = "a comment";
  line_ += static_cast<std::size_t>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(position_),
                                               text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
  position_ = std::min(end + 2, text_.size());
}

void SourceScanner::pass_literal(char quote) {
  ++position_;
  while (position_ < text_.size() && text_[position_] != quote && text_[position_] != '\n') {
    if (const std::size_t length = continuation()) {
      ++line_;
      position_ += length;
    } else {
      position_ += text_[position_] == '\\' ? 2 : 1;
    }
  }
  if (at(position_) == quote) ++position_;
  position_ = std::min(position_, text_.size());
}

void SourceScanner::pass_raw_string() {
  const std::size_t open = text_.find('(', position_);
  // A delimiter has at most 16 characters; otherwise this is not a raw string.
  if (open == std::string_view::npos || open - position_ > 18) {
    position_ += 1;
    return;
  }
  std::string closing(1, ')');
  closing.append(text_.substr(position_ + 2, open - position_ - 2)).append(1, '"');
  const std::size_t end = std::min(text_.find(closing, open), text_.size());
  if (end == text_.size()) unfinished_ = "a string";
  line_ += static_cast<std::size_t>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(position_),
                                               text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
  position_ = std::min(end + closing.size(), text_.size());
}

}  // namespace kiln::key
