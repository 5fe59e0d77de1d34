#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kiln::fakes {

/// Descriptions and texts of about `bytes` bytes each: valid or nearly valid JSON that is too large or too deeply
/// nested for a reader to accept.
inline std::vector<std::pair<std::string, std::string>> bad_json(std::size_t bytes) {
  const auto repeated = [bytes](const std::string& text) {
    std::string all;
    while (all.size() + text.size() < bytes) all += text;
    return all;
  };
  std::string keys = "{";
  for (std::size_t i = 0; keys.size() < bytes; ++i) keys.append("\"").append(std::to_string(i)).append("\":0,");
  keys.back() = '}';
  const std::size_t depth = bytes / 8;
  std::string objects;
  for (std::size_t i = 0; i < depth; ++i) objects += "{\"a\":";
  return {
      {"nested arrays", std::string(bytes, '[')},
      {"nested arrays, all closed", std::string(depth, '[') + std::string(depth, ']')},
      {"nested objects", objects},
      {"nested objects, all closed", objects + "0" + std::string(depth, '}')},
      {"nested in the right place", "{\"version\":1,\"identity\":" + objects + "0" + std::string(depth + 1, '}')},
      {"many keys", keys},
      {"many empty arrays", "{\"programs\":[" + repeated("[],") + "[]]}"},
      {"a long number", "{\"version\":" + std::string(bytes, '9') + "}"},
      {"a long text", "{\"version\":\"" + std::string(bytes, 'x') + "\"}"},
      {"a long name", "{\"" + std::string(bytes, 'x') + "\":1}"},
      {"spaces", std::string(bytes, ' ')},
      {"zeros", std::string(bytes, '\0')}};
}

/// Texts that are not JSON, or JSON with the wrong structure for Kiln's files.
inline std::vector<std::string> other_json() {
  return {"",
          "{",
          "}",
          "[]",
          "{}",
          "null",
          "1",
          "\"\"",
          "true",
          "{\"a\":}",
          "\xff\xfe{}",
          "\xef\xbb\xbf{}",
          "{}{}",
          "{\"version\":{}}",
          "{\"version\":1e999}",
          "{\"version\":-1}",
          "{\"version\":\"1\"}",
          "{\"version\":1,\"identity\":[]}",
          "{\"version\":1,\"identity\":{\"api\":1}}",
          "{\"version\":1,\"records\":{}}",
          "{\"requests\":-1}",
          "{\"requests\":1e308,\"sessions\":1.5}",
          "{\"requests\":18446744073709551615,\"compile_time_ns\":18446744073709551615}"};
}

}  // namespace kiln::fakes
