#include "store/remote/resp.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "base/try.hpp"

namespace kiln::store {
namespace {

constexpr std::string_view line_end = "\r\n";

Error invalid_answer(const std::string& why) { return Error(ErrorCode::io, "what is not a Redis answer: " + why); }

Error too_long(std::uint64_t bytes) {
  return Error(ErrorCode::unsupported, fmt::format("{} bytes, more than are allowed", bytes));
}

std::optional<std::int64_t> resp_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string encode_resp_command(std::initializer_list<std::string_view> words) {
  // The digits of a length and two line ends take less.
  constexpr std::size_t most_around_a_word = 32;
  std::size_t bytes = most_around_a_word;
  for (const std::string_view word : words) bytes += word.size() + most_around_a_word;
  std::string command;
  command.reserve(bytes);
  command += fmt::format("*{}\r\n", words.size());
  for (const std::string_view word : words)
    command.append(fmt::format("${}\r\n", word.size())).append(word).append(line_end);
  return command;
}

Result<std::size_t> RespParser::consume(std::span<const std::byte> bytes) {
  std::size_t used = 0;
  while (used < bytes.size() && state_ != State::complete) {
    const auto rest = bytes.subspan(used);
    used += state_ == State::bulk
                ? KILN_TRY(consume_bulk(rest))
                : KILN_TRY(consume_line({reinterpret_cast<const char*>(rest.data()), rest.size()}));
  }
  return used;
}

Result<std::size_t> RespParser::consume_line(std::string_view text) {
  const std::size_t newline = text.find('\n');
  const std::string_view part = text.substr(0, newline == std::string_view::npos ? newline : newline + 1);
  if (line_.size() + part.size() > max_line_bytes)
    return invalid_answer(fmt::format("a line has more than {} bytes", max_line_bytes));
  line_ += part;
  // Checked before the line is complete, because another protocol may never send its end.
  if (std::string_view("+-:$*").find(line_.front()) == std::string_view::npos)
    return invalid_answer("it begins with an unexpected character");
  if (newline != std::string_view::npos) KILN_TRY(parse_line());
  return part.size();
}

Result<void> RespParser::parse_line() {
  using Kind = RespAnswer::Kind;
  if (line_.find('\r') != line_.size() - line_end.size()) return invalid_answer("a line does not end with CR LF");
  const char type = line_.front();
  std::string text = line_.substr(1, line_.size() - 1 - line_end.size());
  line_.clear();
  if (type == '+' || type == '-') {
    if (!open_.empty()) {
      if (text.size() > bytes_allowed_) return too_long(text.size());
      bytes_allowed_ -= text.size();
    }
    finish({.kind = type == '+' ? Kind::text : Kind::error, .text = std::move(text)});
    return {};
  }
  const auto value = resp_integer(text);
  if (!value) return invalid_answer("a number or a length is invalid");
  if (type == ':') {
    finish({.kind = Kind::integer, .integer = *value});
    return {};
  }
  if (text == "-1") {
    finish({.kind = Kind::null});
    return {};
  }
  if (*value < 0) return invalid_answer("a length is negative");
  return type == '*' ? begin_array(*value) : begin_bulk(*value);
}

Result<void> RespParser::begin_bulk(std::int64_t size) {
  if (static_cast<std::uint64_t>(size) > bytes_allowed_) return too_long(static_cast<std::uint64_t>(size));
  bytes_allowed_ -= static_cast<std::uint64_t>(size);
  bulk_bytes_left_ = static_cast<std::size_t>(size) + line_end.size();
  state_ = State::bulk;
  return {};
}

Result<void> RespParser::begin_array(std::int64_t size) {
  if (open_.size() == max_depth) return invalid_answer("its arrays are too deep");
  if (static_cast<std::uint64_t>(size) > max_items - items_)
    return invalid_answer(fmt::format("it has more than {} items", max_items));
  items_ += static_cast<std::size_t>(size);
  RespAnswer array{.kind = RespAnswer::Kind::array};
  if (size == 0)
    finish(std::move(array));
  else
    open_.push_back({static_cast<std::size_t>(size), std::move(array)});
  return {};
}

Result<std::size_t> RespParser::consume_bulk(std::span<const std::byte> bytes) {
  const auto part = bytes.first(std::min(bytes.size(), bulk_bytes_left_));
  bulk_.insert(bulk_.end(), part.begin(), part.end());
  bulk_bytes_left_ -= part.size();
  if (bulk_bytes_left_ > 0) return part.size();
  if (!std::ranges::equal(std::span(bulk_).last(line_end.size()), std::as_bytes(std::span(line_end))))
    return invalid_answer("its bytes do not end with CR LF");
  bulk_.resize(bulk_.size() - line_end.size());
  finish({.kind = RespAnswer::Kind::bulk, .bulk = std::exchange(bulk_, {})});
  return part.size();
}

void RespParser::finish(RespAnswer value) {
  while (!open_.empty()) {
    OpenArray& array = open_.back();
    array.answer.items.push_back(std::move(value));
    if (--array.missing > 0) {
      state_ = State::line;
      return;
    }
    value = std::move(array.answer);
    open_.pop_back();
  }
  answer_ = std::move(value);
  state_ = State::complete;
}

}  // namespace kiln::store
