#include "store/remote/s3_store.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/file.hpp"
#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/servers.hpp"
#include "store/remote/aws_settings.hpp"
#include "store/remote/s3_bucket.hpp"

namespace kiln::store {
namespace {

using namespace std::chrono_literals;
using fakes::bytes_of;
using fakes::S3Server;
using fakes::text_of;
using S3Clock = std::chrono::steady_clock;

constexpr const char* s3_secret = "secret-word";
const std::string s3_path = "3/0123abcd/ef/ef456789";

CallLimit s3_limit(std::chrono::milliseconds time = 60s) { return {.deadline = S3Clock::now() + time}; }

std::unique_ptr<ObjectStore> s3_store(const std::string& url) {
  return make_s3_store(parse_store_url(url).value()).value();
}

/// "CODE: MESSAGE", or "no error". Fails the test if the message contains a secret, or does not name the store.
template <class T>
std::string s3_failure(const Result<T>& result) {
  if (result.ok()) return "no error";
  const std::string& message = result.error().message();
  for (const char* secret : {s3_secret, "wrong-password-5520", "Signature=", "first-token"})
    EXPECT_EQ(message.find(secret), std::string::npos) << message;
  EXPECT_NE(message.find("s3://"), std::string::npos) << message;
  return fmt::format("{}: {}", to_string(result.error().code()), message);
}

bool s3_has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<std::string> s3_sorted(Result<std::vector<std::string>> names) {
  auto sorted = std::move(names).value();
  std::ranges::sort(sorted);
  return sorted;
}

/// On the server of tests/fakes, or on the one that KILN_TEST_S3_URL names; its credentials are then in the
/// variables of AWS. `./dev swift` sets them.
class S3Store : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* url = std::getenv("KILN_TEST_S3_URL")) {
      // Each test has a folder of its own.
      const std::string base = url;
      const std::size_t question = base.find('?');
      const auto* test = testing::UnitTest::GetInstance()->current_test_info();
      url_ = fmt::format("{}/{}-{}{}", base.substr(0, question), test->name(),
                         S3Clock::now().time_since_epoch().count(), base.substr(question));
      return;
    }
    if (!fakes::is_installed("python3-botocore")) GTEST_SKIP() << "python3-botocore is not installed";
    server_ = std::make_unique<S3Server>();
    url_ = server_->url();
  }

  std::string url_;
  std::unique_ptr<S3Server> server_;
};

TEST_F(S3Store, StoresFindsReplacesAndRemovesObjects) {
  const auto store = s3_store(url_);
  EXPECT_EQ(store->get(s3_path, s3_limit()).value(), std::nullopt);
  EXPECT_FALSE(store->has(s3_path, s3_limit()).value());
  const std::string all = std::string("\0\r\n\xff", 4) + std::string(3 << 20, 'x');
  for (const std::string& text : {std::string("first"), std::string(), all}) {
    store->put(s3_path, bytes_of(text), s3_limit()).value();
    EXPECT_TRUE(store->has(s3_path, s3_limit()).value());
    const auto got = store->get(s3_path, s3_limit()).value();
    ASSERT_TRUE(got);
    EXPECT_TRUE(text_of(*got) == text) << text.size();
  }
  store->remove(s3_path, s3_limit()).value();
  EXPECT_FALSE(store->has(s3_path, s3_limit()).value());
  store->remove(s3_path, s3_limit()).value();
}

TEST_F(S3Store, ListsObjectsAndFolders) {
  const auto store = s3_store(url_);
  for (const char* path : {"3/a/identity.json", "3/a/01/0123", "3/a/01/0145", "3/a/02/0222", "3/b/03/0333", "4/c"})
    store->put(path, bytes_of("text"), s3_limit()).value();
  EXPECT_EQ(s3_sorted(store->list("3", s3_limit())), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(s3_sorted(store->list("3/a", s3_limit())), (std::vector<std::string>{"01", "02", "identity.json"}));
  EXPECT_EQ(s3_sorted(store->list("3/a/01", s3_limit())), (std::vector<std::string>{"0123", "0145"}));
  EXPECT_EQ(s3_sorted(store->list("5", s3_limit())), std::vector<std::string>());
  EXPECT_EQ(
      s3_sorted(store->list_all("3", s3_limit())),
      (std::vector<std::string>{"3/a/01/0123", "3/a/01/0145", "3/a/02/0222", "3/a/identity.json", "3/b/03/0333"}));
}

TEST_F(S3Store, TakesAnyCharactersInThePrefixOfItsUrl) {
  std::string url = url_;
  url.insert(std::min(url.find('?'), url.size()), "/a b+c=d&e'(f)*!~%25%3F%23%40:;,$@\xc3\xa4/\xe6\xbc\xa2");
  const auto store = s3_store(url);
  store->put(s3_path, bytes_of("text"), s3_limit()).value();
  EXPECT_EQ(text_of(store->get(s3_path, s3_limit()).value().value()), "text");
  EXPECT_EQ(store->list("3/0123abcd", s3_limit()).value(), std::vector<std::string>{"ef"});
  EXPECT_EQ(store->list_all("3", s3_limit()).value(), std::vector<std::string>{s3_path});
  EXPECT_FALSE(s3_store(url_)->has(s3_path, s3_limit()).value());
}

TEST_F(S3Store, ServesManyThreadsAtOnceAndListsMoreThanAPage) {
  const auto store = s3_store(url_);
  EXPECT_GE(store->useful_streams(), 16U);
  std::vector<std::thread> threads;
  threads.reserve(16);
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&store, t] {
      for (int i = 0; i < 64; ++i) {
        const std::string path = fmt::format("3/{}/{}", t, i);
        store->put(path, bytes_of(path), s3_limit()).value();
        if (i == 0) {
          EXPECT_EQ(text_of(store->get(path, s3_limit()).value().value()), path);
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->list_all("3", s3_limit()).value().size(), 1024U);
}

TEST_F(S3Store, FailsWithAWrongAccessKeyOrSecret) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("kiln-credentials-{}", getpid());
  const char* known = std::getenv("AWS_ACCESS_KEY_ID");
  fakes::write_file(file,
                    fmt::format("[secret]\naws_access_key_id={}\naws_secret_access_key=wrong-password-5520\n"
                                "[access]\naws_access_key_id=AKIAUNKNOWN\naws_secret_access_key=secret-word\n",
                                known != nullptr ? known : "AKIAKILNTEST"));
  const char* before = std::getenv("AWS_SHARED_CREDENTIALS_FILE");
  const std::string right = before != nullptr ? before : "";
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", file.c_str(), 1);
  for (const char* profile : {"secret", "access"}) {
    const auto store = s3_store(url_ + (s3_has(url_, "?") ? "&" : "?") + "profile=" + profile);
    for (const std::string& failure :
         {s3_failure(store->get(s3_path, s3_limit())), s3_failure(store->has(s3_path, s3_limit())),
          s3_failure(store->put(s3_path, bytes_of("text"), s3_limit())),
          s3_failure(store->remove(s3_path, s3_limit())), s3_failure(store->list("3", s3_limit()))}) {
      EXPECT_TRUE(s3_has(failure, "io: cannot ")) << failure;
      EXPECT_TRUE(s3_has(failure, fmt::format("check the profile {} of {}", profile, file.string()))) << failure;
    }
  }
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", right.c_str(), 1);
  std::filesystem::remove(file);
}

TEST_F(S3Store, SaysThatABucketDoesNotExist) {
  std::string url = url_;
  url.replace(5, url.find('/', 5) - 5, "no-such-bucket");
  const auto store = s3_store(url);
  for (const std::string& failure :
       {s3_failure(store->get(s3_path, s3_limit())), s3_failure(store->has(s3_path, s3_limit())),
        s3_failure(store->put(s3_path, bytes_of("text"), s3_limit())), s3_failure(store->list("3", s3_limit()))})
    EXPECT_TRUE(s3_has(failure, "has no bucket no-such-bucket")) << failure;
}

/// What only the server of tests/fakes does.
class S3StoreOfFake : public testing::Test {
 protected:
  void SetUp() override {
    if (!fakes::is_installed("python3-botocore")) GTEST_SKIP() << "python3-botocore is not installed";
  }
};

TEST_F(S3StoreOfFake, WorksOverTlsWithTheCertificateOfTheUrl) {
  const S3Server s3({.tls = true});
  const auto store = s3_store(s3.url());
  store->put(s3_path, bytes_of("text"), s3_limit()).value();
  EXPECT_EQ(text_of(store->get(s3_path, s3_limit()).value().value()), "text");
  const auto untrusting = s3_store(fmt::format("s3://{}?endpoint={}", S3Server::bucket, s3.endpoint()));
  EXPECT_TRUE(s3_has(s3_failure(untrusting->get(s3_path, s3_limit())), "certificate"));
}

TEST_F(S3StoreOfFake, WorksInVirtualHostStyle) {
  const S3Server s3;
  const auto url = fmt::format("s3://{}/p?endpoint=http://localhost:{}/&region=eu-central-1&style=virtual",
                               S3Server::bucket, s3.port());
  const auto store = s3_store(url);
  store->put(s3_path, bytes_of("text"), s3_limit()).value();
  EXPECT_EQ(text_of(store->get(s3_path, s3_limit()).value().value()), "text");
  EXPECT_EQ(store->list_all("3", s3_limit()).value(), std::vector<std::string>{s3_path});
}

TEST_F(S3StoreOfFake, ListsAllPages) {
  const S3Server s3;
  constexpr int count = 2500;
  for (int i = 0; i < count; ++i) s3.store(fmt::format("cache/3/a/{:04}", i), "");
  s3.store("cache/3/made-by-hand/", "");
  const auto store = s3_store(s3.url());
  for (const auto& names :
       {s3_sorted(store->list("3/a", s3_limit())), s3_sorted(store->list_all("3/a", s3_limit()))}) {
    ASSERT_EQ(names.size(), std::size_t{count});
    EXPECT_TRUE(names.front().ends_with("0000"));
    EXPECT_TRUE(names.back().ends_with("2499"));
  }
  EXPECT_EQ(store->list_all("3", s3_limit()).value().size(), std::size_t{count});
  for (int i = 0; i < 600; ++i) s3.store(fmt::format("cache/3/b/{:02}/{:04}", i % 16, i), "");
  s3.store("cache/3/b/identity.json", "");
  s3.behave(R"({"page": 99})");
  const auto in_folders = s3_sorted(store->list_all("3/b", s3_limit()));
  ASSERT_EQ(in_folders.size(), 601U);
  EXPECT_EQ(in_folders.front(), "3/b/00/0000");
  EXPECT_EQ(in_folders.back(), "3/b/identity.json");
  EXPECT_EQ(std::ranges::adjacent_find(in_folders), in_folders.end());
  EXPECT_EQ(store->list_all("3/a", s3_limit()).value().size(), std::size_t{count});
}

TEST_F(S3StoreOfFake, UsesCredentialsThatAreRotated) {
  const S3Server s3({.token = "first-token"});
  const auto store = s3_store(s3.url());
  EXPECT_EQ(s3_failure(store->put(s3_path, bytes_of("text"), s3_limit())), "no error");
  const std::string right = fakes::read_file(s3.credentials());
  const auto becomes = [&](const std::string& part) {
    std::string failure;
    for (const auto end = S3Clock::now() + 20s; S3Clock::now() < end && !s3_has(failure, part);)
      failure = s3_failure(store->get(s3_path, s3_limit()));
    EXPECT_TRUE(s3_has(failure, part)) << failure;
  };
  fakes::write_file(s3.credentials(), "");
  becomes("io: cannot GET s3://kiln-tests/cache/3/0123abcd/ef/ef456789: there are no credentials: ");
  fakes::write_file(s3.credentials(), right);
  becomes("no error");
}

TEST_F(S3StoreOfFake, SaysThatASessionTokenHasExpired) {
  const S3Server s3({.token = "first-token"});
  s3.behave(R"({"expired": true})");
  EXPECT_EQ(s3_failure(s3_store(s3.url())->get(s3_path, s3_limit())),
            "io: cannot GET s3://kiln-tests/cache/" + s3_path +
                ": the session token has expired; get new credentials: check the profile default of " +
                s3.credentials().string() + " (ExpiredToken, status 400)");
}

TEST_F(S3StoreOfFake, SaysInWhichRegionTheBucketIs) {
  const S3Server s3({.region = "eu-west-3"});
  const auto store = s3_store(fmt::format("s3://{}?endpoint={}&region=us-east-1", S3Server::bucket, s3.endpoint()));
  for (const char* behaviour : {"{}", R"({"redirects": true})"}) {
    s3.behave(behaviour);
    for (const std::string& failure :
         {s3_failure(store->get(s3_path, s3_limit())), s3_failure(store->has(s3_path, s3_limit())),
          s3_failure(store->put(s3_path, bytes_of("text"), s3_limit()))}) {
      EXPECT_TRUE(s3_has(failure, "io: ")) << failure;
      EXPECT_TRUE(s3_has(failure, "the bucket kiln-tests is in the region eu-west-3; set region=eu-west-3"))
          << failure;
    }
  }
}

TEST_F(S3StoreOfFake, SaysHowFarTheClockOfThisMachineIsOff) {
  const S3Server s3;
  const auto store = s3_store(s3.url());
  s3.behave(R"({"clock": 1800})");
  EXPECT_TRUE(s3_has(s3_failure(store->get(s3_path, s3_limit())),
                     "io: cannot GET s3://kiln-tests/cache/3/0123abcd/ef/ef456789: the clock of this machine is 30 "
                     "minutes behind the server's; set it (RequestTimeTooSkewed, status 403)"));
  s3.behave(R"({"clock": -86400})");
  EXPECT_TRUE(s3_has(s3_failure(store->put(s3_path, bytes_of("text"), s3_limit())),
                     "the clock of this machine is 24 hours ahead of the server's"));
  s3.behave(R"({"clock": 600})");
  EXPECT_EQ(s3_failure(store->get(s3_path, s3_limit())), "no error");
}

TEST_F(S3StoreOfFake, MayReadWhereItMayNotWrite) {
  const S3Server s3;
  const auto store = s3_store(s3.url());
  store->put(s3_path, bytes_of("text"), s3_limit()).value();
  s3.behave(R"({"denied": ["PUT", "DELETE"]})");
  EXPECT_TRUE(s3_has(s3_failure(store->put(s3_path, bytes_of("new"), s3_limit())), "denied: cannot PUT"));
  EXPECT_TRUE(s3_has(s3_failure(store->remove(s3_path, s3_limit())), "denied: cannot DELETE"));
  EXPECT_EQ(text_of(store->get(s3_path, s3_limit()).value().value()), "text");
  s3.behave(R"({"denied": ["GET"]})");
  EXPECT_TRUE(s3_has(s3_failure(store->get(s3_path, s3_limit())), "allow s3:GetObject and s3:ListBucket"));
}

TEST_F(S3StoreOfFake, AnObjectThatIsNotYetVisibleIsAbsent) {
  const S3Server s3;
  s3.behave(R"({"late": 2})");
  const auto store = s3_store(s3.url());
  store->put(s3_path, bytes_of("text"), s3_limit()).value();
  EXPECT_FALSE(store->get(s3_path, s3_limit()).value());
  EXPECT_FALSE(store->has(s3_path, s3_limit()).value());
  EXPECT_EQ(text_of(store->get(s3_path, s3_limit()).value().value()), "text");
}

TEST_F(S3StoreOfFake, AsksABusyServerAgainWhenItSays) {
  const S3Server s3;
  const auto store = s3_store(s3.url());
  for (const char* status : {"503", "429"}) {
    s3.behave(fmt::format(R"({{"busy": 1, "busy_status": {}, "retry_after": 1}})", status));
    const auto start = S3Clock::now();
    EXPECT_EQ(s3_failure(store->put(s3_path, bytes_of("text"), s3_limit())), "no error");
    EXPECT_GE(S3Clock::now() - start, 1s);
  }
}

TEST_F(S3StoreOfFake, FailsAtOnceIfABusyServerAsksForTooMuchTimeOrSaysNothing) {
  const S3Server s3;
  const auto store = s3_store(s3.url());
  for (const char* behaviour :
       {R"({"busy": 1})", R"({"busy": 1, "retry_after": 30})", R"({"busy": 1, "retry_after": 90})",
        R"({"busy": 1, "retry_after": 9223372036854775807})"}) {
    s3.behave(behaviour);
    const auto start = S3Clock::now();
    const std::string failure = s3_failure(store->get(s3_path, s3_limit(s3_has(behaviour, R"(: 9)") ? 2h : 20s)));
    EXPECT_TRUE(s3_has(failure, "io: ") && s3_has(failure, "the server is overloaded (SlowDown, status 503)"))
        << failure;
    EXPECT_LT(S3Clock::now() - start, 10s) << behaviour;
    EXPECT_EQ(s3_failure(store->get(s3_path, s3_limit())), "no error");
  }
}

TEST_F(S3StoreOfFake, ACallThatWaitsForABusyServerCanBeCancelled) {
  const S3Server s3;
  s3.behave(R"({"busy": 1000, "retry_after": 30})");
  const auto store = s3_store(s3.url());
  const base::FileHandle event(eventfd(0, EFD_CLOEXEC));
  CallLimit limit = s3_limit();
  limit.cancelled = event.get();
  std::string failure;
  std::thread thread([&] { failure = s3_failure(store->get(s3_path, limit)); });
  for (const auto end = S3Clock::now() + 30s; S3Clock::now() < end && s3.requests().empty();)
    std::this_thread::yield();
  const std::uint64_t one = 1;
  ASSERT_EQ(write(event.get(), &one, sizeof one), ssize_t{sizeof one});
  thread.join();
  EXPECT_TRUE(s3_has(failure, "cancelled: ")) << failure;
}

TEST_F(S3StoreOfFake, AnotherServerIsNotTakenForS3) {
  if (!fakes::is_installed("nginx")) GTEST_SKIP() << "nginx is not installed";
  const fakes::NginxServer s3;
  const fakes::AwsEnvironment environment(
      {{"AWS_ACCESS_KEY_ID", "AKIAKILNTEST"}, {"AWS_SECRET_ACCESS_KEY", s3_secret}});
  const auto store = s3_store(fmt::format("s3://bucket?endpoint=http://127.0.0.1:{}", s3.port()));
  for (const std::string& failure :
       {s3_failure(store->get(s3_path, s3_limit())), s3_failure(store->list("3", s3_limit())),
        s3_failure(store->has(s3_path, s3_limit()))})
    EXPECT_TRUE(s3_has(failure, "does not answer as S3 does; check endpoint=")) << failure;
}

TEST_F(S3StoreOfFake, FailsWithoutCredentialsAndWorksOnceTheyAreThere) {
  const S3Server s3;
  const std::string right = fakes::read_file(s3.credentials());
  std::filesystem::remove(s3.credentials());
  const auto store = s3_store(s3.url());
  EXPECT_TRUE(s3_has(s3_failure(store->get(s3_path, s3_limit())),
                     "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"));
  fakes::write_file(s3.credentials(), right);
  for (const auto end = S3Clock::now() + 20s; S3Clock::now() < end && !store->get(s3_path, s3_limit()).ok();) {
  }
  EXPECT_EQ(s3_failure(store->get(s3_path, s3_limit())), "no error");
}

TEST_F(S3StoreOfFake, AChildOfTheProcessCannotUseIt) {
  const S3Server s3;
  const auto store = s3_store(s3.url());
  store->put(s3_path, bytes_of("text"), s3_limit()).value();
  fakes::Child child(
      [&](const fakes::Child::Report& report) { report(s3_failure(store->get(s3_path, s3_limit()))); });
  EXPECT_TRUE(s3_has(child.report(), "unsupported: "));
  EXPECT_EQ(s3_failure(store->get(s3_path, s3_limit())), "no error");
}

TEST_F(S3StoreOfFake, AChildOfTheProcessReadsNoFileAndTakesNoLock) {
  const S3Server s3;
  auto store = s3_store(s3.url());
  store->put(s3_path, bytes_of("text"), s3_limit()).value();
  std::filesystem::remove(s3.credentials());
  // Credentials are read again after a second.
  for (const auto end = S3Clock::now() + 20s; S3Clock::now() < end && store->get(s3_path, s3_limit()).ok();) {
  }
  fakes::Child child([&](const fakes::Child::Report& report) {
    report(s3_failure(store->get(s3_path, s3_limit())));
    store.reset();
    report("destroyed");
  });
  EXPECT_TRUE(s3_has(child.report(), "unsupported: "));
  EXPECT_EQ(child.report(), "destroyed");
}

TEST_F(S3StoreOfFake, OnlyExpectedAnswersAreSuccess) {
  const S3Server s3;
  const auto store = s3_store(s3.url());
  store->put(s3_path, bytes_of("text"), s3_limit()).value();
  const auto failures = [&] {
    return std::vector{s3_failure(store->get(s3_path, s3_limit())), s3_failure(store->has(s3_path, s3_limit())),
                       s3_failure(store->put(s3_path, bytes_of("text"), s3_limit())),
                       s3_failure(store->remove(s3_path, s3_limit())), s3_failure(store->list("3", s3_limit()))};
  };
  s3.behave(R"({"answers": [203, ""]})");
  for (const std::string& failure : failures())
    EXPECT_TRUE(s3_has(failure, "does not answer as S3 does; check endpoint= (status 203)")) << failure;
  s3.behave(R"({"answers": [416, "InvalidRange"]})");
  const auto refused = failures();
  for (const std::size_t i : {0U, 2U, 3U, 4U}) EXPECT_TRUE(s3_has(refused[i], "InvalidRange")) << refused[i];
  EXPECT_EQ(refused[1], "no error") << "an empty object has no first byte";
  s3.behave(R"({"answers": [404, "NoSuchKey"]})");
  EXPECT_TRUE(s3_has(failures()[2], "io: cannot PUT")) << failures()[2];
  s3.behave(R"({"answers": [403, "InvalidObjectState"]})");
  EXPECT_TRUE(s3_has(failures()[0], "unsupported: cannot GET") && s3_has(failures()[0], "in an archive"))
      << failures()[0];
}

TEST_F(S3StoreOfFake, AnAnswerThatIsCutByTheDeadlineIsNotTakenForAnotherServer) {
  const S3Server s3;
  s3.behave(R"({"cut": true})");
  const auto store = s3_store(s3.url());
  EXPECT_EQ(s3_failure(store->get(s3_path, s3_limit(500ms))),
            fmt::format("timed_out: cannot GET s3://kiln-tests/cache/{}: {}: the server did not answer in time",
                        s3_path, s3.endpoint()));
}

TEST_F(S3StoreOfFake, AnEndlessListIsAnError) {
  const S3Server s3;
  for (int i = 0; i < 5; ++i) s3.store(fmt::format("cache/3/a/{:04}", i), "");
  const auto store = s3_store(s3.url());
  s3.behave(R"({"page": 1, "repeats": true})");
  EXPECT_TRUE(s3_has(s3_failure(store->list_all("3", s3_limit())), "the server sends the same page again"));
  s3.behave(R"({"padding": 17000000})");
  EXPECT_TRUE(s3_has(s3_failure(store->list_all("3", s3_limit())),
                     "io: cannot GET s3://kiln-tests/cache/: " + s3.endpoint() +
                         ": the server sends more than 16 MiB, the limit of a list"));
}

TEST(S3StoreUrl, SaysWhereTheBucketIs) {
  const fakes::AwsEnvironment environment({});
  const auto place = [](const std::string& text) {
    const auto url = parse_store_url(text).value();
    const auto bucket = find_bucket(url, AwsSettings::read(url).value()).value();
    return bucket.scheme + "://" + bucket.host + bucket.root;
  };
  EXPECT_EQ(place("s3://bucket/p"), "https://bucket.s3.us-east-1.amazonaws.com");
  EXPECT_EQ(place("s3://bucket?region=eu-west-1&style=path"), "https://s3.eu-west-1.amazonaws.com/bucket");
  EXPECT_EQ(place("s3://my.bucket?region=eu-west-1"), "https://s3.eu-west-1.amazonaws.com/my.bucket")
      << "the certificate of AWS is for names without another dot";
  EXPECT_EQ(place("s3://bucket?region=cn-north-1"), "https://bucket.s3.cn-north-1.amazonaws.com.cn");
  EXPECT_EQ(place("s3://bucket?endpoint=http://[::1]:9000"), "http://[::1]:9000/bucket");
  EXPECT_EQ(place("s3://bucket?endpoint=https://Host.example/"), "https://Host.example/bucket");
  EXPECT_EQ(place("s3://bucket?endpoint=https://host&style=virtual"), "https://bucket.host");
}

TEST(S3StoreUrl, RefusesSettingsThatCannotBeUsed) {
  const fakes::AwsEnvironment environment({});
  const auto why = [](const std::string& options) {
    const auto made = make_s3_store(parse_store_url("s3://bucket?" + options).value());
    if (made) return std::string("no error");
    EXPECT_EQ(made.error().code(), ErrorCode::invalid_request);
    return made.error().message();
  };
  EXPECT_EQ(why("region=eu-central-1"), "no error");
  EXPECT_EQ(why("endpoint=http://[::1]:9000/"), "no error");
  for (const char* endpoint :
       {"host", "ftp://host", "http://", "http://user:secret-word@host", "http://h/@secret-word"}) {
    const std::string message = why(std::string("endpoint=") + endpoint);
    EXPECT_TRUE(s3_has(message, "has an endpoint that is not an address")) << message;
    EXPECT_FALSE(s3_has(message, s3_secret)) << message;
  }
  EXPECT_TRUE(s3_has(why("endpoint=http://h/path"), "has an endpoint with a path"));
  EXPECT_TRUE(s3_has(why("region=no%20region"), "has a region that is not"));
  EXPECT_TRUE(s3_has(why("ca=/does/not/exist"), "cannot use the certificates"));
  EXPECT_TRUE(s3_has(why("ca=/dev/null&endpoint=http://host"), "has certificates in ca="));
}

}  // namespace
}  // namespace kiln::store
