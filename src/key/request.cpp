#include <kiln/request.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "key/include_resolver.hpp"
#include "key/source_scanner.hpp"

namespace kiln {
namespace {

using key::is_glsl;

constexpr std::uint32_t key_version = 1;

/// The first option that makes the compiler read another file; nothing if there is none.
std::optional<std::string_view> option_that_reads(const Request::Fields& fields) {
  static constexpr std::array<std::string_view, 8> starts = {"-include",  "--include", "--pre-include", "-imacros",
                                                             "--imacros", "-use-pch",  "--use-pch",     "@"};
  for (const std::string& option : fields.options)
    for (const std::string_view start : starts)
      if (option.starts_with(start)) return option;
  return std::nullopt;
}

std::optional<Error> check(const Request::Fields& fields) {
  const auto invalid = [&fields](std::string_view why) {
    return Error(ErrorCode::invalid_request, fmt::format("the request for \"{}\" {}", fields.name, why));
  };
  if (fields.name.size() > 4096) {
    return Error(ErrorCode::invalid_request,
                 fmt::format("the name of a request has {} characters; the limit is 4096", fields.name.size()));
  }
  if (fields.source.find_first_not_of(" \t\r\n") == std::string::npos) return invalid("has an empty source");
  if (fields.source.size() > Request::max_source_bytes) {
    return invalid(
        fmt::format("has a source of {} bytes; the limit is {}", fields.source.size(), Request::max_source_bytes));
  }
  if (fields.entry.empty()) return invalid("has an empty entry point");
  for (const auto& [name, value] : fields.defines) {
    if (!key::is_name(name)) return invalid(fmt::format("defines \"{}\", which is not a valid macro name", name));
    if (value.find_first_of(std::string_view("\n\r\0", 3)) != std::string::npos || value.ends_with('\\'))
      return invalid(fmt::format("gives the define {} a value that spans several lines", name));
  }
  if (const auto option = is_glsl(fields.language) ? std::nullopt : option_that_reads(fields))
    return invalid(
        fmt::format("has the option {}, which makes the compiler read a file that is not part of the key; write "
                    "#include in the source instead",
                    *option));
  return std::nullopt;
}

Digest digest_of(const Request::Fields& fields, const std::string& source, bool valid) {
  base::ByteWriter writer;
  // A separate prefix, so that an invalid request never has the key of a valid one.
  writer.text(valid ? "kiln request" : "kiln request in error");
  writer.number(key_version);
  writer.text(fields.name);
  writer.text(to_string(fields.language));
  writer.text(fields.entry);
  writer.number(static_cast<std::uint64_t>(fields.options.size()));
  for (const auto& option : fields.options) writer.text(option);
  writer.number(static_cast<std::uint64_t>(fields.defines.size()));
  for (const auto& [name, value] : fields.defines) {
    writer.text(name);
    writer.text(value);
  }
  writer.text(source);
  return base::sha256(writer.bytes());
}

/// An option with a value, as in "-Iname", "--include-path=name", or "-I" and "name".
struct OptionName {
  std::string_view text;
  bool is_folder;
};

constexpr std::array moved_options = {
    OptionName{"--include-path", true},
    OptionName{"--include-directory", true},
    OptionName{"--define-macro", false},
    OptionName{"-isystem", true},
    OptionName{"-iquote", true},
    OptionName{"-idirafter", true},
    OptionName{"-I", true},
    OptionName{"-D", false},
};

/// The words of an OpenCL option string, as clBuildProgram takes it. Quotes stay: the driver reads them too.
std::vector<std::string> split_options(const std::vector<std::string>& options) {
  std::vector<std::string> words;
  for (const std::string& text : options) {
    std::string word;
    char quote = 0;
    for (const char c : text) {
      if (quote == 0 && (c == ' ' || c == '\t' || c == '\n' || c == '\r')) {
        if (!word.empty()) words.push_back(std::exchange(word, {}));
        continue;
      }
      if (c == quote)
        quote = 0;
      else if (quote == 0 && (c == '"' || c == '\''))
        quote = c;
      word += c;
    }
    if (!word.empty()) words.push_back(std::move(word));
  }
  return words;
}

/// A word of an option string without the quotes around it or its parts.
std::string without_quotes(std::string_view word) {
  std::string text;
  char quote = 0;
  for (const char c : word) {
    if (quote == 0 && (c == '"' || c == '\''))
      quote = c;
    else if (c == quote)
      quote = 0;
    else
      text += c;
  }
  return text;
}

/// Moves defines and include folders from the options to their fields, so that different spellings have the same
/// key.
void move_options(Request::Fields& fields) {
  // OpenCL has one string of options, which Kiln joins from these; other compilers take each as one argument.
  const bool is_string = fields.language == Language::opencl;
  if (is_string) fields.options = split_options(fields.options);
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < fields.options.size(); ++i) {
    const std::string option = is_string ? without_quotes(fields.options[i]) : fields.options[i];
    const auto* name = std::find_if(moved_options.begin(), moved_options.end(),
                                    [&](const OptionName& moved) { return option.starts_with(moved.text); });
    if (name == moved_options.end()) {
      kept.push_back(fields.options[i]);
      continue;
    }
    std::string value = option.substr(name->text.size());
    if (value.empty() && i + 1 < fields.options.size()) {
      value = is_string ? without_quotes(fields.options[i + 1]) : fields.options[i + 1];
      ++i;
    } else if (name->text.starts_with("--") && value.starts_with('=')) {
      value.erase(0, 1);
    }
    if (name->is_folder) {
      fields.include_folders.emplace_back(value);
    } else {
      const std::size_t equals = value.find('=');
      fields.defines.insert_or_assign(value.substr(0, equals),
                                      equals == std::string::npos ? "1" : value.substr(equals + 1));
    }
  }
  fields.options = std::move(kept);
}

}  // namespace

std::string_view to_string(Language language) noexcept {
  switch (language) {
    case Language::glsl: return "glsl";
    case Language::vulkan_glsl: return "vulkan";
    case Language::opencl: return "opencl";
    case Language::cuda: return "cuda";
    case Language::hip: return "hip";
  }
  return "unknown";
}

Request::Request(Fields fields) {
  auto state = std::make_shared<State>();
  if (!is_glsl(fields.language)) move_options(fields);
  state->error = check(fields);
  if (!state->error) {
    // HIP's compilers provide these headers, and the compiler version is part of the device's identity.
    const std::string_view built_in = fields.language == Language::hip ? "hip/" : "";
    auto resolved = key::resolve_includes(
        fields.name, fields.source, {fields.headers, fields.include_folders, built_in},
        is_glsl(fields.language) ? key::LineStyle::number : key::LineStyle::name, max_source_bytes);
    if (resolved && resolved->text.find('\0') != std::string::npos) {
      state->error = Error(ErrorCode::invalid_request,
                           fmt::format("the request for \"{}\" has a NUL character in its source", fields.name));
    } else if (resolved) {
      state->source = std::move(resolved->text);
      state->files = std::move(resolved->files);
      state->file_digests = std::move(resolved->digests);
    } else {
      state->error = std::move(resolved).error();
    }
  }
  state->key = {digest_of(fields, state->source, !state->error), fields.name};
  // The resolved source replaces both; free their memory.
  fields.source.clear();
  fields.headers.clear();
  state->fields = std::move(fields);
  state_ = std::move(state);
}

std::string Request::describe() const {
  nlohmann::ordered_json facts;
  facts["name"] = name();
  facts["language"] = to_string(language());
  facts["entry"] = entry();
  facts["options"] = options();
  facts["defines"] = defines();
  facts["source"] = {{"sha256", base::sha256(source()).hex()}, {"bytes", source().size()}};
  auto& files = facts["files"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < state_->files.size(); ++i)
    files.push_back({{"name", state_->files[i]}, {"sha256", state_->file_digests[i].hex()}});
  return facts.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace kiln
