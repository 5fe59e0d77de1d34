#include "store/remote/resp.hpp"

#include <algorithm>

#include "fuzz/input.hpp"

namespace kiln::fuzz {
namespace {

constexpr std::uint64_t most_bulk_bytes = 1000;

struct Outcome {
  std::size_t used = 0;
  bool is_valid = true;
  bool is_complete = false;
  store::RespAnswer answer = {};

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// Hands the bytes to a parser in parts of at most `part` bytes.
Outcome parse(std::span<const std::byte> bytes, std::size_t part) {
  store::RespParser parser(most_bulk_bytes);
  Outcome outcome;
  while (!bytes.empty() && !parser.is_complete()) {
    const auto now = bytes.first(std::min(part, bytes.size()));
    bytes = bytes.subspan(now.size());
    const auto used = parser.consume(now);
    // How far the parser came is not part of its contract if it fails.
    if (!used) return {.is_valid = false};
    expect(*used == now.size() || (*used < now.size() && parser.is_complete()),
           "only a complete answer leaves bytes");
    outcome.used += *used;
  }
  outcome.is_complete = parser.is_complete();
  if (outcome.is_complete) outcome.answer = std::move(parser).take();
  return outcome;
}

/// The bytes of all bulk strings; checks each array.
std::size_t bulk_bytes_in(const store::RespAnswer& answer, std::size_t depth) {
  expect(depth <= store::RespParser::max_depth, "arrays are not deeper than allowed");
  expect(answer.items.size() <= store::RespParser::max_items, "arrays are not longer than allowed");
  expect(answer.items.empty() || answer.kind == store::RespAnswer::Kind::array, "only arrays have items");
  expect(answer.text.size() <= store::RespParser::max_line_bytes, "a text is not longer than a line");
  expect(answer.text.find_first_of("\r\n") == std::string::npos, "a text is one line");
  std::size_t bytes = answer.bulk.size();
  for (const auto& item : answer.items) bytes += bulk_bytes_in(item, depth + 1);
  return bytes;
}

}  // namespace
}  // namespace kiln::fuzz

// The first byte is the size of the parts in which the rest arrives.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  fuzz::Input input(data, size);
  const std::size_t part = std::size_t{1} + input.number<std::uint8_t>();
  const auto bytes = input.rest_bytes();
  const fuzz::Outcome whole = fuzz::parse(bytes, std::max<std::size_t>(bytes.size(), 1));
  fuzz::expect(whole == fuzz::parse(bytes, part), "parts make no difference");
  fuzz::expect(fuzz::bulk_bytes_in(whole.answer, 0) <= fuzz::most_bulk_bytes, "values are not longer than allowed");

  // A command has the form of an answer.
  const std::string word(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), std::size_t{1000}));
  const std::string command = store::encode_resp_command({word});
  const fuzz::Outcome again = fuzz::parse(std::as_bytes(std::span(command)), part);
  fuzz::expect(again.is_complete && again.used == command.size() && again.answer.items.size() == 1 &&
                   std::ranges::equal(again.answer.items[0].bulk, std::as_bytes(std::span(word))),
               "a word of a command is read as it was written");
  return 0;
}
