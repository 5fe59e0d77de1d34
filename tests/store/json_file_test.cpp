#include "store/json_file.hpp"

#include <chrono>

#include <gtest/gtest.h>

namespace kiln::store {
namespace {

/// An object of so many members.
std::string members(int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  return text + "}";
}

std::string nested(int depth) {
  std::string text = "{\"a\":";
  for (int i = 1; i < depth; ++i) text += "[";
  text += "1";
  for (int i = 1; i < depth; ++i) text += "]";
  return text + "}";
}

std::string many(int count, const std::string& one) {
  std::string text = "{\"all\":[";
  for (int i = 0; i < count; ++i) text += (i > 0 ? "," : "") + one;
  return text + "]}";
}

TEST(Json, IsAnObjectOrNothing) {
  for (const char* text : {"", "1", "[]", "null", "\"a\"", "{", "{}}", "{} {}", "{\"a\"}", "{\"a\":1e999}", "\xff"})
    EXPECT_FALSE(parse_json(text)) << text;
  EXPECT_EQ(parse_json(" {\"b\": [1, -2, 0.5, true, null], \"a\": {}} ")->dump(),
            R"({"b":[1,-2,0.5,true,null],"a":{}})");
}

TEST(Json, IsBoundedInDepthAndInMembers) {
  EXPECT_TRUE(parse_json(nested(16)));
  EXPECT_FALSE(parse_json(nested(17)));
  EXPECT_FALSE(parse_json(nested(1'000'000)));
  EXPECT_TRUE(parse_json(members(2048)));
  EXPECT_FALSE(parse_json(members(2049)));
  EXPECT_FALSE(parse_json("{\"a\":" + members(2049) + "}"));
  EXPECT_TRUE(parse_json(many(10, members(2048))));
}

TEST(Json, TakesTimeInProportionToItsText) {
  // Well below a second; where every element is compared with all before it, a minute and more.
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(parse_json(many(200'000, "{}")));
  EXPECT_TRUE(parse_json(many(200'000, "[]")));
  EXPECT_FALSE(parse_json(members(200'000)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace kiln::store
