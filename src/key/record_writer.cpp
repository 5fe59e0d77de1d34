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
  const base::MutexLock lock(mutex_);
  const Digest id = RecordedRequest::id(request.key().digest, api);
  const auto file = KILN_TRY(open());
  if (requests_.contains(id)) return false;
  RecordedRequest recorded = fields_of(request, api, compile_time);
  auto files = KILN_TRY(files_of(request, recorded));
  return append(file, {id, pack_item(ItemKind::request, id, recorded.to_bytes())}, std::move(files));
}

Result<bool> RecordWriter::add(const RequestRecord& from, const RequestRecord::Entry& entry) {
  const base::MutexLock lock(mutex_);
  const auto file = KILN_TRY(open());
  if (requests_.contains(entry.item.id)) return false;
  const RecordedRequest recorded = KILN_TRY(from.request(entry));
  std::vector<Digest> wanted = {recorded.source};
  for (const auto& [name, digest] : recorded.headers) wanted.push_back(digest);
  for (const RecordedFile& each : recorded.tree.files)
    if (each.kind == RecordedFile::Kind::stored) wanted.push_back(each.digest);
  std::vector<NewItem> files;
  for (const Digest& digest : wanted)
    if (!files_.contains(digest)) files.push_back({digest, KILN_TRY(from.packed_contents(digest))});
  return append(file, {entry.item.id, KILN_TRY(from.packed_request(entry))}, std::move(files));
}

Result<std::vector<RecordWriter::NewItem>> RecordWriter::files_of(const Request& request,
                                                                  RecordedRequest& recorded) const {
  auto captured = capture_tree(request);
  if (!captured) return not_recorded(request, captured.error().message());
  recorded.tree = std::move(captured->tree);
  std::vector<NewItem> files;
  const auto add = [&](const Digest& digest, const std::string& text) KILN_REQUIRES(mutex_) {
    if (!files_.contains(digest))
      files.push_back({digest, pack_item(ItemKind::file, digest, std::as_bytes(std::span(text)))});
  };
  add(recorded.source, request.source());
  for (const auto& [name, text] : request.headers()) add(recorded.headers.at(name), text);
  for (const auto& [digest, path] : captured->paths) {
    if (files_.contains(digest)) continue;
    const auto text = read_text(path);
    if (!text || !*text || base::sha256(**text) != digest)
      return not_recorded(request, fmt::format("{} was changed", path));
    add(digest, **text);
  }
  return files;
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
  if (inode != inode_ || static_cast<std::uint64_t>(status.st_size) < end_) {
    inode_ = inode;
    end_ = 0;
    requests_.clear();
    files_.clear();
  }
  KILN_TRY(catch_up(file));
  return file;
}

Result<std::uint64_t> RecordWriter::catch_up(const base::FileHandle& file) {
  const auto failed = [this](const Error& error) {
    return Error(error.code(), fmt::format("the record {} cannot be used: {}", path_.string(), error.message()));
  };
  if (end_ == 0) {
    const auto begin = read_at(file, 0, record_begin_bytes);
    if (!begin) return failed(begin.error());
    if (is_unfinished_begin(*begin)) return std::uint64_t{0};
    if (const auto why = why_no_record(*begin)) return failed(Error(ErrorCode::unsupported, std::string(*why)));
    end_ = record_begin_bytes;
  }
  ItemFinder finder(file, end_);
  for (;;) {
    const auto item = finder.next();
    if (!item) return failed(item.error());
    if (!*item) break;
    if ((*item)->kind == ItemKind::request) requests_.insert((*item)->id);
    if ((*item)->kind == ItemKind::file) files_.insert((*item)->id);
  }
  end_ = finder.end();
  return end_;
}

Result<bool> RecordWriter::append(const base::FileHandle& file, NewItem request, std::vector<NewItem> files) {
  const auto lock = base::FileLock::acquire(file, 0, patience_);
  if (!lock)
    return Error(ErrorCode::timed_out,
                 fmt::format("the record {} is not written, because it cannot be locked", path_.string()));
  const std::uint64_t end = KILN_TRY(catch_up(file));
  if (requests_.contains(request.id)) return false;
  base::ByteWriter writer;
  if (end == 0) writer.raw(record_begin());
  std::vector<Digest> added;
  for (const NewItem& each : files) {
    if (files_.contains(each.id) || std::ranges::find(added, each.id) != added.end()) continue;
    writer.raw(each.bytes);
    added.push_back(each.id);
  }
  writer.raw(request.bytes);
  if (end + writer.bytes().size() > max_record_file_bytes)
    return Error(ErrorCode::unsupported, fmt::format("the record {} is full: it has {} MiB at most", path_.string(),
                                                     max_record_file_bytes >> 20));
  // Without the lock, nobody else writes: what follows is what a killed writer left.
  const bool is_written =
      ::ftruncate(file.get(), static_cast<off_t>(end)) == 0 && base::write_all(file, writer.bytes());
  if (!is_written) {
    const Error error = base::system_error("write", path_);
    // Readers and writers ignore the rest of an incomplete write, so a failure here only wastes space.
    static_cast<void>(::ftruncate(file.get(), static_cast<off_t>(end)));
    return error;
  }
  end_ = end + writer.bytes().size();
  requests_.insert(request.id);
  files_.insert(added.begin(), added.end());
  return true;
}

}  // namespace kiln::key
