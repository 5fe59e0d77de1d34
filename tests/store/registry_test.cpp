#include "store/registry.hpp"

#include <algorithm>

#include "base/event.hpp"
#include "store/bundle_transfers.hpp"
#include "store/part_file.hpp"
#include "store/remote/oci_registry.hpp"

// Bundles in Debian's docker-registry and in the shared stores of real servers.
namespace kiln::store {
namespace {

class RealRegistry : public BundleTransfers {
 protected:
  void SetUp() override {
    if (!fakes::is_installed("docker-registry")) GTEST_SKIP() << "docker-registry is not installed";
    BundleTransfers::SetUp();
  }
};

TEST_F(RealRegistry, ReturnsTheBytesThatWerePushed) {
  const fakes::DockerRegistry registry;
  const auto pushed = push(registry.url("team/app:v1")).value();
  const auto pulled = pull(registry.url("team/app:v1")).value();
  expect_copied();
  EXPECT_EQ(pulled.digest, base::sha256(fakes::read_file(bundle())));
  EXPECT_EQ(pulled.digest, pushed.digest);
  EXPECT_EQ(pulled.manifest, pushed.manifest);
  EXPECT_EQ(pulled.transferred, std::filesystem::file_size(bundle()));
}

TEST_F(RealRegistry, GetsABundleOnceAndUnderAnyNumberOfTags) {
  const fakes::DockerRegistry registry;
  const auto first = push(registry.url("app:v1")).value();
  const auto again = push(registry.url("app:v1")).value();
  const auto other = push(registry.url("app:v2")).value();
  EXPECT_EQ(first.transferred, first.size);
  EXPECT_EQ(again.transferred, 0U);
  EXPECT_EQ(other.transferred, 0U);
  EXPECT_EQ(first.manifest, again.manifest);
  // The bundle and the empty configuration.
  EXPECT_EQ(registry.requests("\"PUT /v2/app/blobs/uploads/"), 2U);
  EXPECT_TRUE(pull(registry.url("app:v2")).ok());
}

TEST_F(RealRegistry, FindsABundleByItsDigest) {
  const fakes::DockerRegistry registry;
  const auto first = push(registry.url("app")).value();
  make_bundle(2000);
  const auto second = push(registry.url("app")).value();
  EXPECT_EQ(pull(registry.url("app@sha256:" + first.manifest->hex())).value().digest, first.digest);
  EXPECT_EQ(pull(registry.url("app:latest")).value().digest, second.digest);
}

TEST_F(RealRegistry, GetsLargeBundlesInParts) {
  const fakes::DockerRegistry registry;
  make_bundle(1'000'000);
  const std::string bytes = fakes::read_file(bundle());
  const auto url = parse_registry_url(registry.url("app")).value();
  const BundleToPush to_push{
      .digest = base::sha256(bytes),
      .size = bytes.size(),
      .title = "app.kiln",
      .read = [&bytes](std::uint64_t offset, std::span<std::byte> to) -> Result<std::size_t> {
        const auto rest = std::as_bytes(std::span(bytes)).subspan(static_cast<std::size_t>(offset));
        const auto part = rest.first(std::min(rest.size(), to.size()));
        std::ranges::copy(part, to.begin());
        return part.size();
      }};
  static_cast<void>(make_oci_registry(url, 300'000).value()->push(to_push, -1, {}).value());
  EXPECT_EQ(registry.requests("\"PATCH /v2/app/blobs/uploads/"), 4U);
  EXPECT_TRUE(pull(registry.url("app")).ok());
  expect_copied();
}

TEST_F(RealRegistry, ResumesAPullThatWasInterrupted) {
  const fakes::DockerRegistry registry;
  make_bundle(8'000'000);
  static_cast<void>(push(registry.url("app")).value());
  const base::Event interrupted;
  const auto stopped =
      pull(registry.url("app"), {.interrupted = interrupted.descriptor(),
                                 .progress = [&](std::uint64_t, std::uint64_t) { interrupted.set(); }});
  EXPECT_TRUE(transfer_failure(stopped).starts_with("cancelled: ")) << transfer_failure(stopped);
  EXPECT_FALSE(std::filesystem::exists(copy()));
  const auto before = std::filesystem::file_size(part());
  ASSERT_GT(before, 0U);
  const auto resumed = pull(registry.url("app")).value();
  EXPECT_EQ(resumed.transferred, resumed.size - before);
  expect_copied();
}

TEST_F(RealRegistry, KeepsTheFileOfAPullThatIsInterruptedWhileItIsChecked) {
  const fakes::DockerRegistry registry;
  static_cast<void>(push(registry.url("app")).value());
  const base::Event interrupted;
  const auto size = std::filesystem::file_size(bundle());
  const auto stopped = pull(registry.url("app"), {.interrupted = interrupted.descriptor(),
                                                  .progress = [&](std::uint64_t done, std::uint64_t) {
                                                    if (done == size) interrupted.set();
                                                  }});
  EXPECT_TRUE(transfer_failure(stopped).starts_with("cancelled: ")) << transfer_failure(stopped);
  EXPECT_EQ(pull(registry.url("app")).value().transferred, 0U);
  expect_copied();
}

TEST_F(RealRegistry, StartsAgainIfTheUnfinishedFileIsOfAnotherBundle) {
  const fakes::DockerRegistry registry;
  static_cast<void>(push(registry.url("app")).value());
  fakes::write_file(part(), "the beginning of another bundle");
  EXPECT_TRUE(pull(registry.url("app")).ok());
  expect_copied();
}

TEST_F(RealRegistry, TakesCredentialsFromTheConfigurationOfDocker) {
  const fakes::DockerRegistry registry({.has_users = true});
  const std::string nobody = transfer_failure(push(registry.url("app")));
  EXPECT_TRUE(nobody.starts_with("denied: ")) << nobody;
  EXPECT_TRUE(has_text(nobody, "docker login " + registry.name())) << nobody;

  const fakes::DockerEnvironment wrong(fakes::docker_config(registry.name(), "wilhelmina", "hunter-22"));
  const std::string refused = transfer_failure(push(registry.url("app")));
  EXPECT_TRUE(has_text(refused, "the credentials in " + wrong.file() + " do not suffice")) << refused;

  const fakes::DockerEnvironment right(fakes::docker_config(registry.name()));
  EXPECT_TRUE(push(registry.url("app")).ok());
  EXPECT_TRUE(pull(registry.url("app")).ok());
  expect_copied();
}

TEST_F(RealRegistry, IsUsedWithTls) {
  if (!fakes::is_installed("openssl")) GTEST_SKIP() << "openssl is not installed";
  const fakes::DockerRegistry registry({.tls = true});
  EXPECT_TRUE(push(registry.url("app")).ok());
  EXPECT_TRUE(pull(registry.url("app")).ok());
  expect_copied();
  // Another certificate than its own.
  const fakes::DockerRegistry other({.tls = true});
  const std::string wrong = fmt::format("oci://{}/app?ca={}", registry.name(), other.certificate().string());
  const std::string refused = transfer_failure(pull(wrong));
  EXPECT_TRUE(has_text(refused, "add ?ca=/path to the URL")) << refused;
}

TEST_F(RealRegistry, SaysWhatItDoesNotHave) {
  const fakes::DockerRegistry registry;
  static_cast<void>(push(registry.url("app:v1")).value());
  const std::string tag = transfer_failure(pull(registry.url("app:v2")));
  EXPECT_TRUE(has_text(tag, "the repository app of " + registry.name() + " has no tag v2")) << tag;
  const std::string repository = transfer_failure(pull(registry.url("other:v1")));
  EXPECT_TRUE(has_text(repository, "other")) << repository;
  EXPECT_EQ(fakes::names_in(folder_.path()), std::vector<std::string>{"app.kiln"});
}

TEST_F(BundleTransfers, AreRefusedIfTheFileIsNoBundle) {
  fakes::write_file(bundle(), "no bundle");
  const std::string url = "file://" + (folder_.path() / "store").string();
  EXPECT_TRUE(transfer_failure(push(url)).starts_with("damaged: ")) << transfer_failure(push(url));
  make_bundle(1000);
  std::string bytes = fakes::read_file(bundle());
  bytes[bytes.size() / 2] ^= 1;
  fakes::write_file(bundle(), bytes);
  EXPECT_TRUE(transfer_failure(push(url)).starts_with("damaged: ")) << transfer_failure(push(url));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "store"));
}

TEST_F(BundleTransfers, EndWhileABundleIsCheckedIfTheyAreInterrupted) {
  const std::string url = "file://" + (folder_.path() / "store").string();
  static_cast<void>(push(url).value());
  const base::Event interrupted;
  // It is set once the bytes are there.
  const auto pulled = pull_bundle(place(url), copy(),
                                  {.interrupted = interrupted.descriptor(),
                                   .progress = [&](std::uint64_t, std::uint64_t) { interrupted.set(); }});
  EXPECT_TRUE(transfer_failure(pulled).starts_with("cancelled: ")) << transfer_failure(pulled);
  EXPECT_FALSE(std::filesystem::exists(copy()));
  EXPECT_FALSE(std::filesystem::exists(part())) << "a store cannot continue it";
  std::string bytes = fakes::read_file(bundle());
  bytes[bytes.size() / 2] ^= 1;
  fakes::write_file(bundle(), bytes);
  const std::string pushed = transfer_failure(push(url, {.interrupted = interrupted.descriptor()}));
  EXPECT_TRUE(pushed.starts_with("cancelled: ")) << "it was not checked to its end: " << pushed;
}

TEST_F(BundleTransfers, WorkWithAFolder) {
  const std::string url = "file://" + (folder_.path() / "store").string();
  EXPECT_TRUE(push(url).ok());
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "store" / "bundles" / "app.kiln"));
  EXPECT_TRUE(pull(url).ok());
  expect_copied();
  const auto absent = pull_bundle(place(url, "other.kiln"), copy(), {});
  EXPECT_TRUE(has_text(transfer_failure(absent), "there is no bundle bundles/other.kiln"))
      << transfer_failure(absent);
}

TEST_F(BundleTransfers, WorkWithRedis) {
  if (!fakes::is_installed("redis-server")) GTEST_SKIP() << "redis-server is not installed";
  const fakes::RedisServer redis;
  EXPECT_TRUE(push(redis.url()).ok());
  EXPECT_TRUE(pull(redis.url()).ok());
  expect_copied();
}

TEST_F(BundleTransfers, WorkWithHttp) {
  if (!fakes::is_installed("nginx")) GTEST_SKIP() << "nginx is not installed";
  const fakes::NginxServer nginx;
  EXPECT_TRUE(push(nginx.url()).ok());
  EXPECT_TRUE(pull(nginx.url()).ok());
  expect_copied();
  // A damaged copy does not replace a good one.
  fakes::write_file(nginx.objects() / "bundles" / "app.kiln", fakes::read_file(bundle()) + "x");
  EXPECT_TRUE(
      has_text(transfer_failure(pull(nginx.url())), "has no usable bundle: it has other bytes behind its end"));
  expect_copied();
}

TEST_F(BundleTransfers, LeaveTheUnfinishedFileOfAnotherPull) {
  const std::string url = "file://" + (folder_.path() / "store").string();
  static_cast<void>(push(url).value());
  const auto other = PartFile::open(copy()).value();
  EXPECT_TRUE(has_text(transfer_failure(pull(url)), "another process pulls into it"))
      << transfer_failure(pull(url));
  EXPECT_TRUE(std::filesystem::exists(part()));
}

TEST_F(BundleTransfers, DoNotFollowALinkInPlaceOfTheUnfinishedFile) {
  const std::string url = "file://" + (folder_.path() / "store").string();
  static_cast<void>(push(url).value());
  fakes::write_file(folder_.path() / "precious", "precious");
  std::filesystem::create_symlink(folder_.path() / "precious", part());
  EXPECT_TRUE(has_text(transfer_failure(pull(url)), "it is a symbolic link"));
  EXPECT_EQ(fakes::read_file(folder_.path() / "precious"), "precious");
}

TEST(BundlePlace, HasANameThatStoresAccept) {
  for (const char* name : {"", "App.kiln", "a/b", "..", ".hidden", "a_b", "\xc3\xa4"})
    EXPECT_FALSE(BundlePlace::parse("redis://localhost/0", name).ok()) << name;
  EXPECT_EQ(BundlePlace::parse("redis://u:p@localhost/0", "app-1.kiln").value().display(),
            "redis://localhost/0/bundles/app-1.kiln");
  EXPECT_TRUE(BundlePlace::parse("oci://localhost/app", "App.kiln").ok());
  EXPECT_FALSE(BundlePlace::parse("app.kiln", "app.kiln").ok());
}

}  // namespace
}  // namespace kiln::store
