#include "key/include_record.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <sys/stat.h>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/mutex.hpp"
#include "base/sha256.hpp"

namespace kiln::key {
namespace {

using std::chrono::system_clock;

constexpr std::string_view record_version = "kiln includes 3";
constexpr std::uint64_t max_record_bytes = std::uint64_t{64} << 20;
// Reading fewer files again is as fast as checking a record on disk.
constexpr std::size_t large_record_files = 32;
constexpr std::uint64_t large_record_bytes = 256 << 10;
// In memory: the files of all records together. On disk: records.
constexpr std::size_t max_files_in_memory = 200'000;
constexpr std::size_t max_records_on_disk = 1000;

std::optional<FileSignature> signature_at(const std::string& path, mode_t type) {
  struct stat status {};
  if (::stat(path.empty() ? "/" : path.c_str(), &status) != 0 || (status.st_mode & S_IFMT) != type)
    return std::nullopt;
  return FileSignature::of(status);
}

bool is_file(const std::string& path) { return signature_at(path, S_IFREG).has_value(); }

FileSignature read_signature(base::CheckedReader& reader) {
  FileSignature signature;
  signature.device = reader.number<std::uint64_t>();
  signature.inode = reader.number<std::uint64_t>();
  signature.bytes = reader.number<std::uint64_t>();
  signature.modified = reader.number<std::int64_t>();
  signature.status_changed = reader.number<std::int64_t>();
  return signature;
}

std::optional<base::Folder> open_folder(bool create) {
  const auto directory = base::default_directory();
  if (directory.empty()) return std::nullopt;
  auto folder = base::Folder::open(directory / "includes", create);
  return folder ? std::optional(std::move(*folder)) : std::nullopt;
}

/// Removes the least recently used records if there are too many, and what dead writers left.
void prune(const base::Folder& folder) {
  auto names = folder.names();
  if (!names || names->size() <= max_records_on_disk) return;
  std::vector<std::pair<std::int64_t, std::string>> by_age;
  for (std::string& name : *names) {
    const bool is_left_over = base::Folder::is_temporary(name) && folder.is_abandoned(name);
    if (!is_left_over && !base::digest_from_hex(name)) continue;
    if (const auto status = folder.status(name)) by_age.emplace_back(status->st_mtime, std::move(name));
  }
  std::ranges::sort(by_age);
  by_age.resize(by_age.size() - std::min(by_age.size(), 3 * max_records_on_disk / 4));
  for (const auto& [age, name] : by_age)
    static_cast<void>(base::Folder::is_temporary(name) ? folder.remove_abandoned(name) : folder.remove(name));
}

}  // namespace

IncludeRecord::IncludeRecord(Dependencies dependencies, const Observations& observations)
    : dependencies_(std::move(dependencies)), present_(observations.present) {
  for (const auto& [path, signature, digest] : observations.files)
    files_.push_back({path, signature, digest, signature.was_settled(observations.time)});
  std::map<std::string, Folder> folders;
  std::map<std::string, std::optional<FileSignature>> signatures;
  for (const std::string& path : observations.absent) {
    // The deepest folder that exists is the one that changes if the file is added.
    std::string folder = path;
    std::optional<FileSignature> signature;
    while (!signature && !folder.empty()) {
      const std::size_t slash = folder.rfind('/');
      folder.resize(slash == std::string::npos ? 0 : slash);
      const auto [known, is_new] = signatures.try_emplace(folder);
      if (is_new) known->second = signature_at(folder, S_IFDIR);
      signature = known->second;
    }
    const std::string name = path.substr(folder.size() + 1);
    // A symbolic link may begin to lead to a file without a change of its folder.
    struct stat status {};
    if (!signature || ::lstat((folder + '/' + name.substr(0, name.find('/'))).c_str(), &status) == 0) {
      absent_.push_back(path);
      continue;
    }
    auto& entry = folders.try_emplace(folder, Folder{folder, *signature}).first->second;
    entry.settled = signature->was_settled(observations.time);
    entry.absent.push_back(name);
  }
  for (auto& [path, folder] : folders) folders_.push_back(std::move(folder));
}

bool IncludeRecord::is_large() const noexcept {
  std::uint64_t bytes = 0;
  for (const File& file : files_) bytes += file.signature.bytes;
  return files_.size() >= large_record_files || bytes >= large_record_bytes;
}

bool IncludeRecord::is_current() const {
  return std::ranges::all_of(
             files_,
             [](const File& file) { return file.settled && signature_at(file.path, S_IFREG) == file.signature; }) &&
         std::ranges::all_of(folders_,
                             [](const Folder& folder) {
                               return folder.settled && signature_at(folder.path, S_IFDIR) == folder.signature;
                             }) &&
         std::ranges::all_of(present_, is_file) && std::ranges::none_of(absent_, is_file);
}

IncludeRecord::Refreshed IncludeRecord::refresh() {
  const auto files_before = files_;
  const auto folders_before = folders_;
  const auto now = system_clock::now();
  const auto check_file = [now](File& file) {
    const auto signature = signature_at(file.path, S_IFREG);
    // Another file may be the same file as a third one, and be included once for both names.
    if (!signature || !signature->is_same_file(file.signature)) return false;
    if (file.settled && *signature == file.signature) return true;
    const auto read = FileIndex::of_process().read(file.path, now);
    if (!read || !*read || !(*read)->file || (*read)->file->digest != file.digest) return false;
    if (!(*read)->signature.is_same_file(file.signature)) return false;
    file.signature = (*read)->signature;
    file.settled = file.signature.was_settled(now);
    return true;
  };
  const auto check_folder = [now](Folder& folder) {
    const auto signature = signature_at(folder.path, S_IFDIR);
    if (folder.settled && signature == folder.signature) return true;
    if (!signature || !signature->is_same_file(folder.signature)) return false;
    // If the first part of a name exists now, further files may be added without a change of this folder.
    struct stat status {};
    for (const std::string& name : folder.absent)
      if (::lstat((folder.path + '/' + name.substr(0, name.find('/'))).c_str(), &status) == 0) return false;
    folder.signature = *signature;
    folder.settled = signature->was_settled(now);
    return true;
  };
  const bool is_valid = std::ranges::all_of(files_, check_file) && std::ranges::all_of(folders_, check_folder) &&
                        std::ranges::all_of(present_, is_file) && std::ranges::none_of(absent_, is_file);
  if (!is_valid) return Refreshed::stale;
  return files_ == files_before && folders_ == folders_before ? Refreshed::unchanged : Refreshed::updated;
}

std::vector<std::byte> IncludeRecord::to_bytes() const {
  base::ByteWriter writer;
  const auto write_texts = [&writer](const std::vector<std::string>& texts) {
    writer.number(static_cast<std::uint64_t>(texts.size()));
    for (const std::string& text : texts) writer.text(text);
  };
  writer.text(record_version);
  writer.raw(dependencies_.digest.bytes);
  writer.number(static_cast<std::uint8_t>(dependencies_.without_toolkit.has_value()));
  if (dependencies_.without_toolkit) writer.raw(dependencies_.without_toolkit->bytes);
  writer.number(static_cast<std::uint64_t>(dependencies_.files.size()));
  for (const auto& [name, digest] : dependencies_.files) {
    writer.text(name);
    writer.raw(digest.bytes);
  }
  write_texts(dependencies_.missing);
  writer.number(static_cast<std::uint64_t>(files_.size()));
  for (const File& file : files_) {
    writer.text(file.path);
    write(writer, file.signature);
    writer.raw(file.digest.bytes);
    writer.number(static_cast<std::uint8_t>(file.settled));
  }
  writer.number(static_cast<std::uint64_t>(folders_.size()));
  for (const Folder& folder : folders_) {
    writer.text(folder.path);
    write(writer, folder.signature);
    writer.number(static_cast<std::uint8_t>(folder.settled));
    write_texts(folder.absent);
  }
  write_texts(present_);
  write_texts(absent_);
  const Digest digest = base::sha256(writer.bytes());
  writer.raw(digest.bytes);
  return std::move(writer).bytes();
}

std::optional<IncludeRecord> IncludeRecord::from_bytes(std::span<const std::byte> bytes) {
  constexpr std::size_t digest_bytes = sizeof(Digest::bytes);
  if (bytes.size() < digest_bytes) return std::nullopt;
  const auto body = bytes.first(bytes.size() - digest_bytes);
  if (!std::ranges::equal(base::sha256(body).bytes, bytes.last(digest_bytes))) return std::nullopt;
  base::CheckedReader reader(body);
  if (reader.text() != record_version) return std::nullopt;
  const auto read_texts = [&reader] {
    std::vector<std::string> texts(reader.count(sizeof(std::uint64_t)));
    for (std::string& text : texts) text = reader.text();
    return texts;
  };
  IncludeRecord record;
  record.dependencies_.digest = reader.digest();
  if (reader.number<std::uint8_t>() != 0) record.dependencies_.without_toolkit = reader.digest();
  record.dependencies_.files.resize(reader.count(digest_bytes));
  for (auto& [name, digest] : record.dependencies_.files) {
    name = reader.text();
    digest = reader.digest();
  }
  record.dependencies_.missing = read_texts();
  record.files_.resize(reader.count(digest_bytes));
  for (File& file : record.files_) {
    file.path = reader.text();
    file.signature = read_signature(reader);
    file.digest = reader.digest();
    file.settled = reader.number<std::uint8_t>() != 0;
  }
  record.folders_.resize(reader.count(sizeof(std::uint64_t)));
  for (Folder& folder : record.folders_) {
    folder.path = reader.text();
    folder.signature = read_signature(reader);
    folder.settled = reader.number<std::uint8_t>() != 0;
    folder.absent = read_texts();
  }
  record.present_ = read_texts();
  record.absent_ = read_texts();
  if (!reader.is_at_end()) return std::nullopt;
  return record;
}

IncludeRecords& IncludeRecords::of_process() {
  return base::once_per_process<IncludeRecords>([] { return std::make_unique<IncludeRecords>(); });
}

std::shared_ptr<const Dependencies> IncludeRecords::find(const Digest& search_digest) {
  auto record = find_in_memory(search_digest);
  const bool was_in_memory = record != nullptr;
  if (!record) {
    const auto folder = open_folder(false);
    const auto stored = folder ? folder->read(search_digest.hex(), max_record_bytes)
                               : Result<std::optional<base::FileContents>>(std::nullopt);
    if (!stored || !*stored) return nullptr;
    auto parsed = IncludeRecord::from_bytes((*stored)->bytes);
    if (!parsed) return nullptr;
    record = std::make_shared<const IncludeRecord>(std::move(*parsed));
    constexpr std::int64_t day = 24 * 60 * 60;
    if (system_clock::to_time_t(system_clock::now()) - (*stored)->changed > day)
      static_cast<void>(folder->touch(search_digest.hex()));
  }
  if (!record->is_current()) {
    IncludeRecord copy = *record;
    const auto refreshed = copy.refresh();
    if (refreshed == IncludeRecord::Refreshed::stale) return nullptr;
    if (refreshed == IncludeRecord::Refreshed::updated) {
      record = std::make_shared<const IncludeRecord>(std::move(copy));
      keep_on_disk(search_digest, *record);
      keep_in_memory(search_digest, record);
      return {record, &record->dependencies()};
    }
  }
  if (!was_in_memory) keep_in_memory(search_digest, record);
  return {record, &record->dependencies()};
}

void IncludeRecords::add(const Digest& search_digest, IncludeRecord record) {
  keep_on_disk(search_digest, record);
  keep_in_memory(search_digest, std::make_shared<const IncludeRecord>(std::move(record)));
}

void IncludeRecords::keep_on_disk(const Digest& search_digest, const IncludeRecord& record) {
  if (!record.is_large()) return;
  const auto folder = open_folder(true);
  if (!folder || !folder->replace(search_digest.hex(), record.to_bytes())) return;
  // Often enough, since each process adds few records.
  if (search_digest.word(0) % 16 == 0) prune(*folder);
}

std::shared_ptr<const IncludeRecord> IncludeRecords::find_in_memory(const Digest& search_digest) {
  const base::MutexLock lock(mutex_);
  const auto found = records_.find(search_digest);
  return found != records_.end() ? found->second : nullptr;
}

void IncludeRecords::keep_in_memory(const Digest& search_digest, std::shared_ptr<const IncludeRecord> record) {
  const base::MutexLock lock(mutex_);
  if (files_ > max_files_in_memory) {
    records_.clear();
    files_ = 0;
  }
  auto& kept = records_[search_digest];
  if (kept) files_ -= kept->file_count() + 1;
  files_ += record->file_count() + 1;
  kept = std::move(record);
}

}  // namespace kiln::key
