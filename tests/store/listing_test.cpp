#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fakes/files.hpp"
#include "fakes/servers.hpp"
#include "store/remote/http_store.hpp"
#include "store/remote/multistatus.hpp"
#include "store/remote/redis_store.hpp"
#include "store/remote/resp.hpp"

// The listings of servers.
namespace kiln::store {
namespace {

using Names = std::vector<std::string>;

CallLimit in_a_minute() { return {.deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1)}; }

Names sorted(Result<Names> names) {
  if (!names) return {std::string(to_string(names.error().code()))};
  std::ranges::sort(*names);
  return *names;
}

const std::string listed_identity(64, '1');
const std::string listed_key = "ab" + std::string(62, '0');

void put_samples(ObjectStore& store) {
  for (const std::string& path :
       {"3/" + listed_identity + "/identity.json", "3/" + listed_identity + "/ab/" + listed_key,
        "3/" + listed_identity + "/cd/cd" + std::string(62, '0'), std::string("4/other.json")})
    store.put(path, fakes::bytes_of("x"), in_a_minute()).value();
}

void expect_listings(ObjectStore& store) {
  const std::string folder = "3/" + listed_identity;
  EXPECT_EQ(sorted(store.list("3", in_a_minute())), Names{listed_identity});
  EXPECT_EQ(sorted(store.list(folder, in_a_minute())), (Names{"ab", "cd", "identity.json"}));
  EXPECT_EQ(sorted(store.list(folder + "/ab", in_a_minute())), Names{listed_key});
  EXPECT_EQ(sorted(store.list(folder + "/absent", in_a_minute())), Names{});
  EXPECT_EQ(
      sorted(store.list_all("3", in_a_minute())),
      (Names{folder + "/ab/" + listed_key, folder + "/cd/cd" + std::string(62, '0'), folder + "/identity.json"}));
}

std::unique_ptr<ObjectStore> http_at(const std::string& url) {
  return make_http_store(parse_store_url(url).value()).value();
}

TEST(Listing, OfRedisFindsTheObjectsOfTheFolder) {
  if (!fakes::is_installed("redis-server")) GTEST_SKIP() << "redis-server is not installed";
  const fakes::RedisServer server;
  // The prefix has characters that patterns give a meaning.
  const auto odd = make_redis_store(parse_store_url(server.url("prefix=k[a-z]*?^%5C")).value()).value();
  const auto plain = make_redis_store(parse_store_url(server.url()).value()).value();
  put_samples(*plain);
  EXPECT_EQ(sorted(odd->list_all("3", in_a_minute())), Names{});
  put_samples(*odd);
  expect_listings(*odd);
  expect_listings(*plain);
}

TEST(Listing, OfRedisTakesSeveralSteps) {
  if (!fakes::is_installed("redis-server")) GTEST_SKIP() << "redis-server is not installed";
  const fakes::RedisServer server;
  const auto store = make_redis_store(parse_store_url(server.url()).value()).value();
  constexpr std::size_t objects = 25'000;
  for (std::size_t i = 0; i < objects; ++i) store->put(fmt::format("3/{}", i), {}, in_a_minute()).value();
  EXPECT_EQ(store->list("3", in_a_minute())->size(), objects);
}

TEST(Listing, OfNginxNeedsItsModule) {
  if (!fakes::is_installed("nginx")) GTEST_SKIP() << "nginx is not installed";
  const fakes::NginxServer without;
  put_samples(*http_at(without.url()));
  EXPECT_EQ(sorted(http_at(without.url())->list("3", in_a_minute())), Names{"unsupported"});
  EXPECT_EQ(sorted(http_at(without.url("layout=bazel"))->list("3", in_a_minute())), Names{"unsupported"});
  if (!fakes::is_dav_ext_installed()) GTEST_SKIP() << "nginx's module dav_ext is not installed";
  const fakes::NginxServer server({.lists = true, .user = "u", .password = "open-sesame"});
  put_samples(*http_at(server.url()));
  expect_listings(*http_at(server.url()));
}

Names names_of(const std::string& paths, const std::string& folder = "/cache/3/") {
  const auto names = names_in_multistatus("<m:multistatus xmlns:m='DAV:'>" + paths + "</m:multistatus>", folder);
  return names ? *names : Names{"error: " + names.error().message()};
}
std::string response(const std::string& path) {
  return "<m:response><m:href>" + path +
         "</m:href><m:propstat><m:href>/cache/3/no</m:href></m:propstat></m:response>";
}

TEST(Multistatus, NamesWhatLiesDirectlyInTheFolder) {
  EXPECT_EQ(
      names_of(response("/cache/3/") + response("/cache/3/ab/") + response("http://host:1/cache/3/c%64&amp;") +
               response("/cache/3/ab/deeper") + response("/other/x") + response("\n/cache/%33/e ")),
      (Names{"ab", "cd&", "e"}));
  EXPECT_EQ(names_of(response("/cache/3"), "/c%61che/3/"), Names{});
}

TEST(Multistatus, RefusesWhatItDoesNotUnderstand) {
  for (const std::string& paths :
       {std::string(), response("/elsewhere/3/"), response("/cache/3/%4"), response("/cache/3/%00"),
        response("/cache/3/&unknown;"), response("/cache/3/<x/>"), std::string("<a><b></a></b>"), std::string("<a"),
        std::string("<![CDATA[x]]>"), std::string("</m:multistatus><again>")})
    EXPECT_TRUE(names_of(paths).at(0).starts_with("error")) << paths;
  EXPECT_FALSE(names_in_multistatus("<!DOCTYPE x [<!ENTITY a 'b'>]><multistatus/>", "/"));
  EXPECT_FALSE(names_in_multistatus("<html></html>", "/"));
  EXPECT_FALSE(names_in_multistatus("", "/"));
}

TEST(Resp, ReadsArraysInArrays) {
  const std::string text = "*2\r\n$2\r\n17\r\n*3\r\n$3\r\nfoo\r\n:5\r\n*0\r\n";
  RespParser parser;
  EXPECT_EQ(parser.consume(fakes::bytes_of(text)).value(), text.size());
  ASSERT_TRUE(parser.is_complete());
  const auto answer = std::move(parser).take();
  ASSERT_EQ(answer.items.size(), 2U);
  EXPECT_EQ(fakes::text_of(answer.items[0].bulk), "17");
  ASSERT_EQ(answer.items[1].items.size(), 3U);
  EXPECT_EQ(answer.items[1].items[1].integer, 5);
  EXPECT_EQ(answer.items[1].items[2].kind, RespAnswer::Kind::array);
}

TEST(Resp, RefusesArraysThatAreTooLargeOrTooDeep) {
  for (const char* text : {"*100001\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "*60000\r\n*60000\r\n", "*-2\r\n",
                           "*2\r\n$8\r\n12345678\r\n$8\r\n"})
    EXPECT_FALSE(RespParser(10).consume(fakes::bytes_of(text))) << text;
}

}  // namespace
}  // namespace kiln::store
