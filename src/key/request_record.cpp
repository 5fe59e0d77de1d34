#include "key/request_record.hpp"

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include <fcntl.h>

#include <fmt/format.h>

#include "base/sha256.hpp"
#include "base/try.hpp"
#include "key/file_index.hpp"
#include "key/file_tree.hpp"
#include "key/options.hpp"
#include "key/toolkit.hpp"

namespace kiln::key {
namespace {

/// Bounds the memory for a record that someone else made.
constexpr std::size_t max_entries = 100'000;
constexpr std::size_t max_files = 1'000'000;
/// Bounds the time for it.
constexpr std::uint64_t max_unpacked_bytes = std::uint64_t{4} << 30;

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// An option that defines a macro, after the options that undefine it. An OpenCL option string needs quotes.
std::string define_option(Language language, const std::string& name, const std::string& value) {
  const std::string option = "-D" + name + '=' + value;
  if (language != Language::opencl) return option;
  std::string quoted = "\"";
  for (const char c : option) {
    if (c == '"' || c == '\'') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

/// Making a Request moves the defines of its options to its fields, and its -U options remove defines. The recorded
/// fields are the result of that, but keep the -U options. Adds an option for each define that such an option would
/// remove a second time.
void keep_defines(Request::Fields& fields) {
  Request::Fields moved = fields;
  move_options(moved);
  for (const auto& [name, value] : fields.defines)
    if (!moved.defines.contains(name)) fields.options.push_back(define_option(fields.language, name, value));
}

/// Why a request that was made from a record has another key.
std::string difference_of(const RecordedRequest& recorded, const RequestRecord::Unpacked& unpacked) {
  const auto toolkit = toolkit_folders(recorded.language);
  for (const OutsideFile& file : recorded.tree.outside) {
    const RecordedFolder place{.toolkit = file.toolkit, .path = file.path};
    const auto path = file.toolkit ? unpacked_path(place, {}, toolkit) : std::filesystem::path(file.path);
    const auto text = path ? read_text(path->string()) : Result<std::optional<std::string>>(std::nullopt);
    const std::string_view where = file.toolkit ? " of the toolkit" : "";
    if (!text || !*text) return fmt::format("this machine does not have the file {}{}", file.path, where);
    if (base::sha256(**text) != file.digest)
      return fmt::format("the file {}{} has other contents on this machine", file.path, where);
  }
  std::error_code error;
  if (unpacked.working_folder && std::filesystem::current_path(error) != *unpacked.working_folder)
    return "it was made in a working folder with files that it includes";
  return "the toolkit, the working folder or the version of Kiln is another one";
}

}  // namespace

Result<RequestRecord> RequestRecord::read(const std::filesystem::path& path) {
  const base::FileSystem& system = base::FileSystem::system();
  // O_NONBLOCK: a FIFO must not block.
  base::FileHandle file(system.open(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0),
                        system);
  struct stat status {};
  if (!file || system.status(file.get(), &status) != 0) return base::system_error("read", path);
  if (!S_ISREG(status.st_mode))
    return Error(ErrorCode::unsupported, fmt::format("{} is not a regular file", path.string()));
  RequestRecord record(path, std::move(file));
  if (auto found = record.find_items(); !found) return record.with_path(found.error());
  return record;
}

Result<RequestRecord> RequestRecord::read_part(base::FileHandle file, std::filesystem::path path,
                                               std::uint64_t offset, std::uint64_t size) {
  RequestRecord record(std::move(path), std::move(file));
  record.part_ = {.offset = offset, .size = size};
  if (auto found = record.find_items(); !found) return record.with_path(found.error());
  return record;
}

Result<void> RequestRecord::find_items() {
  const auto begin = KILN_TRY(read_at(place(), 0, record_begin_bytes));
  if (is_unfinished_begin(begin)) return {};
  if (const auto why = why_no_record(begin)) return Error(ErrorCode::unsupported, std::string(*why));
  ItemFinder finder(place(), record_begin_bytes);
  std::set<Digest> known;
  std::uint64_t unpacked = 0;
  while (const auto item = KILN_TRY(finder.next())) {
    if (item->kind == ItemKind::file) files_.emplace(item->id, *item);
    if (item->kind == ItemKind::request && !known.contains(item->id)) {
      Entry entry{.item = *item};
      unpacked += std::min(item->bytes, max_request_bytes);
      if (unpacked > max_unpacked_bytes)
        return Error(ErrorCode::unsupported, "its requests are larger than 4 GiB in all");
      auto details = request(entry);
      if (!details && details.error().code() != ErrorCode::damaged) return std::move(details).error();
      if (!details) {
        if (++damaged_ > ItemFinder::max_damaged)
          return Error(ErrorCode::unsupported,
                       fmt::format("it has more than {} damaged items", ItemFinder::max_damaged));
        continue;
      }
      entry.headers = details->header_count();
      entry.key = std::move(details->key);
      entry.api = std::move(details->api);
      entry.language = details->language;
      entry.compile_time = details->compile_time;
      entry.source_bytes = details->source_bytes;
      entries_.push_back(std::move(entry));
      known.insert(item->id);
    }
    if (entries_.size() > max_entries || files_.size() > max_files)
      return Error(ErrorCode::unsupported,
                   fmt::format("it has more than {} requests or {} files", max_entries, max_files));
  }
  damaged_ += finder.damaged();
  return {};
}

Error RequestRecord::with_path(const Error& error) const {
  return Error(error.code(), fmt::format("the {} {} cannot be used: {}", part_ ? "requests in" : "record",
                                         path_.string(), error.message()));
}

Result<RecordedRequest> RequestRecord::request(const Entry& entry) const {
  auto recorded = [&]() -> Result<RecordedRequest> {
    const auto bytes = KILN_TRY(read_contents(place(), entry.item));
    auto request = KILN_TRY(RecordedRequest::from_bytes(bytes));
    if (RecordedRequest::id(request.key.digest, request.api) != entry.item.id)
      return Error(ErrorCode::damaged, "it has a request under the key of another one");
    return request;
  }();
  if (!recorded) return with_path(recorded.error());
  return recorded;
}

Result<std::vector<std::byte>> RequestRecord::read_file_item(const Digest& digest, ReadItem read_item) const {
  Error error(ErrorCode::damaged, fmt::format("it lacks the file with the SHA-256 {}", digest.hex()));
  const auto [first, last] = files_.equal_range(digest);
  for (auto each = first; each != last; ++each) {
    auto bytes = read_item(place(), each->second);
    if (bytes) return bytes;
    error = std::move(bytes).error();
  }
  return with_path(error);
}

Result<std::vector<std::byte>> RequestRecord::contents(const Digest& digest) const {
  return read_file_item(digest, read_contents);
}

Result<std::vector<std::byte>> RequestRecord::packed_contents(const Digest& digest) const {
  return read_file_item(digest, read_packed);
}

Result<std::vector<std::byte>> RequestRecord::packed_request(const Entry& entry) const {
  auto bytes = read_packed(place(), entry.item);
  if (!bytes) return with_path(bytes.error());
  return bytes;
}

Result<RequestRecord::Unpacked> RequestRecord::unpack(const Entry& entry,
                                                      const std::filesystem::path& folder) const {
  auto recorded = KILN_TRY(request(entry));
  const auto contents_of = [this](const Digest& digest) { return contents(digest); };
  if (auto unpacked = unpack_tree(recorded.tree, folder, contents_of); !unpacked)
    return unpacked.error().code() == ErrorCode::damaged ? with_path(unpacked.error())
                                                         : std::move(unpacked).error();
  Unpacked result;
  Request::Fields& fields = result.fields;
  fields.name = std::move(recorded.key.name);
  fields.source = text_of(KILN_TRY(contents(recorded.source)));
  fields.entries = std::move(recorded.entries);
  fields.language = recorded.language;
  fields.options = std::move(recorded.options);
  fields.defines = std::move(recorded.defines);
  fields.constants = std::move(recorded.constants);
  for (const auto& [name, digest] : recorded.headers) fields.headers[name] = text_of(KILN_TRY(contents(digest)));
  const auto toolkit = toolkit_folders(recorded.language);
  for (const RecordedFolder& place : recorded.tree.include_folders)
    if (auto path = unpacked_path(place, folder, toolkit)) fields.include_folders.push_back(*std::move(path));
  if (recorded.tree.working_folder)
    result.working_folder = unpacked_path({.path = *recorded.tree.working_folder}, folder, toolkit);
  keep_defines(fields);
  return result;
}

Result<RequestRecord::Rebuilt> RequestRecord::rebuild(const Entry& entry,
                                                      const std::filesystem::path& folder) const {
  const auto unpacked = KILN_TRY(unpack(entry, folder));
  Rebuilt rebuilt{Request(unpacked.fields)};
  if (rebuilt.request.error())
    rebuilt.difference = rebuilt.request.error()->message();
  else if (rebuilt.request.key().digest != entry.key.digest)
    rebuilt.difference = difference_of(KILN_TRY(request(entry)), unpacked);
  return rebuilt;
}

}  // namespace kiln::key
