#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

/// PTX, the text that NVIDIA's driver compiles.
namespace kiln::cuda::ptx {

/// Splits PTX into words and single characters. Skips spaces, comments and strings, which have no escapes. Words
/// start at every dot: "ld.param.u64" is "ld", ".param" and ".u64".
class Tokens {
 public:
  explicit Tokens(std::string_view text) noexcept : rest_(text) {}

  /// The next token; empty at the end of the text.
  std::string_view next() noexcept {
    skip();
    if (rest_.empty()) return {};
    std::size_t size = 1;
    if (rest_[0] == '.' || is_word(rest_[0]))
      while (size < rest_.size() && is_word(rest_[size])) ++size;
    return take(size);
  }
  /// Whether a comment or a string has no end. Valid at the end of the text.
  bool is_cut_off() const noexcept { return is_cut_off_; }

  /// Whether a character can be in a name.
  static bool is_word(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
           c == '%';
  }

 private:
  std::string_view take(std::size_t size) noexcept {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  void skip() noexcept {
    while (!rest_.empty()) {
      if (std::string_view(" \t\r\n\f\v").find(rest_[0]) != std::string_view::npos)
        take(1);
      else if (rest_.starts_with("//"))
        take(std::min(rest_.find('\n'), rest_.size()));
      else if (rest_.starts_with("/*"))
        skip_to(rest_.find("*/", 2), 2);
      else if (rest_[0] == '"')
        skip_to(rest_.find('"', 1), 1);
      else
        return;
    }
  }
  void skip_to(std::size_t end, std::size_t size) noexcept {
    if (end == std::string_view::npos) is_cut_off_ = true;
    take(end == std::string_view::npos ? rest_.size() : end + size);
  }

  std::string_view rest_;
  bool is_cut_off_ = false;
};

/// The size of each argument of a kernel in bytes; nullopt if it cannot be determined.
using Sizes = std::optional<std::vector<std::size_t>>;

/// A kernel that the text defines. `name` refers to the text.
struct Kernel {
  std::string_view name;
  Sizes arguments;
};

struct Text {
  /// Whether the text has a header and an end: all braces, comments and strings are closed.
  bool is_whole = false;
  std::vector<Kernel> kernels = {};
};

/// The value of a literal: "16", "0x10" or "020", with or without U.
inline std::optional<std::size_t> number_in(std::string_view literal) noexcept {
  if (literal.ends_with('U')) literal.remove_suffix(1);
  int base = 10;
  if (literal.size() > 1 && literal[0] == '0') base = literal[1] == 'x' || literal[1] == 'X' ? 16 : 8;
  if (base == 16) literal.remove_prefix(2);
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(literal.data(), literal.data() + literal.size(), number, base);
  const bool is_number = error == std::errc() && end == literal.data() + literal.size();
  return is_number ? std::optional(number) : std::nullopt;
}

/// Reads the parameters of a kernel up to the parenthesis, as in ".param .align 4 .b8 scale_param_1[4])".
inline Sizes read_parameters(Tokens& tokens) {
  // More than any GPU takes, so that products do not overflow.
  constexpr std::size_t most = 1 << 20;
  std::vector<std::size_t> sizes;
  bool is_known = true;
  bool is_parameter = false;
  std::size_t bits = 0;
  std::size_t count = 1;
  for (std::string_view token = tokens.next(); !token.empty(); token = tokens.next()) {
    if (token == ".param") is_parameter = true;
    if (token.size() > 2 && std::string_view("bsuf").find(token[1]) != std::string_view::npos && token[0] == '.')
      bits = number_in(token.substr(2)).value_or(bits);
    if (token == "[") count = number_in(tokens.next()).value_or(0);
    if (token != "," && token != ")") continue;
    if (is_parameter) {
      if (bits < 8 || bits > most || count == 0 || count > most) is_known = false;
      sizes.push_back(bits / 8 * count);
    }
    if (token == ")") return is_known ? Sizes(std::move(sizes)) : std::nullopt;
    is_parameter = false;
    bits = 0;
    count = 1;
  }
  return std::nullopt;
}

/// Reads a text without its terminating NUL. It may contain anything.
inline Text read(std::string_view source) {
  Tokens tokens(source);
  Text text;
  bool has_version = false;
  bool has_target = false;
  std::size_t open = 0;
  // The kernel whose body may follow; a declaration has none.
  std::optional<Kernel> declared;
  for (std::string_view token = tokens.next(); !token.empty(); token = tokens.next()) {
    if (token == ".version") has_version = true;
    if (token == ".target") has_target = true;
    if (token == ".entry" && open == 0)
      if (const std::string_view name = tokens.next(); !name.empty() && Tokens::is_word(name[0]))
        declared = Kernel{name, std::vector<std::size_t>()};
    if (token == "(" && open == 0 && declared) declared->arguments = read_parameters(tokens);
    if (token == ";") declared.reset();
    if (token == "{") {
      if (open++ == 0 && declared) text.kernels.push_back(*declared);
      declared.reset();
    }
    if (token == "}" && open-- == 0) return text;
  }
  text.is_whole = has_version && has_target && open == 0 && !tokens.is_cut_off();
  return text;
}

}  // namespace kiln::cuda::ptx
