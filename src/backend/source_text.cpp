#include "backend/source_text.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "key/include_resolver.hpp"
#include "key/source_scanner.hpp"

namespace kiln::backend {
namespace {

using key::is_glsl;

std::optional<std::size_t> number_at(std::string_view text, std::size_t& at) {
  std::size_t value = 0;
  const std::size_t begin = at;
  while (at < text.size() && at - begin < 9 && key::is_digit(text[at]))
    value = 10 * value + static_cast<std::size_t>(text[at++] - '0');
  return at > begin ? std::optional(value) : std::nullopt;
}

/// A source location in a line of a log. `begin` is the offset of the location in the line, `words` that of the
/// message.
struct Place {
  std::size_t file;
  std::size_t line;
  std::size_t begin;
  std::size_t words;
};

/// Skips the column and the punctuation before the message.
std::size_t words_after(std::string_view text, std::size_t at) {
  at = std::min(text.find_first_of(" \t", at), text.size());
  return std::min(text.find_first_not_of(" \t:", at), text.size());
}

/// Parses a location with a file number: "1:12(5)" from Mesa, "1(12)" from NVIDIA.
std::optional<Place> numbered_place(std::string_view text) {
  std::size_t at = 0;
  const auto file = number_at(text, at);
  if (!file || at >= text.size() || (text[at] != ':' && text[at] != '(')) return std::nullopt;
  ++at;
  const auto line = number_at(text, at);
  if (!line) return std::nullopt;
  return Place{*file, *line, 0, words_after(text, at)};
}

/// Whether a name at this offset is a whole name, not the end of a longer one.
bool begins_name(std::string_view text, std::size_t at) {
  if (at == 0) return true;
  const char before = text[at - 1];
  return !key::is_word(before) && before != '/' && before != '.';
}

/// Parses a location with a file name: "name:12:5:" from clang, "name:12:" from shaderc, "name(12):" from NVRTC.
std::optional<Place> named_place(std::string_view text, const std::vector<std::string>& files) {
  // Longer names first: a name may contain another.
  std::vector<std::size_t> order(files.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&files](std::size_t file) { return files[file].size(); });
  for (const std::size_t file : order) {
    const std::string& name = files[file];
    for (std::size_t begin = text.find(name); begin != std::string_view::npos; begin = text.find(name, begin + 1)) {
      std::size_t at = begin + name.size();
      if (name.empty() || at >= text.size()) break;
      if (!begins_name(text, begin) || (text[at] != ':' && text[at] != '(')) continue;
      ++at;
      if (const auto line = number_at(text, at)) return Place{file, *line, begin, words_after(text, at)};
    }
  }
  return std::nullopt;
}

/// Whether a line of a log reports an error. Ignores the location: a file name may contain "error".
bool tells_error(std::string_view line, const std::optional<Place>& place) {
  std::string words(place ? line.substr(0, place->begin) : line);
  if (place) words += line.substr(place->words);
  // The text of a warning may contain "error".
  return words.find("error") < words.find("warning");
}

/// The line that Kiln inserted into a source under this number; empty if there is none.
std::string_view generated_line(std::string_view source, std::size_t wanted) {
  if (wanted < generated_lines) return {};
  std::size_t number = 1;
  bool generated = false;
  for (std::size_t begin = 0; begin < source.size(); ++number) {
    const std::size_t end = std::min(source.find('\n', begin), source.size());
    const std::string_view line = source.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("#line ")) {
      std::size_t at = std::string_view("#line ").size();
      const std::size_t next = number_at(line, at).value_or(1);
      generated = next >= generated_lines;
      number = next - 1;
    } else if (generated && number == wanted) {
      return line;
    }
  }
  return {};
}

std::string message_at(const Request& request, const Place& place, std::string_view words) {
  if (place.file > 0 && place.file < request.files().size())
    return fmt::format("{} does not compile, {} line {}: {}", request.name(), request.files()[place.file],
                       place.line, words);
  if (const auto generated = generated_line(request.source(), place.line); !generated.empty())
    return fmt::format("{} does not compile, in the line that Kiln generated, \"{}\": {}", request.name(),
                       generated, words);
  // Mesa sometimes reports file 0 for an error in an included file.
  const char* unsure = request.language() == Language::glsl && request.files().size() > 1
                           ? " (of the source or of an included file)"
                           : "";
  return fmt::format("{} does not compile, line {}{}: {}", request.name(), place.line, unsure, words);
}

}  // namespace

std::string with_defines(const Request& request) {
  const std::string& source = request.source();
  const bool glsl = is_glsl(request.language());
  if (glsl && request.defines().empty()) return source;
  std::size_t begin = 0;
  std::size_t line = 1;
  if (glsl) {
    key::SourceScanner scanner(source);
    if (const auto first = scanner.next(); first && first->name == "version") {
      // Insert after the version and profile: a comment may begin on the rest of the line.
      begin = std::min(source.find_first_not_of(" \t0123456789", first->rest_begin), source.size());
      for (const std::string_view profile : {"core", "compatibility", "es"})
        if (std::string_view(source).substr(begin).starts_with(profile)) begin += profile.size();
      line = first->line;
    }
  }
  std::string text = source.substr(0, begin);
  // Some drivers keep what they compile by its text alone, and would not notice an edited header.
  if (const Digest* included = request.included()) text += fmt::format("// {}\n", included->hex());
  if (!text.empty() && text.back() != '\n') text += '\n';
  for (const auto& [name, value] : request.defines()) text += fmt::format("#define {} {}\n", name, value);
  text += key::line_directive(glsl ? key::LineStyle::number : key::LineStyle::name, line, 0, request.name());
  return text += source.substr(begin);
}

std::string compile_message(const Request& request, const std::string& log) {
  std::string_view elsewhere;
  for (std::size_t begin = 0; begin < log.size();) {
    const std::size_t end = std::min(log.find('\n', begin), log.size());
    const std::string_view line = std::string_view(log).substr(begin, end - begin);
    begin = end + 1;
    auto place = is_glsl(request.language()) ? numbered_place(line) : std::nullopt;
    if (!place) place = named_place(line, request.files());
    if (!tells_error(line, place)) continue;
    if (place) return message_at(request, *place, line.substr(place->words));
    if (elsewhere.empty()) elsewhere = line;
  }
  // A line without a location may only quote the source; use it if there is no other.
  return elsewhere.empty() ? fmt::format("{} does not compile", request.name())
                           : fmt::format("{} does not compile: {}", request.name(), elsewhere);
}

Error compile_error(const Request& request, std::string log) {
  std::string message = compile_message(request, log);
  return Error(ErrorCode::compile_failed, std::move(message), std::move(log));
}

Result<void> check_language(const Request& request, const std::vector<Language>& taken) {
  if (request.error()) return *request.error();
  if (std::ranges::find(taken, request.language()) == taken.end()) {
    std::string names;
    for (std::size_t i = 0; i < taken.size(); ++i)
      names += fmt::format("{}{}", i == 0 ? "" : i + 1 == taken.size() ? " or " : ", ", to_string(taken[i]));
    return Error(ErrorCode::invalid_request, fmt::format("{} is in {}; this device takes {}", request.name(),
                                                         to_string(request.language()), names));
  }
  if (is_glsl(request.language()) && request.entries() != std::vector<std::string>{"main"})
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} has the entry point {}, but GLSL programs start at main", request.name(),
                             fmt::join(request.entries(), ", ")));
  return {};
}

Error no_compiler(const Request& request, const DeviceInfo& device) {
  return Error(ErrorCode::unsupported,
               fmt::format("{} cannot be compiled on {}, which runs only programs that are compiled already: {}",
                           request.name(), device.name, device.compiler_problem));
}

Error missing_kernel(const Request& request, std::string_view entry, std::string log) {
  return Error(
      ErrorCode::compile_failed,
      fmt::format("{} has no kernel called {}; name a __global__ function of the source, with the arguments of a "
                  "template, as in scale<float>",
                  request.name(), entry),
      std::move(log));
}

Error ambiguous_kernel(const Request& request, std::string_view entry, std::string log) {
  return Error(ErrorCode::compile_failed,
               fmt::format("{} has several kernels called {}; select one by a cast, as in (void(*)(int*)){}",
                           request.name(), entry, entry),
               std::move(log));
}

namespace {

/// Messages about too much shared memory from Mesa, from NVIDIA's ptxas and GLSL compiler, and from AMD's
/// compilers.
constexpr std::array<std::string_view, 5> too_much_memory = {
    "Too much shared memory used", "uses too much shared data", "cannot locate suitable resource to bind variable",
    "local memory limit exceeded", "error: local memory ("};

/// The first file that the log calls missing and that the request did not find; empty if there is none.
std::string_view missing_file(const Request& request, std::string_view log) {
  for (const std::string& name : request.missing_files())
    for (const auto& message :
         {fmt::format("cannot open source file \"{}\"", name), fmt::format("'{}' file not found", name)})
      if (log.find(message) != std::string_view::npos) return name;
  return {};
}

Error not_found(const Request& request, std::string_view file, std::string log) {
  std::vector<std::string> folders;
  for (const auto& folder : request.include_folders()) folders.push_back(folder.string());
  std::string message =
      fmt::format("{}; \"{}\" is neither among the {} headers given nor in an include folder ({})",
                  compile_message(request, log), file, request.headers().size(),
                  folders.empty() ? "none given" : fmt::format("{}", fmt::join(folders, ", ")));
  return Error(ErrorCode::include_not_found, std::move(message), std::move(log));
}

}  // namespace

Error refusal(const Request& request, std::string log) {
  if (const auto file = missing_file(request, log); !file.empty()) return not_found(request, file, std::move(log));
  const bool lacks_memory = std::ranges::any_of(
      too_much_memory, [&](std::string_view words) { return log.find(words) != std::string::npos; });
  if (!lacks_memory) return compile_error(request, std::move(log));
  return Error(ErrorCode::unsupported,
               fmt::format("{} needs more shared memory or larger arrays than the device supports", request.name()),
               std::move(log));
}

}  // namespace kiln::backend
