#include "key/recorded_request.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/bytes.hpp"
#include "base/sha256.hpp"

namespace kiln::key {
namespace {

constexpr std::size_t least_text = sizeof(std::uint64_t);
/// In place of the index of a toolkit's folder.
constexpr std::uint32_t no_toolkit = ~std::uint32_t{0};
constexpr std::size_t max_text = 4096;

/// Writes lists, optional values and maps in the forms of docs/format.md.
class Encoder {
 public:
  template <class List, class Write>
  void list(const List& items, Write write) {
    writer.number(static_cast<std::uint64_t>(items.size()));
    for (const auto& item : items) write(item);
  }
  void texts(const std::vector<std::string>& texts) {
    list(texts, [this](const std::string& text) { writer.text(text); });
  }
  void place(const std::optional<std::uint32_t>& toolkit, std::string_view path) {
    writer.number(toolkit.value_or(no_toolkit));
    writer.text(path);
  }

  base::ByteWriter writer;
};

class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : reader(bytes) {}

  template <class Read>
  void list(std::size_t least, Read read) {
    const std::size_t count = reader.count(least);
    for (std::size_t i = 0; i < count && !reader.failed(); ++i) read();
  }
  std::vector<std::string> texts() {
    std::vector<std::string> texts;
    list(least_text, [&] { texts.push_back(reader.text()); });
    return texts;
  }
  std::optional<std::uint32_t> toolkit() {
    const auto index = reader.number<std::uint32_t>();
    return index == no_toolkit ? std::nullopt : std::optional(index);
  }
  Constant constant() {
    switch (reader.number<std::uint8_t>()) {
      case 0: return reader.number<std::uint8_t>() != 0;
      case 1: return reader.number<std::int32_t>();
      case 2: return reader.number<std::uint32_t>();
      case 3: return reader.number<float>();
      case 4: return reader.number<double>();
      case 5: return reader.number<std::int64_t>();
      case 6: return reader.number<std::uint64_t>();
      default: is_valid = false; return false;
    }
  }

  base::CheckedReader reader;
  bool is_valid = true;
};

void write(Encoder& to, const FileTree& tree) {
  to.texts(tree.folders);
  to.list(tree.files, [&](const RecordedFile& file) {
    to.writer.text(file.path);
    to.writer.number(static_cast<std::uint8_t>(file.kind));
    to.writer.number(file.same_file);
    to.writer.raw(file.digest.bytes);
  });
  to.list(tree.links, [&](const auto& link) {
    to.writer.text(link.first);
    to.writer.text(link.second);
  });
  to.list(tree.outside, [&](const OutsideFile& file) {
    to.place(file.toolkit, file.path);
    to.writer.raw(file.digest.bytes);
  });
  to.list(tree.include_folders, [&](const RecordedFolder& folder) { to.place(folder.toolkit, folder.path); });
  to.writer.number(static_cast<std::uint8_t>(tree.working_folder.has_value()));
  if (tree.working_folder) to.writer.text(*tree.working_folder);
}

FileTree read_tree(Decoder& from) {
  constexpr std::size_t digest_bytes = sizeof(Digest::bytes);
  FileTree tree;
  auto& reader = from.reader;
  tree.folders = from.texts();
  from.list(least_text + digest_bytes, [&] {
    RecordedFile file{.path = reader.text()};
    const auto kind = reader.number<std::uint8_t>();
    from.is_valid = from.is_valid && kind <= static_cast<std::uint8_t>(RecordedFile::Kind::last);
    file.kind = static_cast<RecordedFile::Kind>(kind);
    file.same_file = reader.number<std::uint64_t>();
    file.digest = reader.digest();
    tree.files.push_back(std::move(file));
  });
  from.list(2 * least_text, [&] {
    std::string path = reader.text();
    tree.links.insert_or_assign(std::move(path), reader.text());
  });
  from.list(least_text + digest_bytes, [&] {
    OutsideFile file{.toolkit = from.toolkit()};
    file.path = reader.text();
    file.digest = reader.digest();
    tree.outside.push_back(std::move(file));
  });
  from.list(least_text, [&] {
    RecordedFolder folder{.toolkit = from.toolkit()};
    folder.path = reader.text();
    tree.include_folders.push_back(std::move(folder));
  });
  if (reader.number<std::uint8_t>() != 0) tree.working_folder = reader.text();
  return tree;
}

}  // namespace

Digest RecordedRequest::id(const Digest& key, std::string_view api) {
  base::ByteWriter writer;
  writer.text("kiln recorded request");
  writer.raw(key.bytes);
  writer.text(api);
  return base::sha256(writer.bytes());
}

std::size_t RecordedRequest::header_count() const noexcept {
  const auto stored = std::ranges::count(tree.files, RecordedFile::Kind::stored, &RecordedFile::kind);
  return headers.size() + tree.outside.size() + static_cast<std::size_t>(stored);
}

std::vector<std::byte> RecordedRequest::to_bytes() const {
  Encoder to;
  to.writer.raw(key.digest.bytes);
  to.writer.text(key.name);
  to.writer.text(api);
  to.writer.number(static_cast<std::int64_t>(compile_time.count()));
  to.writer.text(to_string(language));
  to.writer.raw(source.bytes);
  to.writer.number(source_bytes);
  to.texts(entries);
  to.texts(options);
  to.list(defines, [&](const auto& define) {
    to.writer.text(define.first);
    to.writer.text(define.second);
  });
  to.list(constants, [&](const auto& constant) {
    to.writer.number(constant.first);
    to.writer.number(static_cast<std::uint8_t>(constant.second.index()));
    std::visit([&](auto value) { to.writer.number(value); }, constant.second);
  });
  to.list(headers, [&](const auto& header) {
    to.writer.text(header.first);
    to.writer.raw(header.second.bytes);
  });
  write(to, tree);
  return std::move(to.writer).bytes();
}

Result<RecordedRequest> RecordedRequest::from_bytes(std::span<const std::byte> bytes) {
  constexpr std::chrono::nanoseconds longest = std::chrono::hours(24);
  Decoder from(bytes);
  auto& reader = from.reader;
  RecordedRequest request;
  request.key.digest = reader.digest();
  request.key.name = reader.text();
  request.api = reader.text();
  request.compile_time = std::chrono::nanoseconds(reader.number<std::int64_t>());
  const auto language = language_of(reader.text());
  request.source = reader.digest();
  request.source_bytes = reader.number<std::uint64_t>();
  request.entries = from.texts();
  request.options = from.texts();
  from.list(2 * least_text, [&] {
    std::string name = reader.text();
    request.defines.insert_or_assign(std::move(name), reader.text());
  });
  from.list(sizeof(std::uint32_t), [&] {
    const auto number = reader.number<std::uint32_t>();
    request.constants.insert_or_assign(number, from.constant());
  });
  from.list(least_text, [&] {
    std::string name = reader.text();
    request.headers.insert_or_assign(std::move(name), reader.digest());
  });
  request.tree = read_tree(from);
  const bool is_valid = from.is_valid && reader.is_at_end() && language && request.key.name.size() <= max_text &&
                        request.api.size() <= max_text && request.compile_time >= request.compile_time.zero() &&
                        request.compile_time <= longest;
  if (!is_valid) return Error(ErrorCode::damaged, "it has a damaged request");
  request.language = *language;
  return request;
}

}  // namespace kiln::key
