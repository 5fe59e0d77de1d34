#include "key/record_writer.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <span>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "base/try.hpp"
#include "key/file_index.hpp"
#include "key/file_tree.hpp"

namespace kiln::key {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds longest_compile_time = 24h;

Error not_recorded(const Request& request, std::string_view why) {
  return Error(ErrorCode::outdated, fmt::format("{} is not recorded: {}", request.name(), why));
}

/// The request without its tree.
RecordedRequest fields_of(const Request& request, std::string_view api, std::chrono::nanoseconds compile_time) {
  RecordedRequest recorded{.key = request.key(), .api = std::string(api)};
  recorded.compile_time = std::clamp(compile_time, 0ns, longest_compile_time);
  recorded.language = request.language();
  recorded.source = base::sha256(request.source());
  recorded.source_bytes = request.source().size();
  recorded.entries = request.entries();
  recorded.options = request.options();
  recorded.defines = request.defines();
  recorded.constants = request.constants();
  for (const auto& [name, text] : request.headers()) recorded.headers.emplace(name, base::sha256(text));
  return recorded;
}

}  // namespace

Result<bool> RecordWriter::add(const Request& request, std::string_view api,
                               std::chrono::nanoseconds compile_time) {
  Addition addition{.id = RecordedRequest::id(request.key().digest, api)};
  if (KILN_TRY(has_request(addition.id))) return false;
  auto captured = capture_tree(request);
  if (!captured) return not_recorded(request, captured.error().message());
  RecordedRequest recorded = fields_of(request, api, compile_time);
  recorded.tree = std::move(captured->tree);
  std::map<Digest, std::string_view> texts = {{recorded.source, request.source()}};
  for (const auto& [name, text] : request.headers()) texts.emplace(recorded.headers.at(name), text);
  for (const auto& [digest, text] : texts) addition.needed.insert(digest);
  for (const auto& [digest, path] : captured->paths) addition.needed.insert(digest);
  const auto bytes = recorded.to_bytes();
  if (bytes.size() > max_request_bytes) return not_recorded(request, "it has too many files");
  addition.request = pack_item(ItemKind::request, addition.id, bytes);
  const auto pack = [&](const Digest& digest) -> Result<std::vector<std::byte>> {
    if (const auto text = texts.find(digest); text != texts.end()) {
      if (text->second.size() > FileIndex::max_file_bytes) return not_recorded(request, "its source is too large");
      return pack_item(ItemKind::file, digest, std::as_bytes(std::span(text->second)));
    }
    const std::string& path = captured->paths.at(digest);
    const auto text = read_text(path);
    if (!text || !*text || base::sha256(**text) != digest)
      return not_recorded(request, fmt::format("{} was changed", path));
    return pack_item(ItemKind::file, digest, std::as_bytes(std::span(**text)));
  };
  return append(std::move(addition), pack);
}

Result<bool> RecordWriter::add(const RequestRecord& from, const RequestRecord::Entry& entry) {
  Addition addition{.id = entry.item.id};
  if (KILN_TRY(has_request(addition.id))) return false;
  const RecordedRequest recorded = KILN_TRY(from.request(entry));
  addition.request = KILN_TRY(from.packed_request(entry));
  addition.needed.insert(recorded.source);
  for (const auto& [name, digest] : recorded.headers) addition.needed.insert(digest);
  for (const RecordedFile& each : recorded.tree.files)
    if (each.kind == RecordedFile::Kind::stored) addition.needed.insert(each.digest);
  return append(std::move(addition), [&](const Digest& digest) { return from.packed_contents(digest); });
}

Result<bool> RecordWriter::has_request(const Digest& id) {
  const base::MutexLock lock(mutex_);
  const auto file = KILN_TRY(open());
  return has(file, requests_, id);
}

Result<std::vector<Digest>> RecordWriter::lacking(const std::set<Digest>& files) {
  const base::MutexLock lock(mutex_);
  const auto file = KILN_TRY(open());
  std::vector<Digest> lacking;
  for (const Digest& digest : files)
    if (!KILN_TRY(has(file, files_, digest))) lacking.push_back(digest);
  return lacking;
}

Result<bool> RecordWriter::append(Addition addition, const Pack& pack) {
  for (;;) {
    for (const Digest& digest : KILN_TRY(lacking(addition.needed)))
      if (!addition.files.contains(digest)) addition.files.emplace(digest, KILN_TRY(pack(digest)));
    if (const auto added = KILN_TRY(try_append(addition))) return *added;
  }
}

Result<bool> RecordWriter::has(const base::FileHandle& file, KnownItems& items, const Digest& id) const {
  const auto known = items.find(id);
  if (known == items.end()) return false;
  if (known->second.is_checked) return true;
  const auto contents = read_contents(file, known->second.item);
  if (!contents && contents.error().code() != ErrorCode::damaged) return unusable(contents.error());
  if (contents)
    known->second.is_checked = true;
  else
    items.erase(known);
  return contents.ok();
}

Result<base::FileHandle> RecordWriter::open() {
  const auto refused = [this](ErrorCode code, std::string_view why) {
    return Error(code, fmt::format("the record {} is not written, because {}", path_.string(), why));
  };
  constexpr int flags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  base::FileHandle file(system_.open(AT_FDCWD, path_.c_str(), flags, 0600), system_);
  if (!file && errno == ELOOP) return refused(ErrorCode::io, "it is a symbolic link");
  struct stat status {};
  if (!file || system_.status(file.get(), &status) != 0) return base::system_error("write", path_);
  if (!S_ISREG(status.st_mode)) return refused(ErrorCode::unsupported, "it is not a regular file");
  if (const auto why = base::why_not_trusted(status, path_)) return refused(ErrorCode::io, *why);
  const std::pair<std::uint64_t, std::uint64_t> inode(status.st_dev, status.st_ino);
  if (inode != inode_) forget();
  inode_ = inode;
  KILN_TRY(catch_up(file));
  return file;
}

Error RecordWriter::unusable(const Error& error) const {
  return Error(error.code(), fmt::format("the record {} cannot be used: {}", path_.string(), error.message()));
}

void RecordWriter::forget() {
  end_ = 0;
  last_header_.clear();
  requests_.clear();
  files_.clear();
}

Result<bool> RecordWriter::is_continued(const base::FileHandle& file) const {
  if (last_header_.empty() || KILN_TRY(size_of(file)) < end_) return false;
  return KILN_TRY(read_at(file, last_place_, item_header_bytes)) == last_header_;
}

Result<std::uint64_t> RecordWriter::catch_up(const base::FileHandle& file) {
  const auto is_same = is_continued(file);
  if (!is_same) return unusable(is_same.error());
  if (!*is_same) forget();
  if (end_ == 0) {
    const auto begin = read_at(file, 0, record_begin_bytes);
    if (!begin) return unusable(begin.error());
    if (is_unfinished_begin(*begin)) return std::uint64_t{0};
    if (const auto why = why_no_record(*begin)) return unusable(Error(ErrorCode::unsupported, std::string(*why)));
    end_ = record_begin_bytes;
  }
  ItemFinder finder(file, end_);
  std::optional<Item> last;
  for (;;) {
    const auto item = finder.next();
    if (!item) return unusable(item.error());
    if (!*item) break;
    last = *item;
    if (last->kind == ItemKind::request) requests_.insert_or_assign(last->id, Known{*last});
    if (last->kind == ItemKind::file) files_.insert_or_assign(last->id, Known{*last});
  }
  if (last) {
    auto header = read_at(file, last->place, item_header_bytes);
    if (!header) return unusable(header.error());
    last_place_ = last->place;
    last_header_ = *std::move(header);
    end_ = finder.end();
  }
  return end_;
}

Result<std::optional<bool>> RecordWriter::try_append(const Addition& addition) {
  const base::MutexLock guard(mutex_);
  const auto file = KILN_TRY(open());
  const auto lock = base::FileLock::acquire(file, 0, patience_);
  if (!lock)
    return Error(ErrorCode::timed_out,
                 fmt::format("the record {} is not written, because it cannot be locked", path_.string()));
  const std::uint64_t end = KILN_TRY(catch_up(file));
  if (KILN_TRY(has(file, requests_, addition.id))) return std::optional(false);
  base::ByteWriter writer;
  if (end == 0) writer.raw(record_begin());
  for (const Digest& digest : addition.needed) {
    if (KILN_TRY(has(file, files_, digest))) continue;
    const auto packed = addition.files.find(digest);
    if (packed == addition.files.end()) return std::optional<bool>{};
    writer.raw(packed->second);
  }
  writer.raw(addition.request);
  if (end + writer.bytes().size() > max_record_file_bytes)
    return Error(ErrorCode::unsupported, fmt::format("the record {} is full: it has {} MiB at most", path_.string(),
                                                     max_record_file_bytes >> 20));
  // Only the owner of the lock writes, so the bytes after the last complete item are those of a write that failed.
  // If this write fails, its complete items stay: another writer may have noted them.
  if (system_.truncate(file.get(), static_cast<off_t>(end)) != 0 || !base::write_all(file, writer.bytes()))
    return base::system_error("write", path_);
  return std::optional(true);
}

}  // namespace kiln::key
