#include <chrono>

#include "base/event.hpp"
#include "store/bundle_transfers.hpp"
#include "store/remote/http_connection.hpp"
#include "store/remote/oci_registry.hpp"

// Registries that fail, lie or require tokens.
namespace kiln::store {
namespace {

class FakeRegistryTest : public BundleTransfers {
 protected:
  void SetUp() override {
    BundleTransfers::SetUp();
    url_ = registry_.url("team/app:v1");
  }

  /// The failure of a pull, which leaves no file.
  std::string pull_failure(const std::string& behaviour) {
    static_cast<void>(push(url_).value());
    registry_.behave(behaviour);
    const std::string failure = transfer_failure(pull(url_));
    EXPECT_FALSE(std::filesystem::exists(copy()));
    return failure;
  }
  std::string push_failure(const std::string& behaviour) {
    registry_.behave(behaviour);
    return transfer_failure(push(url_));
  }
  std::size_t count(const std::string& text) const {
    const std::string log = registry_.requests();
    std::size_t found = 0;
    for (std::size_t at = 0; (at = log.find(text, at)) != std::string::npos; ++at) ++found;
    return found;
  }
  /// Pushes in parts of 1000 bytes.
  Result<PushedBundle> push_in_parts() const {
    const std::string bytes = fakes::read_file(bundle());
    const BundleToPush to_push{
        .digest = base::sha256(bytes),
        .size = bytes.size(),
        .title = "app.kiln",
        .read = [&bytes](std::uint64_t offset, std::span<std::byte> to) -> Result<std::size_t> {
          return bytes.copy(reinterpret_cast<char*>(to.data()), to.size(), static_cast<std::size_t>(offset));
        }};
    return make_oci_registry(parse_registry_url(url_).value(), 1000).value()->push(to_push, -1, {});
  }

  const fakes::FakeRegistry registry_;
  std::string url_;
};

TEST_F(FakeRegistryTest, GetsABundleOnce) {
  EXPECT_EQ(push(url_).value().transferred, std::filesystem::file_size(bundle()));
  EXPECT_EQ(push(url_).value().transferred, 0U);
  EXPECT_EQ(count("PUT /v2/team/app/blobs/"), 2U);
  EXPECT_TRUE(pull(url_).ok());
  expect_copied();
}

TEST_F(FakeRegistryTest, CannotReplaceTheBundleByOtherBytes) {
  const std::string failure = pull_failure(R"({"wrong_bytes": true})");
  EXPECT_TRUE(failure.starts_with("damaged: ")) << failure;
  EXPECT_TRUE(has_text(failure, "sends other bytes than sha256:")) << failure;
  EXPECT_FALSE(std::filesystem::exists(part()));
}

TEST_F(FakeRegistryTest, CannotSendMoreThanItAnnounced) {
  const std::string failure = pull_failure(R"({"more_bytes": 1000000})");
  EXPECT_TRUE(failure.starts_with("damaged: ")) << failure;
  EXPECT_TRUE(has_text(failure, "sends more than the")) << failure;
}

TEST_F(FakeRegistryTest, IsAskedForTheRestAfterABrokenConnection) {
  make_bundle(500'000);
  static_cast<void>(push(url_).value());
  registry_.behave(R"({"cut": [1, 200000]})");
  EXPECT_TRUE(pull(url_).ok());
  expect_copied();
  EXPECT_EQ(count("GET /v2/team/app/blobs/sha256:"), 2U);
  EXPECT_TRUE(has_text(registry_.requests(), " 206 none")) << registry_.requests();
}

TEST_F(FakeRegistryTest, MaySendAllOfTheBundleAgain) {
  make_bundle(500'000);
  static_cast<void>(push(url_).value());
  registry_.behave(R"({"cut": [1, 200000], "whole_blobs": true})");
  EXPECT_TRUE(pull(url_).ok());
  expect_copied();
}

// At last, these two would send all of it.
TEST_F(FakeRegistryTest, CannotLetAPullBeginAgainForEver) {
  make_bundle(500'000);
  const std::string failure = pull_failure(R"({"cut": [9, 200000], "no_ranges": true})");
  EXPECT_TRUE(failure.starts_with("io: ")) << failure;
}

TEST_F(FakeRegistryTest, CannotPretendProgressByShorterAnswers) {
  make_bundle(500'000);
  const std::string failure = pull_failure(R"({"cut": [9, 200000], "varying_cuts": true, "whole_blobs": true})");
  EXPECT_TRUE(failure.starts_with("io: ")) << failure;
}

TEST_F(FakeRegistryTest, GivesNoCredentialsToTheServerThatHasTheFile) {
  const fakes::DockerEnvironment docker(fakes::docker_config(registry_.name()));
  static_cast<void>(push(url_).value());
  registry_.behave(R"({"auth": "bearer", "redirect": "http://localhost:PORT/elsewhere/DIGEST"})");
  EXPECT_TRUE(pull(url_).ok());
  expect_copied();
  EXPECT_TRUE(has_text(registry_.requests(), " 307 bearer")) << registry_.requests();
  EXPECT_EQ(count("GET /elsewhere/"), 1U);
  EXPECT_TRUE(has_text(registry_.requests(), " 200 none\n")) << registry_.requests();
}

TEST_F(FakeRegistryTest, CannotRedirectForEver) {
  const std::string failure = pull_failure(R"({"redirect": "/v2/team/app/blobs/DIGEST"})");
  EXPECT_TRUE(has_text(failure, "redirects more than five times")) << failure;
}

TEST_F(FakeRegistryTest, CannotNameAnotherServerToWriteTo) {
  for (const char* location : {"http://localhost:PORT/v2/team/app/blobs/uploads/0", "//localhost:1/",
                               "ftp://127.0.0.1/", "http://127.0.0.1:PORT@localhost/"}) {
    const std::string failure = push_failure(fmt::format(R"({{"location": "{}"}})", location));
    EXPECT_TRUE(has_text(failure, "another server") || has_text(failure, "no valid address")) << failure;
  }
  EXPECT_EQ(count("PUT "), 0U);
}

TEST_F(FakeRegistryTest, MayNameAnAbsoluteOrARelativeAddressToWriteTo) {
  // One upload is the empty configuration, the other one the bundle.
  registry_.behave(R"({"location": "http://127.0.0.1:PORT/v2/team/app/blobs/uploads/0?state=a%2Fb"})");
  static_cast<void>(push(url_));
  EXPECT_TRUE(has_text(registry_.requests(), "uploads/0?state=a%2Fb&digest=sha256%3A")) << registry_.requests();
  make_bundle(2000);
  registry_.behave(R"({"location": "../../../app/blobs/./uploads/0"})");
  static_cast<void>(push(url_));
  EXPECT_TRUE(has_text(registry_.requests(), "PUT /v2/team/app/blobs/uploads/0?digest")) << registry_.requests();
}

TEST_F(FakeRegistryTest, ContinuesAPartAfterABrokenConnection) {
  make_bundle(5000);
  registry_.behave(R"({"cut_parts": 1})");
  EXPECT_TRUE(push_in_parts().ok()) << registry_.requests();
  EXPECT_TRUE(has_text(registry_.requests(), " 204 none")) << registry_.requests();
  EXPECT_TRUE(pull(url_).ok());
  expect_copied();
}

TEST_F(FakeRegistryTest, GetsABundleAtOnceIfItTakesNoParts) {
  registry_.behave(R"({"patch_status": 405})");
  EXPECT_TRUE(push_in_parts().ok()) << registry_.requests();
  EXPECT_TRUE(pull(url_).ok());
  expect_copied();
}

TEST_F(FakeRegistryTest, IsNotSentAFileAgainWhoseLastAnswerWasLost) {
  make_bundle(5000);
  registry_.behave(R"({"lost_answers": 1})");
  EXPECT_TRUE(push_in_parts().ok()) << registry_.requests();
  // That of the empty configuration, and one of the file.
  EXPECT_EQ(count("POST /v2/team/app/blobs/uploads/ "), 2U) << registry_.requests();
  EXPECT_TRUE(pull(url_).ok());
  expect_copied();
}

TEST_F(FakeRegistryTest, MayStoreAFileForLongerThanTheTimeout) {
  make_bundle(5000);
  registry_.behave(R"({"lost_answers": 1, "silent": true, "closes": true})");
  url_ += "?timeout=500ms";
  EXPECT_TRUE(push_in_parts().ok()) << registry_.requests();
  EXPECT_EQ(count("POST /v2/team/app/blobs/uploads/ "), 2U) << registry_.requests();
}

TEST_F(FakeRegistryTest, GetsABundleAtOnceOnlyIfItTakesNoParts) {
  make_bundle(5000);
  // A part after the first one.
  registry_.behave(R"({"refused_part": 2})");
  EXPECT_TRUE(transfer_failure(push_in_parts()).starts_with("unsupported: ")) << registry_.requests();
  EXPECT_EQ(count("POST /v2/team/app/blobs/uploads/ "), 2U) << registry_.requests();
}

TEST_F(FakeRegistryTest, GetsATokenWithTheRightToPush) {
  // Of the challenges, one names no right, and one other rights.
  for (const char* scope : {"", "repository:NAME:pull", "repository:NAME:delete repository:other:pull"}) {
    const fakes::FakeRegistry registry;
    const fakes::DockerEnvironment login(fakes::docker_config(registry.name()));
    registry.behave(fmt::format(R"({{"auth": "bearer", "scope": "{}"}})", scope));
    const auto pushed = push(registry.url("team/app:v1"));
    EXPECT_TRUE(pushed.ok()) << transfer_failure(pushed) << "\n" << registry.requests();
  }
}

TEST_F(FakeRegistryTest, GetsATokenFromItsServer) {
  registry_.behave(R"({"auth": "bearer"})");
  const std::string nobody = transfer_failure(push(url_));
  EXPECT_TRUE(nobody.starts_with("denied: ")) << nobody;
  EXPECT_TRUE(has_text(nobody, "its server of tokens refuses one; there is no file /")) << nobody;
  const fakes::DockerEnvironment docker(fakes::docker_config("https://" + registry_.name() + "/v2/"));
  EXPECT_TRUE(push(url_).ok());
  EXPECT_TRUE(pull(url_).ok());
  expect_copied();
  EXPECT_FALSE(has_text(registry_.requests(), "/v2/team/app/manifests/v1 200 basic")) << registry_.requests();
}

TEST_F(FakeRegistryTest, GetsANewTokenWhenOneHasExpired) {
  const fakes::DockerEnvironment docker(fakes::docker_config(registry_.name()));
  registry_.behave(R"({"auth": "bearer", "token_uses": 2})");
  EXPECT_TRUE(push(url_).ok()) << registry_.requests();
  EXPECT_GE(count("GET /token?"), 2U);
}

TEST_F(FakeRegistryTest, TakesAnIdentityToken) {
  const fakes::DockerEnvironment docker(
      fmt::format(R"({{"auths": {{"{}": {{"auth": "PHRva2VuPjo=", "identitytoken": "identity-token-17"}}}}}})",
                  registry_.name()));
  registry_.behave(R"({"auth": "bearer"})");
  EXPECT_TRUE(push(url_).ok()) << registry_.requests();
  EXPECT_EQ(count("POST /token 200"), 1U);
}

TEST_F(FakeRegistryTest, CannotPutALineBreakIntoARequest) {
  const fakes::DockerEnvironment docker(fakes::docker_config(registry_.name()));
  const std::string failure =
      push_failure(R"({"auth": "bearer", "token_answer": "{\"token\": \"a\\r\\nX-Injected: 1\"}"})");
  EXPECT_TRUE(has_text(failure, "its server of tokens sends none")) << failure;
  const std::string realm = push_failure(R"({"auth": "bearer", "realm": "file:///etc/passwd"})");
  EXPECT_TRUE(has_text(realm, "does not name a valid server of tokens")) << realm;
}

TEST_F(FakeRegistryTest, LeavesCredentialsToHelpersThatAreNotRun) {
  const fakes::DockerEnvironment docker(R"({"credsStore": "desktop", "auths": {}})");
  const std::string failure = push_failure(R"({"auth": "basic"})");
  EXPECT_TRUE(has_text(failure, "leaves the credentials to the helper desktop, and Kiln runs no helpers"))
      << failure;
}

TEST_F(FakeRegistryTest, HasOtherThingsThanBundles) {
  const auto refused = [&](const std::string& manifest, const std::string& why) {
    const std::string failure = pull_failure(nlohmann::json{{"manifest", manifest}}.dump());
    EXPECT_TRUE(has_text(failure, why)) << failure;
    registry_.behave("{}");
  };
  refused(R"({"schemaVersion": 2, "config": {"mediaType": "application/vnd.oci.image.config.v1+json"}})",
          "it is no bundle but application/vnd.oci.image.config.v1+json");
  refused(R"({"manifests": [{"platform": {}, "digest": "sha256:0", "size": 3}]})", "an index without a bundle");
  refused("[]", "not a JSON object");
  refused(std::string(100'000, '['), "not a JSON object");
  refused(std::string(5 << 20, ' '), "the server sends more than 4 MiB, the limit of a manifest");
  refused(R"({"artifactType": "application/vnd.kiln.bundle.v1", "layers": []})", "has one layer");
  refused(R"({"artifactType": "application/vnd.kiln.bundle.v1", "layers": [{"mediaType": "\u001b[31mevil"}]})",
          "the layer is no bundle but ?[31mevil");
}

TEST_F(FakeRegistryTest, HasABundleInAnIndex) {
  const auto pushed = push(url_).value();
  const std::string index = fmt::format(
      R"({{"manifests": [{{"artifactType": "{}", "digest": "sha256:{}", "size": 600}}, {{"digest": "sha256:0"}}]}})",
      bundle_media_type, pushed.manifest->hex());
  registry_.behave(nlohmann::json{{"index", index}}.dump());
  const auto pulled = pull(url_).value();
  EXPECT_EQ(pulled.manifest, pushed.manifest);
  expect_copied();
  // Another manifest than the index names.
  registry_.behave(nlohmann::json{{"manifest", index}}.dump());
  EXPECT_TRUE(has_text(transfer_failure(pull(url_)), "sends another manifest than sha256:"));
}

TEST_F(FakeRegistryTest, CannotFillTheDisk) {
  const std::uint64_t size = std::filesystem::file_size(bundle());
  // More than the bundle has with the largest signatures.
  const std::string larger = pull_failure(fmt::format(R"({{"claimed_size": {}}})", size + 1'000'000));
  EXPECT_TRUE(has_text(larger, "has no usable bundle: ")) << larger;
  EXPECT_FALSE(std::filesystem::exists(part()));
  const std::string smaller = pull_failure(fmt::format(R"({{"claimed_size": {}, "cut": [1, 500]}})", 600));
  EXPECT_TRUE(has_text(smaller, "has no usable bundle: ")) << smaller;
  EXPECT_FALSE(std::filesystem::exists(part()));
  const std::string full = pull_failure(R"({"claimed_size": 1000000000000000000})");
  EXPECT_TRUE(has_text(full, "bytes are free")) << full;
  EXPECT_FALSE(std::filesystem::exists(part()));
}

TEST_F(FakeRegistryTest, CannotSendAnythingElseToTheEnd) {
  const std::string text(3'000'000, 'x');
  fakes::write_file(bundle(), text);
  const BundleToPush no_bundle{
      .digest = base::sha256(text),
      .size = text.size(),
      .read = [&text](std::uint64_t offset, std::span<std::byte> to) -> Result<std::size_t> {
        return text.copy(reinterpret_cast<char*>(to.data()), to.size(), static_cast<std::size_t>(offset));
      }};
  static_cast<void>(make_oci_registry(parse_registry_url(url_).value()).value()->push(no_bundle, -1, {}).value());
  std::uint64_t received = 0;
  const auto pulled = pull(url_, {.progress = [&](std::uint64_t done, std::uint64_t) { received = done; }});
  EXPECT_TRUE(
      has_text(transfer_failure(pulled), "team/app:v1 has no usable bundle: it does not begin as bundles do"))
      << transfer_failure(pulled);
  EXPECT_LT(received, text.size());
  EXPECT_FALSE(std::filesystem::exists(part()));
}

TEST_F(FakeRegistryTest, IsOverloaded) {
  const std::string failure =
      push_failure(R"({"refused": "/uploads/", "status": 429, "retry_after": 3000, "code": "TOOMANYREQUESTS"})");
  EXPECT_TRUE(has_text(failure, "try again in 3000 s (status 429, TOOMANYREQUESTS)")) << failure;
}

TEST_F(FakeRegistryTest, PermitsNoPushing) {
  const std::string failure = push_failure(R"({"refused": "/uploads/", "status": 403, "code": "DENIED"})");
  EXPECT_TRUE(has_text(failure, "permits no push to team/app")) << failure;
  EXPECT_TRUE(has_text(failure, "(status 403, DENIED)")) << failure;
}

TEST_F(FakeRegistryTest, MayWorkOnABodyUntilTheDeadline) {
  registry_.behave(R"({"slow_s": 0.4})");
  const auto put = [&](const CallLimit& limit) {
    const auto address = HttpAddress::parse("http://" + registry_.name() + "/v2/app/manifests/v1").value();
    const std::string text = "a body";
    return HttpConnection::create()->exchange(
        {.method = HttpMethod::put, .address = address, .body = std::as_bytes(std::span(text)), .ca = {}}, limit);
  };
  const auto now = std::chrono::steady_clock::now();
  constexpr std::chrono::milliseconds idle(100);
  const auto answer = put({.deadline = now + std::chrono::minutes(1), .idle = idle});
  EXPECT_EQ(answer ? answer->status : 0, 201) << transfer_failure(answer);
  // Without a deadline, nothing else ends the call.
  EXPECT_TRUE(transfer_failure(put({.idle = idle})).starts_with("timed_out: "));
}

TEST_F(FakeRegistryTest, KeepsTheUnfinishedFileOfAPullThatFailsLater) {
  fakes::write_file(part(), "unfinished");
  registry_.behave(R"({"refused": "/manifests/", "status": 403})");
  EXPECT_TRUE(transfer_failure(pull(url_)).starts_with("denied: "));
  EXPECT_EQ(fakes::read_file(part()), "unfinished");
}

}  // namespace
}  // namespace kiln::store
