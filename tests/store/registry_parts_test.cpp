#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "fakes/files.hpp"
#include "fakes/registries.hpp"
#include "store/registry.hpp"
#include "store/remote/docker_config.hpp"
#include "store/remote/http_connection.hpp"
#include "store/remote/oci_challenge.hpp"
#include "store/remote/oci_manifest.hpp"

// What registries and the configuration of Docker say, and URLs.
namespace kiln::store {
namespace {

RegistryUrl registry(const std::string& url) { return parse_registry_url(url).value(); }

TEST(RegistryUrl, HasARegistryARepositoryAndATag) {
  const auto url = registry("oci://Registry.example:5000/team/my_app:v1.0-rc_1");
  EXPECT_EQ(url.registry, "registry.example:5000");
  EXPECT_EQ(url.repository, "team/my_app");
  EXPECT_EQ(url.tag, "v1.0-rc_1");
  EXPECT_FALSE(url.is_plain_http);
  EXPECT_EQ(url.display(), "oci://registry.example:5000/team/my_app:v1.0-rc_1");
  EXPECT_EQ(registry("oci://host/app").tag, "latest");
}

TEST(RegistryUrl, NamesADigest) {
  const std::string digest(64, 'a');
  EXPECT_EQ(registry("oci://host/app@sha256:" + digest).reference(), "sha256:" + digest);
  EXPECT_EQ(registry("oci://host/app:v1@sha256:" + digest).display(), "oci://host/app@sha256:" + digest);
  for (const char* wrong : {"oci://host/app@sha256:12", "oci://host/app@sha512:1", "oci://host/app@"})
    EXPECT_FALSE(parse_registry_url(wrong).ok()) << wrong;
}

TEST(RegistryUrl, UsesPlainHttpOnThisMachineOnly) {
  for (const char* local : {"localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000", "cache.localhost"})
    EXPECT_TRUE(registry(std::string("oci://") + local + "/app").is_plain_http) << local;
  for (const char* remote : {"localhost.example", "127.example", "host", "10.0.0.1:5000"})
    EXPECT_FALSE(registry(std::string("oci://") + remote + "/app").is_plain_http) << remote;
  EXPECT_TRUE(registry("oci+http://host/app").is_plain_http);
  EXPECT_EQ(registry("oci+http://host:5000/app").display(), "oci+http://host:5000/app:latest");
  EXPECT_EQ(registry("oci://[::1]:5000/app").display(), "oci://[::1]:5000/app:latest");
  EXPECT_FALSE(registry("oci://localhost/app?ca=/ca.pem").is_plain_http);
  EXPECT_EQ(registry("oci://host/app?timeout=5s").timeout, std::chrono::seconds(5));
}

TEST(RegistryUrl, IsRefusedIfItIsWrong) {
  for (const char* wrong : {"oci://",
                            "oci://host",
                            "oci://host/",
                            "oci:///app",
                            "oci://host/App",
                            "oci://host/../app",
                            "oci://host/a//b",
                            "oci://host/app:",
                            "oci://host/app:-v",
                            "oci://host/app:v 1",
                            "oci://host/a\r\nb",
                            "oci://host:0/app",
                            "oci://host:99999/app",
                            "oci://u:secret@host/app",
                            "oci://host/app?mode=ro",
                            "oci://host/app?ca=relative",
                            "http://host/app",
                            "oci://host/.app",
                            "oci://host/a...b",
                            "oci+http://host/app?ca=/ca.pem"}) {
    const auto url = parse_registry_url(wrong);
    EXPECT_FALSE(url.ok()) << wrong;
    if (!url) {
      EXPECT_EQ(url.error().code(), ErrorCode::invalid_request);
      EXPECT_EQ(url.error().message().find("secret"), std::string::npos);
      EXPECT_TRUE(url.error().message().starts_with("the registry URL ")) << url.error().message();
    }
  }
}

TEST(OciChallenge, IsReadFromTheHeader) {
  const auto challenges = parse_challenges(
      R"(Bearer realm="https://auth.example/token",service="a, \"b\"", scope="repository:x:pull,push" , Basic realm=tests)");
  ASSERT_EQ(challenges.size(), 2U);
  EXPECT_EQ(challenges[0].scheme, "bearer");
  EXPECT_EQ(challenges[0].parameters.at("service"), R"(a, "b")");
  EXPECT_EQ(challenges[0].parameters.at("scope"), "repository:x:pull,push");
  EXPECT_EQ(challenges[1], (OciChallenge{"basic", {{"realm", "tests"}}}));
}

TEST(OciChallenge, IgnoresWhatHasNoForm) {
  EXPECT_TRUE(parse_challenges("").empty());
  EXPECT_TRUE(parse_challenges(" ,, = \"\x01").empty());
  EXPECT_EQ(parse_challenges("Negotiate abc==, Basic realm=\"x").back().scheme, "basic");
  EXPECT_EQ(parse_challenges("Basic realm=\"open").size(), 1U);
}

TEST(OciChallenge, NamesTheScopesOfATokenThatPermitsTheRequest) {
  using Scopes = std::vector<std::string>;
  const auto scopes = [](const std::string& challenged, bool writes) {
    return token_scopes({"bearer", {{"scope", challenged}}}, "team/app", writes);
  };
  EXPECT_EQ(token_scopes({"bearer"}, "team/app", false), Scopes{"repository:team/app:pull"});
  EXPECT_EQ(token_scopes({"bearer"}, "team/app", true), Scopes{"repository:team/app:pull,push"});
  EXPECT_EQ(scopes("repository:team/app:pull", true), Scopes{"repository:team/app:pull,push"});
  EXPECT_EQ(scopes("repository:team/app:*,pull", false), Scopes{"repository:team/app:*,pull"});
  EXPECT_EQ(scopes("registry:catalog:*  repository:team/app:push", false),
            (Scopes{"repository:team/app:pull,push", "registry:catalog:*"}));
  EXPECT_EQ(scopes("repository:team/app2:push", true),
            (Scopes{"repository:team/app:pull,push", "repository:team/app2:push"}));
}

TEST(DockerConfig, HasCredentialsByTheNameOfTheRegistry) {
  const std::string text = R"({"auths": {
      "https://host:5000/v2/": {"auth": "dTpwOnE="},
      "host:5000/team": {"auth": "dGVhbTpwYXNz"},
      "other": {"username": "name", "password": "word"},
      "https://index.docker.io/v1/": {"auth": "aHViOnA="}}})";
  EXPECT_EQ(find_registry_credentials(text, registry("oci://host:5000/app")).value(),
            (RegistryCredentials{.user = "u", .password = "p:q"}));
  EXPECT_EQ(find_registry_credentials(text, registry("oci://host:5000/team/app")).value().user, "team");
  EXPECT_EQ(find_registry_credentials(text, registry("oci://host:5000/teams/app")).value().user, "u");
  EXPECT_EQ(find_registry_credentials(text, registry("oci://other/app")).value().password, "word");
  EXPECT_EQ(find_registry_credentials(text, registry("oci://docker.io/app")).value().user, "hub");
  EXPECT_FALSE(find_registry_credentials(text, registry("oci://host/app")).value().is_known());
}

TEST(DockerConfig, NamesTheHelperThatHasTheCredentials) {
  const std::string text = R"({"credsStore": "all", "credHelpers": {"host": "one"}})";
  EXPECT_EQ(find_registry_credentials(text, registry("oci://host/app")).value().helper, "one");
  EXPECT_EQ(find_registry_credentials(text, registry("oci://other/app")).value().helper, "all");
}

TEST(DockerConfig, IsRefusedIfItIsWrong) {
  for (const char* wrong :
       {"", "[]", R"({"auths": {"host": {"auth": "???"}}})", R"({"auths": {"host": {"auth": "YQ=="}}})",
        R"({"auths": {"host": {"username": "a\nb", "password": "c"}}})"})
    EXPECT_FALSE(find_registry_credentials(wrong, registry("oci://host/app")).ok()) << wrong;
}

TEST(DockerConfig, IsTheFirstFileThatAVariableNames) {
  const fakes::DockerEnvironment docker(fakes::docker_config("host", "docker"));
  const fakes::TemporaryFolder folder;
  fakes::write_file(folder.path() / "auth.json", fakes::docker_config("host", "podman"));
  EXPECT_EQ(read_registry_credentials(registry("oci://host/app")).value().credentials.user, "docker");
  setenv("REGISTRY_AUTH_FILE", (folder.path() / "auth.json").c_str(), 1);
  EXPECT_EQ(read_registry_credentials(registry("oci://host/app")).value().credentials.user, "podman");
  // Somebody else could have changed the name of a helper or the credentials.
  std::filesystem::permissions(folder.path() / "auth.json", std::filesystem::perms::all);
  const auto unsafe = read_registry_credentials(registry("oci://host/app"));
  unsetenv("REGISTRY_AUTH_FILE");
  ASSERT_FALSE(unsafe.ok());
  EXPECT_NE(unsafe.error().message().find("auth.json"), std::string::npos);
}

TEST(OciManifest, IsReadAsItWasMade) {
  const BundleToPush bundle{.digest = {{std::byte{1}}}, .size = 77, .title = "app \"1\".kiln"};
  const std::string text = make_bundle_manifest(bundle);
  const auto parsed = parse_bundle_manifest(text).value();
  EXPECT_FALSE(parsed.is_index);
  EXPECT_EQ(parsed.digest, bundle.digest);
  EXPECT_EQ(parsed.size, 77U);
  EXPECT_EQ(make_bundle_manifest(bundle), text);
}

TEST(OciManifest, MayBeAnIndexWithOneBundle) {
  const std::string digest(64, 'b');
  const std::string of_bundle =
      R"({"artifactType": "application/vnd.kiln.bundle.v1", "digest": "sha256:)" + digest + R"(", "size": 500})";
  const std::string of_image = R"({"digest": "sha256:1", "size": 1})";
  const auto index = [](const std::string& manifests) { return R"({"manifests": [)" + manifests + "]}"; };
  const auto parsed = parse_bundle_manifest(index(of_image + "," + of_bundle)).value();
  EXPECT_TRUE(parsed.is_index);
  EXPECT_EQ(parsed.digest.hex(), digest);
  EXPECT_FALSE(parse_bundle_manifest(index(of_image)).ok());
  EXPECT_FALSE(parse_bundle_manifest(index(of_bundle + "," + of_bundle)).ok());
}

TEST(HttpAddress, ResolvesWhatAnAnswerNames) {
  const auto from = HttpAddress::parse("https://host:5000/v2/app/blobs/uploads/").value();
  EXPECT_EQ(from.resolve("/v2/x?y=1")->url, "https://host:5000/v2/x?y=1");
  EXPECT_EQ(from.resolve("x")->url, "https://host:5000/v2/app/blobs/uploads/x");
  EXPECT_EQ(from.resolve("https://host:5000/../../z")->url, "https://host:5000/z");
  EXPECT_EQ(from.resolve("//evil/x")->origin, "https://evil:443");
  EXPECT_EQ(from.resolve("https://host:5000@evil/x")->origin, "https://evil:443");
  EXPECT_FALSE(from.resolve("file:///etc/passwd"));
  EXPECT_FALSE(from.resolve("https://host/\r\nX: 1"));
}

}  // namespace
}  // namespace kiln::store
