#include <kiln/request.hpp>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "base/try.hpp"
#include "key/dependencies.hpp"
#include "key/directives.hpp"
#include "key/include_resolver.hpp"
#include "key/options.hpp"
#include "key/source_scanner.hpp"
#include "key/toolkit.hpp"

namespace kiln {
namespace {

using key::is_glsl;

constexpr std::uint32_t key_version = 1;

/// Whether text can follow #define: a name, or a name with parameters, as in "TEXT(x)".
bool is_macro(std::string_view text) {
  const std::size_t parameters = std::min(text.find('('), text.size());
  if (!key::is_name(text.substr(0, parameters))) return false;
  if (parameters == text.size()) return true;
  return text.ends_with(')') && text.find(')') == text.size() - 1 &&
         std::ranges::all_of(text.substr(parameters + 1, text.size() - parameters - 2),
                             [](char c) { return key::is_word(c) || c == ',' || c == '.' || c == ' '; });
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
  const bool is_compiled = key::is_compiled(fields.language);
  const std::size_t limit = is_compiled ? Request::max_binary_bytes : Request::max_source_bytes;
  if (fields.source.size() > limit)
    return invalid(fmt::format("has a source of {} bytes; the limit is {}", fields.source.size(), limit));
  if (is_compiled && (!fields.options.empty() || !fields.defines.empty()))
    return invalid(
        fmt::format("has options or defines, which a program in {} cannot use", to_string(fields.language)));
  if (!fields.constants.empty() && fields.language != Language::vulkan_glsl && fields.language != Language::spirv)
    return invalid(
        fmt::format("has specialisation constants, which {} does not have; only GLSL for Vulkan and "
                    "SPIR-V have them",
                    to_string(fields.language)));
  std::set<std::string_view> entries;
  for (const std::string& entry : fields.entries) {
    // Stored names are separated by these characters.
    if (entry.empty() || std::ranges::any_of(entry, [](unsigned char c) { return c < ' '; }))
      return invalid("has an entry point that is empty or has control characters");
    if (!entries.insert(entry).second) return invalid(fmt::format("names the entry point {} twice", entry));
  }
  for (const auto& [name, value] : fields.defines) {
    if (!is_macro(name)) return invalid(fmt::format("defines \"{}\", which is not a valid macro name", name));
    if (value.find_first_of(std::string_view("\n\r\0", 3)) != std::string::npos || value.ends_with('\\'))
      return invalid(fmt::format("gives the define {} a value that spans several lines", name));
  }
  if (std::ranges::any_of(fields.include_folders, [](const auto& folder) { return folder.empty(); }))
    return invalid("has an include folder without a name");
  if (const auto option = key::option_that_reads(fields))
    return invalid(
        fmt::format("has the option {}, which makes the compiler read a file that is not part of the key; write "
                    "#include in the source instead",
                    *option));
  return std::nullopt;
}

Digest digest_of(const Request::Fields& fields, const std::string& source, const Digest* included, bool valid) {
  base::ByteWriter writer;
  // A separate prefix, so that an invalid request never has the key of a valid one.
  writer.text(valid ? "kiln request" : "kiln request in error");
  writer.number(key_version);
  writer.text(fields.name);
  writer.text(to_string(fields.language));
  // Keys of requests with one entry point are the same as in Kiln 0.1.
  const bool has_one_entry = fields.entries.size() == 1;
  writer.text(has_one_entry ? fields.entries[0] : std::string("\0entries", 8));
  if (!has_one_entry) {
    writer.number(static_cast<std::uint64_t>(fields.entries.size()));
    for (const auto& entry : fields.entries) writer.text(entry);
  }
  writer.number(static_cast<std::uint64_t>(fields.options.size()));
  for (const auto& option : fields.options) writer.text(option);
  writer.number(static_cast<std::uint64_t>(fields.defines.size()));
  for (const auto& [name, value] : fields.defines) {
    writer.text(name);
    writer.text(value);
  }
  writer.text(source);
  // Keys of sources without included files are the same as in Kiln 0.1.
  if (included != nullptr) writer.raw(included->bytes);
  // Keys of requests without constants are the same as in Kiln 0.2.
  if (!fields.constants.empty()) {
    writer.text("constants");
    writer.number(static_cast<std::uint64_t>(fields.constants.size()));
    for (const auto& [id, constant] : fields.constants) {
      writer.number(id);
      writer.number(static_cast<std::uint64_t>(constant.index()));
      std::visit([&writer](auto value) { writer.number(value); }, constant);
    }
  }
  return base::sha256(writer.bytes());
}

/// The absolute paths of the user's folders.
Result<std::vector<std::filesystem::path>> absolute_folders(const Request::Fields& fields) {
  std::vector<std::filesystem::path> folders;
  for (const auto& folder : fields.include_folders) {
    std::error_code error;
    folders.push_back(std::filesystem::absolute(folder, error));
    if (error)
      return Error(ErrorCode::io, fmt::format("the request for \"{}\" has the include folder {}, but the working "
                                              "folder cannot be found: {}",
                                              fields.name, folder.string(), error.message()));
  }
  return folders;
}

/// The dependencies of a source whose include folders are absolute.
Result<std::shared_ptr<const key::Dependencies>> dependencies_of(const Request::Fields& fields,
                                                                 const std::string& source,
                                                                 std::size_t toolkit_folders) {
  const auto search = key::search_of(fields.language, fields.headers, fields.include_folders, toolkit_folders);
  auto found = key::find_dependencies(source, search, fields.defines);
  if (found) return found;
  return Error(found.error().code(),
               fmt::format("the request for \"{}\" is invalid: {}", fields.name, found.error().message()));
}

struct FoundFiles {
  std::shared_ptr<const key::Dependencies> dependencies;
  std::size_t toolkit_folders = 0;
};

/// Makes the include folders absolute, adds those of the toolkit, and finds the dependencies of the source.
Result<FoundFiles> find_files(Request::Fields& fields) {
  fields.include_folders = KILN_TRY(absolute_folders(fields));
  const auto toolkit = key::toolkit_folders(fields.language);
  fields.include_folders.insert(fields.include_folders.end(), toolkit.begin(), toolkit.end());
  return FoundFiles{KILN_TRY(dependencies_of(fields, fields.source, toolkit.size())), toolkit.size()};
}

}  // namespace

std::string_view to_string(Language language) noexcept {
  switch (language) {
    case Language::glsl: return "glsl";
    case Language::vulkan_glsl: return "vulkan";
    case Language::opencl: return "opencl";
    case Language::cuda: return "cuda";
    case Language::hip: return "hip";
    case Language::spirv: return "spirv";
    case Language::ptx: return "ptx";
    case Language::cubin: return "cubin";
    case Language::fatbin: return "fatbin";
    case Language::code_object: return "code_object";
  }
  return "unknown";
}

std::optional<Language> language_of(std::string_view name) noexcept {
  for (const Language language :
       {Language::glsl, Language::vulkan_glsl, Language::opencl, Language::cuda, Language::hip, Language::spirv,
        Language::ptx, Language::cubin, Language::fatbin, Language::code_object})
    if (to_string(language) == name) return language;
  return std::nullopt;
}

std::string to_string(const Constant& constant) {
  static constexpr std::array<std::string_view, 7> types = {"bool",   "int",     "uint",    "float",
                                                            "double", "int64_t", "uint64_t"};
  static_assert(types.size() == std::variant_size_v<Constant>);
  return std::visit([&](auto value) { return fmt::format("{} {}", types[constant.index()], value); }, constant);
}

Request::Request(Fields fields) {
  auto state = std::make_shared<State>();
  key::move_options(fields);
  if (is_glsl(fields.language) && fields.entries.empty()) fields.entries = {"main"};
  state->error = check(fields);
  if (!state->error && is_glsl(fields.language)) {
    // Drivers have no #include.
    auto resolved = key::resolve_includes(fields.name, fields.source, {fields.headers, fields.include_folders},
                                          max_source_bytes);
    if (resolved) {
      state->source = std::move(resolved->text);
      state->files = std::move(resolved->files);
      state->file_digests = std::move(resolved->digests);
    } else {
      state->error = std::move(resolved).error();
    }
  } else if (!state->error && key::is_compiled(fields.language)) {
    state->source = std::move(fields.source);
  } else if (!state->error) {
    const auto directives = key::find_directives(fields.source);
    if (!directives.lookups.empty() || !directives.computed.empty()) {
      auto found = find_files(fields);
      if (found) {
        state->dependencies = std::move(found->dependencies);
        state->toolkit_folders = found->toolkit_folders;
      } else {
        state->error = std::move(found).error();
      }
    }
    if (!state->error) state->source = std::move(fields.source);
  }
  if (!key::is_compiled(fields.language) && state->source.find('\0') != std::string::npos) {
    state->error = Error(ErrorCode::invalid_request,
                         fmt::format("the request for \"{}\" has a NUL character in its source", fields.name));
    state->source.clear();
  }
  const Digest* included = state->dependencies ? &state->dependencies->digest : nullptr;
  state->key = {digest_of(fields, state->source, included, !state->error), fields.name};
  // Compilers need the headers and folders only if the source names files.
  fields.source.clear();
  if (!state->dependencies) fields.headers.clear();
  if (!state->dependencies) fields.include_folders.clear();
  state->fields = std::move(fields);
  state_ = std::move(state);
}

Request::State::~State() { delete names.load(std::memory_order_acquire); }

const std::vector<std::string>& Request::files() const {
  if (is_glsl(language()) || error()) return state_->files;
  if (const auto* names = state_->names.load(std::memory_order_acquire)) return *names;
  auto made = std::make_unique<std::vector<std::string>>(1, name());
  if (state_->dependencies)
    for (const auto& file : state_->dependencies->files) made->push_back(file.name);
  const std::vector<std::string>* first = nullptr;
  if (state_->names.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *first;
}

const std::vector<std::string>& Request::missing_files() const noexcept {
  static const std::vector<std::string> none;
  return state_->dependencies ? state_->dependencies->missing : none;
}

const Digest* Request::included() const noexcept {
  return state_->dependencies ? &state_->dependencies->digest : nullptr;
}

std::optional<Digest> Request::digest_without_toolkit() const {
  const bool has_toolkit = language() == Language::cuda || language() == Language::hip;
  if (error() || !has_toolkit || !state_->dependencies || !state_->dependencies->without_toolkit)
    return std::nullopt;
  return digest_of(state_->fields, source(), &*state_->dependencies->without_toolkit, true);
}

Result<Digest> Request::check_files() const {
  if (!state_->dependencies) return Digest{};
  // Before the contents are read, so that a change while they are read gives another state later.
  const Digest state = key::state_of(*state_->dependencies);
  const auto now = KILN_TRY(dependencies_of(state_->fields, source(), state_->toolkit_folders));
  if (now->digest == state_->dependencies->digest) return state;
  const auto& before = state_->dependencies->files;
  const auto [changed, other] =
      std::ranges::mismatch(before, now->files, [](const auto& a, const auto& b) { return a.digest == b.digest; });
  const std::string file = other != now->files.end() ? other->name
                           : changed != before.end() ? changed->name
                                                     : "a file";
  return Error(
      ErrorCode::outdated,
      fmt::format("{} changed after the request for \"{}\" was made; make the request again", file, name()));
}

std::string Request::describe() const {
  nlohmann::ordered_json facts;
  facts["name"] = name();
  facts["language"] = to_string(language());
  facts["entry"] = entries().size() == 1 ? entries()[0] : "";
  facts["entries"] = entries();
  facts["options"] = options();
  facts["defines"] = defines();
  for (const auto& [id, constant] : constants()) facts["constants"][std::to_string(id)] = to_string(constant);
  facts["source"] = {{"sha256", base::sha256(source()).hex()}, {"bytes", source().size()}};
  return facts.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string Request::describe_files() const {
  // Enough to tell files apart, and a quarter of the size: real headers include a thousand others.
  constexpr std::size_t digits = 16;
  auto files = nlohmann::ordered_json::array();
  const auto add = [&files](const std::string& name, const Digest& digest) {
    files.push_back({{"name", name}, {"sha256", digest.hex(digits)}});
  };
  if (is_glsl(language())) {
    for (std::size_t i = 0; i < state_->files.size(); ++i) add(state_->files[i], state_->file_digests[i]);
  } else if (!error()) {
    add(name(), base::sha256(source()));
    if (state_->dependencies)
      for (const auto& file : state_->dependencies->files) add(file.name, file.digest);
  }
  return files.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace kiln
