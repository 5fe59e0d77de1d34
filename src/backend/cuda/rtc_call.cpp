#include "backend/cuda/rtc_call.hpp"

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kiln::cuda {
namespace {

/// Writes values one after the other: numbers as they are in memory, texts and lists with their size first. Both
/// processes run on one machine.
class Writer {
 public:
  void add(std::uint64_t number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void add(const std::string& text) {
    add(text.size());
    bytes_ += text;
  }
  void add(const std::vector<std::byte>& data) {
    add(data.size());
    bytes_.append(reinterpret_cast<const char*>(data.data()), data.size());
  }
  template <class T>
  void add(const std::vector<T>& list) {
    add(list.size());
    for (const T& each : list) add(each);
  }
  void add(const std::optional<std::string>& text) {
    add(std::uint64_t{text.has_value()});
    add(text.value_or(""));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads what Writer wrote. After an error, all values are empty.
class Reader {
 public:
  explicit Reader(const std::string& bytes) : left_(bytes) {}

  std::uint64_t number() {
    std::uint64_t number = 0;
    const std::string_view bytes = take(sizeof number);
    if (!failed_) std::memcpy(&number, bytes.data(), sizeof number);
    return number;
  }
  std::string text() { return std::string(take(number())); }
  std::vector<std::byte> data() {
    const std::string_view bytes = take(number());
    const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
    return {begin, begin + bytes.size()};
  }
  std::vector<std::string> texts() {
    std::vector<std::string> list;
    for (std::uint64_t left = number(); left > 0 && !failed_; --left) list.push_back(text());
    return list;
  }
  std::vector<std::optional<std::string>> optional_texts() {
    std::vector<std::optional<std::string>> list;
    for (std::uint64_t left = number(); left > 0 && !failed_; --left) {
      const bool is_there = number() != 0;
      std::string each = text();
      list.push_back(is_there ? std::optional(std::move(each)) : std::nullopt);
    }
    return list;
  }
  bool is_at_end() const { return !failed_ && left_.empty(); }

 private:
  std::string_view take(std::uint64_t size) {
    if (failed_ || size > left_.size()) {
      failed_ = true;
      return {};
    }
    const std::string_view bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return bytes;
  }

  std::string_view left_;
  bool failed_ = false;
};

}  // namespace

std::string RtcCall::to_bytes() const {
  Writer writer;
  writer.add(compiler);
  writer.add(folder);
  writer.add(name);
  writer.add(source);
  writer.add(options);
  writer.add(entries);
  writer.add(std::uint64_t{text});
  return writer.take();
}

std::optional<RtcCall> RtcCall::from_bytes(const std::string& bytes) {
  Reader reader(bytes);
  RtcCall call;
  call.compiler = reader.text();
  call.folder = reader.text();
  call.name = reader.text();
  call.source = reader.text();
  call.options = reader.texts();
  call.entries = reader.texts();
  call.text = reader.number() != 0;
  return reader.is_at_end() ? std::optional(std::move(call)) : std::nullopt;
}

std::string RtcReply::to_bytes() const {
  Writer writer;
  writer.add(static_cast<std::uint64_t>(result));
  writer.add(log);
  writer.add(image);
  writer.add(symbols);
  return writer.take();
}

std::optional<RtcReply> RtcReply::from_bytes(const std::string& bytes) {
  Reader reader(bytes);
  RtcReply reply;
  reply.result = static_cast<int>(reader.number());
  reply.log = reader.text();
  reply.image = reader.data();
  reply.symbols = reader.optional_texts();
  return reader.is_at_end() ? std::optional(std::move(reply)) : std::nullopt;
}

}  // namespace kiln::cuda
