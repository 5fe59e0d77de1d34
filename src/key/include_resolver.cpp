#include "key/include_resolver.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/sha256.hpp"
#include "key/source_scanner.hpp"

namespace kiln::key {
namespace {

// Real sources nest a few levels; each level uses stack.
constexpr std::size_t max_depth = 200;

/// A file that was found. `identity` is equal for two includes of the same file.
struct Found {
  std::string name;
  std::string identity;
  std::string text;
  /// The folder to search for its own "quoted" includes; nothing for text without a folder.
  std::optional<std::filesystem::path> folder;
};

struct IncludeName {
  std::string name;
  bool quoted;
  /// The length of the name in the directive's rest, with quotes or brackets and leading spaces.
  std::size_t length;
};

std::optional<IncludeName> parse_name(std::string_view rest) {
  const std::size_t begin = rest.find_first_not_of(" \t");
  if (begin == std::string_view::npos || (rest[begin] != '"' && rest[begin] != '<')) return std::nullopt;
  const bool quoted = rest[begin] == '"';
  const std::size_t end = rest.find(quoted ? '"' : '>', begin + 1);
  if (end == std::string_view::npos || end == begin + 1) return std::nullopt;
  return IncludeName{std::string(rest.substr(begin + 1, end - begin - 1)), quoted, end + 1};
}

std::string_view first_word(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text.substr(0, text.find_first_of(" \t\r/"));
}

bool has_pragma_once(std::string_view text) {
  SourceScanner scanner(text);
  while (const auto directive = scanner.next())
    if (directive->name == "pragma" && first_word(directive->rest) == "once") return true;
  return false;
}

/// The text without blanks and comments at its begin.
std::string_view without_blanks(std::string_view text) {
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n\v\f"), text.size()));
    if (text.starts_with("//"))
      text.remove_prefix(std::min(text.find('\n'), text.size()));
    else if (text.starts_with("/*"))
      text.remove_prefix(std::min(text.find("*/", 2), text.size() - 2) + 2);
    else
      return text;
  }
}

/// The macro that `#ifndef NAME`, `#if !defined(NAME)` or `#if !defined NAME` tests; empty for other directives.
std::string_view guard_tested_by(const SourceScanner::Directive& directive) {
  std::string_view rest = directive.rest;
  const auto skip = [&rest](std::string_view what) {
    rest = without_blanks(rest);
    const bool is_there = rest.starts_with(what);
    if (is_there) rest.remove_prefix(what.size());
    return is_there;
  };
  if (directive.name == "if" && !(skip("!") && skip("defined"))) return {};
  if (directive.name != "if" && directive.name != "ifndef") return {};
  const bool in_parentheses = skip("(");
  rest = without_blanks(rest);
  const std::string_view name = rest.substr(0, std::min(rest.find_first_of(" \t\r)/"), rest.size()));
  rest.remove_prefix(name.size());
  if (in_parentheses && !skip(")")) return {};
  return without_blanks(rest).empty() ? name : std::string_view();
}

/// Whether a compiler that includes the file a second time skips all of it: it has `#pragma once`, or consists of
/// `#ifndef NAME`, `#define NAME`, … and `#endif`, and does not undefine NAME.
bool is_guarded(std::string_view text) {
  if (has_pragma_once(text)) return true;
  SourceScanner scanner(text);
  const auto first = scanner.next();
  if (!first || without_blanks(text).data() != text.data() + first->begin) return false;
  const std::string_view guard = guard_tested_by(*first);
  const auto second = scanner.next();
  if (guard.empty() || !second || second->name != "define" || first_word(second->rest) != guard) return false;
  std::size_t depth = 1;
  while (const auto directive = scanner.next()) {
    const std::string_view name = directive->name;
    if (name == "undef" && first_word(directive->rest) == guard) return false;
    if (depth == 1 && (name == "else" || name.starts_with("elif"))) return false;
    if (name.starts_with("if")) ++depth;
    if (name == "endif" && --depth == 0) return without_blanks(text.substr(scanner.next_line())).empty();
  }
  return false;
}

/// The construct that is open at the end of the text, for example "a comment"; empty if there is none.
std::string_view unfinished(std::string_view text) {
  SourceScanner scanner(text);
  while (scanner.next()) {
  }
  return scanner.unfinished();
}

/// The file operand of a #line directive.
std::string origin(LineStyle style, std::size_t file, const std::string& name) {
  if (style == LineStyle::number) return std::to_string(file);
  // The name comes from the user; replace characters that would end the literal or begin an escape.
  std::string safe = name;
  for (char& c : safe)
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ') c = '_';
  return fmt::format("\"{}\"", safe);
}

/// Maps lines of a file to the numbers and file names in compiler messages, which the file's own #line directives
/// can change. Also tracks conditional groups.
class LineCount {
 public:
  explicit LineCount(std::size_t file) : origin_(std::to_string(file)) {}

  /// The reported number of a line.
  std::size_t number(std::size_t line) const { return line + shift_; }

  /// The #line directive that makes the compiler report the next line as `line`.
  std::string directive(std::size_t line) const { return fmt::format("#line {} {}\n", number(line), origin_); }

  /// Applies the file's own #line directive on `line`, even in a conditional group that the compiler may skip.
  /// Ignores directives whose operands are macros.
  void line_directive(std::size_t line, std::string_view rest) {
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    std::size_t given = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), given);
    if (error != std::errc()) return;
    shift_ = given - (line + 1);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    const std::size_t length = rest.starts_with('"') ? rest.find('"', 1) + 1 : rest.find_first_not_of("0123456789");
    if (!rest.empty() && length > 0) origin_ = rest.substr(0, length);
  }

  void begin_group() { groups_.push_back({}); }
  bool in_group() const { return !groups_.empty(); }
  void add_include() {
    for (Group& group : groups_) group.has_include = true;
  }

  /// Call at #else and #elif, and at #endif with `for_good`: returns whether the group that ends contains an
  /// include.
  bool end_group(bool for_good) {
    if (groups_.empty()) return false;
    const bool has_include = groups_.back().has_include;
    if (for_good) groups_.pop_back();
    return has_include;
  }

 private:
  struct Group {
    bool has_include = false;
  };
  /// Added to a line of the file; unsigned wrap-around makes negative shifts work.
  std::size_t shift_ = 0;
  /// The file operand of #line directives.
  std::string origin_;
  std::vector<Group> groups_;
};

class Resolver {
 public:
  Resolver(const IncludePlaces& places, std::size_t max_bytes) : places_(places), max_bytes_(max_bytes) {}

  Result<ResolvedSource> run(const std::string& name, const std::string& source) {
    const Found root{name, "", source, std::nullopt};
    chain_.push_back(&root);
    if (auto error = expand(root, add_file(root), false)) return std::move(*error);
    return std::move(result_);
  }

 private:
  std::size_t add_file(const Found& file) {
    for (std::size_t i = 1; i < result_.files.size(); ++i)
      if (result_.files[i] == file.name) return i;
    result_.files.push_back(file.name);
    result_.digests.push_back(base::sha256(file.text));
    return result_.files.size() - 1;
  }

  std::optional<Error> expand(const Found& file, std::size_t number, bool conditional) {
    const std::string_view text = file.text;
    SourceScanner scanner(text);
    std::size_t copied = 0;
    LineCount count(number);
    while (const auto directive = scanner.next()) {
      const std::string_view name = directive->name;
      if (name == "line") count.line_directive(directive->line, directive->rest);
      if (name == "if" || name == "ifdef" || name == "ifndef") count.begin_group();
      if (name == "else" || name.starts_with("elif") || name == "endif") {
        if (count.end_group(name == "endif")) {
          // The compiler may have skipped the group with its #line directives, so repeat the number.
          const std::size_t end = scanner.next_line();
          result_.text += text.substr(copied, end - copied);
          copied = end;
          if (end < text.size()) result_.text += count.directive(scanner.line());
        }
        continue;
      }
      if (name != "include") continue;
      const auto wanted = parse_name(directive->rest);
      if (!wanted) continue;  // A macro computes the name: left to the compiler.

      const std::size_t end = directive->rest_begin + wanted->length;
      scanner.skip_to(end);
      result_.text += text.substr(copied, directive->begin - copied);
      copied = end;
      if (auto error = include(file, count.number(directive->line), *wanted, conditional || count.in_group()))
        return error;
      // The rest of the include's line becomes a separate line with the same number.
      end_line();
      result_.text += count.directive(directive->line);
      count.add_include();
      if (auto error = check_size(file)) return error;
    }
    result_.text += text.substr(copied);
    return check_size(file);
  }

  /// Ends the last line of a file, even if it ends in a backslash.
  void end_line() { result_.text += is_continued(result_.text) ? "\n\n" : "\n"; }

  std::optional<Error> include(const Found& from, std::size_t line, const IncludeName& wanted, bool conditional) {
    auto found = find(from, wanted);
    if (!found)
      return Error(found.error().code(),
                   fmt::format("{}:{} includes \"{}\": {}", from.name, line, wanted.name, found.error().message()));
    if (chain_.size() > max_depth)
      return Error(ErrorCode::invalid_request,
                   fmt::format("{}:{} includes \"{}\": includes are nested more than {} files deep", from.name,
                               line, wanted.name, max_depth));
    if (!*found) {
      if (conditional) {
        result_.text += fmt::format("\n#error \"{}\" is in no header and no include folder\n", wanted.name);
        return std::nullopt;
      }
      return missing(from, line, wanted.name);
    }
    const Found& file = **found;
    for (const Found* above : chain_)
      if (!above->identity.empty() && above->identity == file.identity) {
        if (is_guarded(file.text)) return std::nullopt;  // The compiler would skip all of it.
        return cycle(from, line, file);
      }
    const auto once = once_.find(file.identity);
    if (once != once_.end() && once->second.for_certain) return std::nullopt;
    // If a copy is inside #if, only the compiler knows which copy it reads first: guard each copy with #ifndef.
    const bool guarded = has_pragma_once(file.text) && (conditional || once != once_.end());
    if (has_pragma_once(file.text))
      once_.try_emplace(file.identity, Seen{once_.size(), false}).first->second.for_certain = !conditional;

    // The compiler would continue the comment or string in the including file, and would see other directives than
    // this scan.
    if (const std::string_view what = unfinished(file.text); !what.empty())
      return Error(ErrorCode::invalid_request, fmt::format("{}:{} includes \"{}\", which ends in the middle of {}",
                                                           from.name, line, wanted.name, what));
    const std::size_t number = add_file(file);
    if (guarded)
      result_.text += fmt::format("\n#ifndef KILN_ONCE_{0}\n#define KILN_ONCE_{0}", once_[file.identity].number);
    result_.text += '\n';
    result_.text += line_directive(LineStyle::number, 1, number, file.name);
    chain_.push_back(&file);
    auto error = expand(file, number, conditional);
    chain_.pop_back();
    if (guarded) {
      end_line();
      result_.text += "#endif";
    }
    return error;
  }

  Result<std::optional<Found>> find(const Found& from, const IncludeName& wanted) const {
    if (wanted.quoted && from.identity.starts_with("header:")) {
      const auto beside = std::filesystem::path(from.name).parent_path() / wanted.name;
      if (auto found = given(beside.lexically_normal().string())) return found;
    }
    if (wanted.quoted && from.folder)
      if (auto found = on_disk(*from.folder, wanted.name); !found || *found) return found;
    if (auto found = given(wanted.name)) return found;
    for (const auto& folder : places_.folders)
      if (auto found = on_disk(folder, wanted.name); !found || *found) return found;
    return std::optional<Found>{};
  }

  std::optional<Found> given(const std::string& name) const {
    const auto header = places_.headers.find(name);
    if (header == places_.headers.end()) return std::nullopt;
    return Found{name, "header:" + name, header->second, std::nullopt};
  }

  Result<std::optional<Found>> on_disk(const std::filesystem::path& folder, const std::string& name) const {
    // File system calls would cut the name at the NUL and open a different file.
    if (name.find('\0') != std::string::npos) return std::optional<Found>{};
    const auto path = folder / name;
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) return std::optional<Found>{};
    const auto size = std::filesystem::file_size(path, error);
    if (!error && size > max_bytes_)
      return Error(ErrorCode::invalid_request,
                   fmt::format("{} has {} bytes; the limit for a source is {}", path.string(), size, max_bytes_));
    std::ifstream stream(path, std::ios::binary);
    std::string text(error ? 0 : static_cast<std::size_t>(size), '\0');
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (error || !stream) return Error(ErrorCode::io, fmt::format("{} cannot be read", path.string()));
    const auto canonical = std::filesystem::weakly_canonical(path, error);
    return std::optional(
        Found{path.string(), "file:" + (error ? path : canonical).string(), std::move(text), path.parent_path()});
  }

  Error missing(const Found& from, std::size_t line, const std::string& name) const {
    std::vector<std::string> folders;
    for (const auto& folder : places_.folders) folders.push_back(folder.string());
    return Error(ErrorCode::include_not_found,
                 fmt::format("{}:{} includes \"{}\", which is neither among the {} headers given nor in an include "
                             "folder ({})",
                             from.name, line, name, places_.headers.size(),
                             folders.empty() ? "none given" : fmt::format("{}", fmt::join(folders, ", "))));
  }

  Error cycle(const Found& from, std::size_t line, const Found& again) const {
    std::string way;
    for (const Found* above : chain_) way += above->name + " → ";
    return Error(ErrorCode::include_cycle,
                 fmt::format("{}:{} includes \"{}\", which is already being included: {}{}", from.name, line,
                             again.name, way, again.name));
  }

  std::optional<Error> check_size(const Found& file) const {
    if (result_.text.size() <= max_bytes_) return std::nullopt;
    return Error(ErrorCode::invalid_request,
                 fmt::format("the source with its includes exceeds {} bytes in {}", max_bytes_, file.name));
  }

  const IncludePlaces& places_;
  const std::size_t max_bytes_;
  ResolvedSource result_;
  std::vector<const Found*> chain_;
  // Files with #pragma once; `for_certain` if the compiler reads the first copy unconditionally.
  struct Seen {
    std::size_t number = 0;
    bool for_certain = false;
  };
  std::map<std::string, Seen> once_;
};

}  // namespace

std::string line_directive(LineStyle style, std::size_t line, std::size_t file, const std::string& name) {
  return fmt::format("#line {} {}\n", line, origin(style, file, name));
}

Result<ResolvedSource> resolve_includes(const std::string& name, const std::string& source,
                                        const IncludePlaces& places, std::size_t max_bytes) {
  return Resolver(places, max_bytes).run(name, source);
}

}  // namespace kiln::key
