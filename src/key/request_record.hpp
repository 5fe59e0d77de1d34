#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/request.hpp>
#include <kiln/result.hpp>

#include "base/file.hpp"
#include "key/record_items.hpp"
#include "key/recorded_request.hpp"

namespace kiln::key {

/// A record file (docs/records.md), opened for reading. Other processes may append to it meanwhile. Const functions
/// may be called from any thread.
class RequestRecord {
 public:
  struct Entry {
    Key key = {};
    std::string api = {};
    Language language = Language::glsl;
    std::chrono::nanoseconds compile_time = {};
    std::uint64_t source_bytes = 0;
    std::size_t headers = 0;
    Item item = {};
  };

  /// Reads the requests of a record, but not the contents of files, so it costs little even for a large record.
  /// Skips damaged items, and what a writer has not completed. Fails with io if the file cannot be read, and with
  /// unsupported if it is no record, or one of another version.
  static Result<RequestRecord> read(const std::filesystem::path& path);

  /// Reads a record that is a part of an open file, as in a bundle. `path` is that of the file, for path() and for
  /// messages.
  static Result<RequestRecord> read_part(base::FileHandle file, std::filesystem::path path, std::uint64_t offset,
                                         std::uint64_t size);

  const std::filesystem::path& path() const noexcept { return path_; }
  /// In the order in which they were recorded; each pair of key and API once.
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  /// How many damaged places were skipped.
  std::size_t damaged() const noexcept { return damaged_; }

  /// The following functions fail with damaged if the record lacks what they need, and with io.
  Result<RecordedRequest> request(const Entry& entry) const;
  /// The contents of a source, a header or another file.
  Result<std::vector<std::byte>> contents(const Digest& digest) const;
  /// The item of these contents as it is in the file, for another record.
  Result<std::vector<std::byte>> packed_contents(const Digest& digest) const;
  Result<std::vector<std::byte>> packed_request(const Entry& entry) const;

  struct Unpacked {
    /// They have the key of the record if they are made a Request in a process with this working folder.
    Request::Fields fields = {};
    /// Nothing if no file was found through the working folder. Then every working folder is right that has no
    /// file with an included name.
    std::optional<std::filesystem::path> working_folder = {};
  };
  /// Unpacks the files of a request below `folder`, an absolute path, which is created and must be empty.
  Result<Unpacked> unpack(const Entry& entry, const std::filesystem::path& folder) const;

  struct Rebuilt {
    Request request;
    /// Why its key is not the recorded one; empty if it is.
    std::string difference = {};
  };
  /// Unpacks the files as unpack() does, and makes the request.
  Result<Rebuilt> rebuild(const Entry& entry, const std::filesystem::path& folder) const;

 private:
  RequestRecord(std::filesystem::path path, base::FileHandle file)
      : path_(std::move(path)), file_(std::move(file)) {}

  Result<void> find_items();
  RecordPlace place() const { return part_ ? RecordPlace(file_, part_->offset, part_->size) : RecordPlace(file_); }
  using ReadItem = Result<std::vector<std::byte>> (*)(const RecordPlace&, const Item&);
  /// Reads the first undamaged item of these contents.
  Result<std::vector<std::byte>> read_file_item(const Digest& digest, ReadItem read_item) const;
  /// Adds the path of the record to the message.
  Error with_path(const Error& error) const;

  std::filesystem::path path_;
  base::FileHandle file_;
  struct Part {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };
  /// Nothing if the record is the whole file.
  std::optional<Part> part_;
  std::vector<Entry> entries_;
  /// A file has several items if a writer found one damaged.
  std::multimap<Digest, Item> files_;
  std::size_t damaged_ = 0;
};

}  // namespace kiln::key
