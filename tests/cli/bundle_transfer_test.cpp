#include <thread>

#include "fakes/registries.hpp"
#include "store/bundle_samples.hpp"
#include "transfer_fixture.hpp"

// `kiln bundle push` and `kiln bundle pull`. tests/store/registry_test.cpp has what registries do.
namespace kiln::cli {
namespace {

class BundleCommand : public Cli {
 protected:
  fs::path bundle() const { return home_.path() / "app.kiln"; }
  fs::path copy() const { return home_.path() / "copy.kiln"; }

  void SetUp() override {
    static_cast<void>(store::write_bundle(bundle(), store::contents_of(store::sample_programs())).value());
  }
  Outcome run(const Words& words) const { return command_.run(words, {{"DOCKER_CONFIG", home_.path().string()}}); }
};

TEST_F(BundleCommand, CopiesABundleToARegistryAndBack) {
  if (!fakes::is_installed("docker-registry")) GTEST_SKIP() << "docker-registry is not installed";
  const fakes::DockerRegistry registry;
  const auto pushed = run({"bundle", "push", bundle(), registry.url("app:v1")});
  EXPECT_EQ(pushed.status, 0) << pushed.error;
  EXPECT_TRUE(pushed.out.starts_with("pushed " + bundle().string() + " to " + registry.url("app:v1") + " ("))
      << pushed.out;
  const std::string digest = "sha256:" + base::sha256(contents(bundle())).hex();
  EXPECT_TRUE(contains(pushed.out, "bundle    " + digest)) << pushed.out;
  EXPECT_TRUE(contains(pushed.out, "manifest  sha256:")) << pushed.out;
  EXPECT_TRUE(contains(run({"bundle", "push", bundle(), registry.url("app:v1")}).out, "which was there"));

  const auto pulled = run({"bundle", "pull", copy(), registry.url("app:v1"), "--json"});
  EXPECT_EQ(pulled.status, 0) << pulled.error;
  EXPECT_EQ(contents(copy()), contents(bundle()));
  const auto json = pulled.json();
  EXPECT_EQ(json["digest"], digest);
  EXPECT_EQ(json["bytes"], fs::file_size(bundle()));
  EXPECT_EQ(json["transferred"], fs::file_size(bundle()));
  EXPECT_EQ(json["url"], registry.url("app:v1"));
}

TEST_F(BundleCommand, CopiesABundleToAFolderUnderAName) {
  const std::string url = "file://" + (home_.path() / "store").string();
  EXPECT_EQ(run({"bundle", "push", bundle(), url, "--name", "app-v1.kiln"}).status, 0);
  EXPECT_EQ(contents(home_.path() / "store" / "bundles" / "app-v1.kiln"), contents(bundle()));
  const auto pulled = run({"bundle", "pull", copy(), url, "--name", "app-v1.kiln"});
  EXPECT_EQ(pulled.status, 0) << pulled.error;
  EXPECT_EQ(contents(copy()), contents(bundle()));
  const auto absent = run({"bundle", "pull", copy(), url});
  EXPECT_EQ(absent.status, 1);
  EXPECT_TRUE(contains(absent.error, "there is no bundle bundles/copy.kiln")) << absent.error;
}

TEST_F(BundleCommand, RefusesAFileThatIsNoBundle) {
  write(bundle(), "no bundle");
  const auto pushed = run({"bundle", "push", bundle(), "oci://127.0.0.1:1/app"});
  EXPECT_EQ(pushed.status, 1);
  EXPECT_TRUE(contains(pushed.error, bundle().string())) << pushed.error;
  EXPECT_FALSE(contains(pushed.error, "127.0.0.1")) << "nothing is sent: " << pushed.error;
}

TEST_F(BundleCommand, ExplainsUrlsThatItDoesNotAccept) {
  for (const Words& words : std::vector<Words>{{"app.kiln", "oci://host"},
                                               {"app.kiln", "host/app:v1"},
                                               {"App.kiln", "file:///tmp"},
                                               {"app.kiln", "oci://host/app", "--name", "app"},
                                               {"app.kiln"}}) {
    Words all = {"bundle", "pull"};
    all.insert(all.end(), words.begin(), words.end());
    const auto outcome = run(all);
    EXPECT_EQ(outcome.status, 2) << outcome.error;
    EXPECT_FALSE(outcome.error.empty());
  }
}

TEST_F(BundleCommand, EndsInOrderAfterCtrlC) {
  fakes::FakeRegistry registry;
  registry.pause();
  RunningCommand running(home_.path(), {"bundle", "pull", copy(), registry.url("app")}, {});
  // It connects afterwards.
  while (!fs::exists(copy().string() + ".part") && !running.has_ended()) std::this_thread::yield();
  running.send(SIGINT);
  const auto outcome = running.wait();
  EXPECT_EQ(outcome.status, 130) << outcome.error;
  EXPECT_TRUE(contains(outcome.error, "interrupted; run the same command to go on")) << outcome.error;
  EXPECT_FALSE(fs::exists(copy().string() + ".part"));
}

}  // namespace
}  // namespace kiln::cli
