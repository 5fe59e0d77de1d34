#include "store/store_url.hpp"

#include <chrono>
#include <string>

#include <gtest/gtest.h>

namespace kiln::store {
namespace {

using namespace std::chrono_literals;
using Scheme = StoreUrl::Scheme;

/// The URL; the test fails if it is refused.
StoreUrl accepted(const std::string& text) {
  auto url = parse_store_url(text);
  if (url) return *std::move(url);
  ADD_FAILURE() << text << ": " << url.error().message();
  return {};
}

/// The message; the test fails if the URL is accepted.
std::string refused(const std::string& text) {
  const auto url = parse_store_url(text);
  if (url) {
    ADD_FAILURE() << text << " is accepted";
    return {};
  }
  EXPECT_EQ(url.error().code(), ErrorCode::invalid_request) << text;
  return url.error().message();
}

TEST(StoreUrl, NamesAFolder) {
  StoreUrl expected;
  expected.path = "/mnt/nfs/kiln";
  EXPECT_EQ(accepted("file:///mnt/nfs/kiln"), expected);
  EXPECT_EQ(accepted("file://localhost/mnt/nfs/kiln"), expected);
  EXPECT_EQ(accepted("FILE:///mnt/nfs/kiln"), expected);
  EXPECT_FALSE(expected.is_network());
  EXPECT_EQ(expected.display(), "file:///mnt/nfs/kiln");
  EXPECT_EQ(accepted("file:///a%20b%3fc").path, "/a b?c");
}

TEST(StoreUrl, NamesAnHttpServer) {
  const auto url = accepted("https://me:p%40ss%3Aword@Cache.Example:8443/a/b%20c//?layout=bazel&ca=/etc/ca.pem");
  EXPECT_EQ(url.scheme, Scheme::https);
  EXPECT_EQ(url.user, "me");
  EXPECT_EQ(url.password, "p@ss:word");
  EXPECT_EQ(url.host, "cache.example");
  EXPECT_EQ(url.port, 8443);
  EXPECT_EQ(url.path, "/a/b%20c") << "as written, without the slashes at its end";
  EXPECT_EQ(url.option("layout"), "bazel");
  EXPECT_EQ(url.option("ca"), "/etc/ca.pem");
  EXPECT_EQ(url.option("token_file"), "");
  EXPECT_EQ(url.display(), "https://cache.example:8443/a/b%20c");
  EXPECT_TRUE(url.is_network());
  EXPECT_EQ(accepted("http://h").path, "");
  EXPECT_EQ(accepted("http://h").port, 0);
  EXPECT_EQ(accepted("http://h/?token_file=/run/token").option("token_file"), "/run/token");
}

TEST(StoreUrl, NamesARedisServer) {
  const auto url = accepted("redis://user:pass%2Fword@host:6379/3?prefix=team%2Fa&password_file=/run/p");
  EXPECT_EQ(url.scheme, Scheme::redis);
  EXPECT_EQ(url.user, "user");
  EXPECT_EQ(url.password, "pass/word");
  EXPECT_EQ(url.path, "3");
  EXPECT_EQ(url.option("prefix"), "team/a");
  EXPECT_EQ(url.option("password_file"), "/run/p");
  EXPECT_EQ(url.display(), "redis://host:6379/3");
  EXPECT_EQ(accepted("rediss://h?ca=/x").scheme, Scheme::rediss);
  EXPECT_EQ(accepted("redis://h/").path, "");
  EXPECT_EQ(accepted("redis://:secret@h").password, "secret");
  EXPECT_EQ(accepted("redis://:secret@h").user, "");
}

TEST(StoreUrl, NamesAUnixSocketOfRedis) {
  const auto url = accepted("redis+unix://:secret@localhost/run/redis.sock?db=2");
  EXPECT_EQ(url.scheme, Scheme::redis_unix);
  EXPECT_EQ(url.host, "");
  EXPECT_EQ(url.path, "/run/redis.sock");
  EXPECT_EQ(url.password, "secret");
  EXPECT_EQ(url.option("db"), "2");
  EXPECT_EQ(url.display(), "redis+unix:///run/redis.sock");
}

TEST(StoreUrl, NamesABucketOfS3) {
  const auto url = accepted(
      "s3://my.bucket-1/team%20a/\xc3\xa4@/?endpoint=https://[::1]:9000&region=eu-west-1&style=virtual&profile=ci"
      "&ca=/ca.pem&mode=ro");
  EXPECT_EQ(url.scheme, Scheme::s3);
  EXPECT_EQ(url.host, "my.bucket-1");
  EXPECT_EQ(url.path, "/team a/\xc3\xa4@");
  EXPECT_EQ(url.option("endpoint"), "https://[::1]:9000");
  EXPECT_EQ(url.option("style"), "virtual");
  EXPECT_EQ(url.option("profile"), "ci");
  EXPECT_EQ(url.display(), "s3://my.bucket-1/team a/\xc3\xa4@");
  EXPECT_TRUE(url.is_network());
  EXPECT_EQ(accepted("s3://bucket").path, "");
  EXPECT_EQ(accepted("S3://bucket///").path, "");
}

TEST(StoreUrl, RefusesWhatIsNoBucketOfS3AndSaysWhatToWriteInstead) {
  for (const char* bucket :
       {"", "ab", "Bucket", "my_bucket", "-bucket", "bucket-", ".bucket", "bucket.", "a..b", "10.0.0.1", "b%75cket",
        "a23456789012345678901234567890123456789012345678901234567890123b"})
    EXPECT_NE(refused(std::string("s3://") + bucket + "/p").find("needs the name of a bucket"), std::string::npos)
        << bucket;
  for (const char* text : {"s3://wilhelmina:hunter-2@bucket/p", "s3://wilhelmina@bucket"})
    EXPECT_EQ(refused(text),
              "the store URL names a user; S3 takes credentials from the variables and files of AWS only");
  for (const char* text : {"s3://bucket:9000/p", "s3://wilhelmina:hunter/2@bucket"})
    EXPECT_EQ(refused(text),
              "the store URL has a ':' in its bucket; write the server as endpoint=https://host:port");
  for (const char* path : {"/a//b", "//a", "/./a", "/a/..", "/%2e/a"})
    EXPECT_NE(refused(std::string("s3://bucket") + path).find("an empty part, '.' or '..'"), std::string::npos)
        << path;
  for (const char* text :
       {"s3://bucket/a%0a", "s3://bucket/%zz", "s3://bucket?style=other", "s3://bucket?password_file=/p",
        "s3://bucket?ca=relative", "s3://bucket?region=a&region=b", "redis://h?region=a"})
    refused(text);
}

TEST(StoreUrl, TakesIpv6AddressesInBrackets) {
  EXPECT_EQ(accepted("redis://[::1]:6380/0").host, "[::1]");
  EXPECT_EQ(accepted("redis://[::1]:6380/0").port, 6380);
  EXPECT_EQ(accepted("http://[2001:DB8::1]/p").host, "[2001:db8::1]");
  EXPECT_EQ(accepted("http://[::ffff:10.0.0.1]").port, 0);
  EXPECT_EQ(accepted("http://u:p@[::1]:80").display(), "http://[::1]:80");
  for (const char* text : {"redis://[::1", "redis://[]", "redis://[g::1]", "redis://[::1]x",
                           "redis://[::1]:", "redis://[::1]:x", "redis://::1/0"})
    refused(text);
}

TEST(StoreUrl, HasOptionsOfAllStores) {
  const auto plain = accepted("redis://h");
  EXPECT_EQ(plain.mode, StoreMode::read_write);
  EXPECT_EQ(plain.timeout, default_store_timeout);
  EXPECT_FALSE(plain.verify.has_value());
  const auto url = accepted("file:///x?mode=ro&timeout=200ms&verify=off");
  EXPECT_EQ(url.mode, StoreMode::read_only);
  EXPECT_EQ(url.timeout, 200ms);
  EXPECT_EQ(url.verify, Verification::off);
  EXPECT_EQ(accepted("file:///x?mode=wo").mode, StoreMode::write_only);
  EXPECT_EQ(accepted("file:///x?mode=rw").mode, StoreMode::read_write);
  EXPECT_EQ(accepted("file:///x?verify=required").verify, Verification::required);
  EXPECT_EQ(accepted("file:///x?timeout=1.5s").timeout, 1500ms);
  EXPECT_EQ(accepted("file:///x?timeout=1ms").timeout, 1ms);
  EXPECT_EQ(accepted("file:///x?timeout=3600s").timeout, 1h);
  EXPECT_EQ(accepted("file:///x?").timeout, default_store_timeout);
  for (const char* option : {"mode=", "mode=r", "mode=ro,wo", "verify=", "verify=on", "timeout=", "timeout=2",
                             "timeout=0ms", "timeout=0.5ms", "timeout=-1s", "timeout=3601s", "timeout=1e308s",
                             "timeout=nans", "timeout=infs", "timeout=1 s", "timeout=ms", "timeout=1sx"})
    refused(std::string("file:///x?") + option);
}

TEST(StoreUrl, RefusesOptionsThatAreThereTwice) {
  for (const char* option : {"mode=ro", "timeout=1s", "verify=off", "layout=bazel", "token_file=/a",
                             "password_file=/a", "unix_socket=/a", "ca=/a"}) {
    const std::string text = std::string("https://h?") + option;
    accepted(text);
    const std::string name = std::string(option).substr(0, std::string(option).find('=') + 1);
    EXPECT_EQ(refused(text + "&" + option), "the store URL has " + name + " twice");
  }
  EXPECT_EQ(refused("file:///x?verify=required&mode=ro&verify=off"), "the store URL has verify= twice");
  EXPECT_EQ(refused("redis://h?mode=ro&m%6fde=rw"), "the store URL has mode= twice");
}

TEST(StoreUrl, RefusesRelativePaths) {
  for (const char* option : {"ca", "password_file", "token_file", "unix_socket"})
    for (const char* path : {"", "a/b", "./a", "~/a", "%2e%2fa"})
      EXPECT_EQ(refused(std::string("https://h?") + option + "=" + path),
                std::string("the store URL has a ") + option + "= that is not an absolute path");
  EXPECT_EQ(accepted("https://h?ca=%2Fa").option("ca"), "/a");
  refused("redis://h?password_file=p");
}

TEST(StoreUrl, TakesNoPartOfAPasswordForAPath) {
  for (const char* text : {"http://wilhelmina:12/hunter-2@host/cache", "https://wilhelmina:12/hunter-2@host",
                           "http://wilhelmina/hunter-2@host", "http://host/a@b"})
    EXPECT_EQ(refused(text),
              "the store URL has an '@' in its path; write it as %40, and a '/' in a password as %2F");
  EXPECT_EQ(accepted("http://host/a%40b").path, "/a%40b");
  for (const char* text : {"redis://wilhelmina:12/3@host", "redis+unix://:12/hunter-2@localhost/s",
                           "file://wilhelmina:12/hunter-2@localhost/x"})
    refused(text);
}

TEST(StoreUrl, RefusesOptionsOfOtherSchemes) {
  for (const char* text : {"file:///x?prefix=a", "http://h?ca=/x", "http://h?db=1", "redis://h?ca=/x",
                           "redis://h?db=1", "redis+unix:///s?ca=/x", "redis://h?layout=bazel",
                           "https://h?layout=other", "redis+unix:///s?db=x", "redis+unix:///s?db=-1",
                           "redis://h?prefix=a&prefix=b", "redis://h?Prefix=a", "redis://h?=a", "redis://h?&&x"})
    refused(text);
}

TEST(StoreUrl, RefusesWhatNamesNoStore) {
  for (const char* text : {"",
                           "/mnt/kiln",
                           "kiln",
                           "://",
                           "ftp://h",
                           "redis:/h",
                           "redis:h",
                           "file://",
                           "file:///",
                           "file://nas/mnt",
                           "file:///%2",
                           "file:///%zz",
                           "file:///a%00b",
                           "file:///a%0ab",
                           "file:///a\nb",
                           "http://",
                           "http:///p",
                           "redis://",
                           "redis://:6379",
                           "redis://h/x",
                           "redis://h/1/2",
                           "redis://h/-1",
                           "redis://h/4294967296",
                           "redis://h:0",
                           "redis://h:65536",
                           "redis://h:1x",
                           "redis://h:",
                           "redis://h h",
                           "redis://h\r\n",
                           "redis://h%41",
                           "http://h/a b",
                           "http://h/a\"b",
                           "http://h/%4",
                           "redis+unix://",
                           "redis+unix:///",
                           "redis+unix://h/s",
                           "redis+unix://:1/s",
                           "file://u@localhost/x",
                           "file://:p@/x",
                           "redis://h?prefix=a%0d%0ab"})
    refused(text);
  refused(std::string("file:///a\0b", 11));
}

TEST(StoreUrl, ShowsNoSecrets) {
  // What people write who do not know that these characters need an escape.
  for (const std::string text : {"redis://wilhelmina:hunter-2@host:port",
                                 "redis://wilhelmina:hunter-2/x@host",
                                 "redis://wilhelmina:hunter-2?x@host",
                                 "redis://wilhelmina:hunter-2#x@host",
                                 "redis://wilhelmina:hunter-2%@host",
                                 "redis://wilhelmina:hunter-2%00@host",
                                 "redis://wilhelmina:hunter-2%0d@host",
                                 "redis://wilhelmina:hunter-2:@[host",
                                 "wilhelmina://hunter-2@host",
                                 "file://wilhelmina:hunter-2@localhost/x",
                                 "redis://host?wilhelmina=hunter-2",
                                 "redis://host?mode=hunter-2",
                                 "redis://host?verify=hunter-2",
                                 "redis://host?timeout=hunter-2",
                                 "redis://host?prefix=hunter-2&prefix=wilhelmina",
                                 "redis://host?password_file=hunter-2",
                                 "http://wilhelmina:1/hunter-2@host",
                                 "http://host/hunter-2 wilhelmina",
                                 "redis://host/hunter-2",
                                 "https://host?layout=hunter-2",
                                 "redis+unix:///s?db=hunter-2",
                                 "redis+unix://wilhelmina:hunter-2@host/s"}) {
    const std::string message = refused(text);
    EXPECT_EQ(message.find("hunter"), std::string::npos) << message;
    EXPECT_EQ(message.find("wilhelmina"), std::string::npos) << message;
  }
  for (const char* text :
       {"redis://wilhelmina:hunter-2@host/1?prefix=hunter-2", "redis+unix://wilhelmina:hunter-2@/s",
        "http://wilhelmina:hunter-2@host:1/p?token_file=/hunter-2", "https://hunter-2@host"}) {
    const std::string shown = accepted(text).display();
    EXPECT_EQ(shown.find("hunter"), std::string::npos) << shown;
    EXPECT_EQ(shown.find("wilhelmina"), std::string::npos) << shown;
  }
}

TEST(StoreUrl, TakesAnAtSignInThePassword) {
  const auto url = accepted("redis://user:p@ss@host");
  EXPECT_EQ(url.password, "p@ss");
  EXPECT_EQ(url.host, "host");
}

}  // namespace
}  // namespace kiln::store
