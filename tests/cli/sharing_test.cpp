#include <kiln/device.hpp>

#include "cli_fixture.hpp"
#include "fakes/files.hpp"

namespace kiln::cli {
namespace {

/// Commands with a shared folder that only this user can write to, on the best device of this machine.
class CliSharing : public Cli {
 protected:
  void SetUp() override {
    const auto device = open_device("", quiet);
    ASSERT_TRUE(device) << device.error().message();
    if ((*device)->identity().formats.empty()) GTEST_SKIP() << "the driver returns no binaries";
    identity_ = (*device)->identity();
    fs::create_directory(shared());
    fs::permissions(shared(), fs::perms::owner_all);
  }

  fs::path shared() const { return home_.path() / "shared"; }
  std::string url() const { return "file://" + shared().string(); }
  fs::path folder_of(const std::string& identity) const { return shared() / "3" / identity; }

  /// Compiles the program on "another machine", which uploads it.
  void compile_elsewhere() const {
    const auto compiled = command_.run(
        {"compile", file_, "-D", "TILE=8", "--dir", (home_.path() / "other").string(), "--shared", url()});
    ASSERT_EQ(compiled.status, 0) << compiled.error;
    ASSERT_TRUE(fs::exists(folder_of(identity_.digest().hex()) / "identity.json"));
  }
  /// `kiln why` for the program, with a store.
  Outcome why(const std::string& store, Words options = {}) const {
    options.insert(options.begin(), {"why", file_, "-D", "TILE=8", "--shared", store});
    return kiln(options);
  }

  Identity identity_;
  const std::string file_ = source_file("double.comp");
};

TEST_F(CliSharing, WhyNamesTheCompilerIfNoStoreHasTheProgram) {
  const auto text = why(url());
  EXPECT_EQ(text.status, 1) << text.error;
  EXPECT_TRUE(contains(unwrapped(text.out), "level compiler ")) << text.out;
  EXPECT_TRUE(contains(unwrapped(text.out), "shared store " + url() + ": miss")) << text.out;
  const auto json = why(url(), {"--json"}).json();
  EXPECT_EQ(json["level"], "compiler");
  EXPECT_EQ(json["store"], nullptr);
  EXPECT_EQ(json["stores"][0]["outcome"], "miss");
  const auto alone = why("none", {"--json"}).json();
  EXPECT_EQ(alone["level"], "compiler");
  EXPECT_EQ(alone["stores"], nlohmann::json::array());
}

TEST_F(CliSharing, WhyNamesTheStoreAndThenTheDiskThatHasTheProgram) {
  compile_elsewhere();
  const auto text = why(url());
  EXPECT_EQ(text.status, 0) << text.error;
  EXPECT_TRUE(text.out.starts_with("hit: double")) << text.out;
  EXPECT_TRUE(contains(unwrapped(text.out), "level shared store " + url())) << text.out;
  const auto json = why(url(), {"--json"}).json();
  EXPECT_EQ(json["hit"], true);
  EXPECT_EQ(json["level"], "shared");
  EXPECT_EQ(json["store"], url());
  EXPECT_EQ(json["stores"][0]["outcome"], "hit");

  ASSERT_EQ(kiln({"compile", file_, "-D", "TILE=8", "--shared", url()}).status, 0);
  const auto on_disk = why(url());
  EXPECT_EQ(on_disk.status, 0) << on_disk.error;
  EXPECT_TRUE(contains(unwrapped(on_disk.out), "level disk ")) << on_disk.out;
  EXPECT_EQ(why(url(), {"--json"}).json()["level"], "disk");
}

TEST_F(CliSharing, WhyNamesTheStoreThatIsNotTrusted) {
  compile_elsewhere();
  const auto json = why(url() + "?verify=required", {"--json"});
  EXPECT_EQ(json.status, 1);
  EXPECT_EQ(json.json()["level"], "compiler");
  EXPECT_EQ(json.json()["stores"][0]["outcome"], "refused");
}

TEST_F(CliSharing, WhyNamesTheFieldThatDiffersIfTheFolderHasTheProgramOfAnotherDevice) {
  compile_elsewhere();
  // As if a machine with another driver had uploaded it.
  const auto other = folder_of(std::string(64, '1'));
  fs::rename(folder_of(identity_.digest().hex()), other);
  auto manifest = nlohmann::json::parse(contents(other / "identity.json"));
  manifest["identity"]["driver"] = "driver 0.1";
  fakes::write_file(other / "identity.json", manifest.dump());

  const auto text = why(url());
  EXPECT_EQ(text.status, 1);
  EXPECT_TRUE(contains(unwrapped(text.out), url() + ": miss; it has the program for another device: driver " +
                                                "driver 0.1, not " + unwrapped(identity_.driver)))
      << text.out;
  const auto differences = why(url(), {"--json"}).json()["stores"][0]["differences"];
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0]["field"], "driver");
  EXPECT_EQ(differences[0]["stored"], "driver 0.1");
}

TEST_F(CliSharing, WhyDoesNotCreateAFolder) {
  const auto missing = home_.path() / "missing";
  const auto asked = kiln({"why", file_, "-D", "TILE=8", "--shared", "file://" + missing.string(), "--json"});
  EXPECT_EQ(asked.json()["stores"][0]["outcome"], "miss") << asked.error;
  EXPECT_FALSE(std::filesystem::exists(missing));
}

TEST_F(CliSharing, StatsCountEachStore) {
  EXPECT_FALSE(contains(kiln({"stats"}).out, "SHARED STORE"));
  compile_elsewhere();
  ASSERT_EQ(kiln({"compile", file_, "-D", "TILE=8", "--shared", url()}).status, 0);
  auto narrow = kiln_on_terminal({"stats", "--color=never"}, "", {}, 80).out;
  std::erase(narrow, '\r');
  EXPECT_LE(widest(narrow), 80U) << narrow;
  const auto text = kiln({"stats"});
  EXPECT_TRUE(contains(text.out, "SHARED STORE")) << text.out;
  const auto stores = kiln({"stats", "--json"}).json()["lifetime"]["stores"];
  ASSERT_EQ(stores.size(), 1U);
  EXPECT_EQ(stores[0]["name"], url());
  EXPECT_EQ(stores[0]["hits"], 1);
  EXPECT_EQ(stores[0]["uploads"], 0);
  const auto elsewhere = command_.run({"stats", "--json", "--dir", (home_.path() / "other").string()});
  EXPECT_EQ(elsewhere.json()["lifetime"]["stores"][0]["uploads"], 1);
}

TEST_F(CliSharing, AnInvalidUrlIsAnErrorOfTheCommandLine) {
  for (const char* command : {"compile", "why"}) {
    const auto refused = kiln({command, file_, "-D", "TILE=8", "--shared", "ftp://host"});
    EXPECT_EQ(refused.status, 2) << command;
    EXPECT_TRUE(refused.error.starts_with("kiln: --shared: the store URL ")) << refused.error;
  }
}

TEST_F(CliSharing, TheDemoUsesOnlyTheStoresOfItsCommandLine) {
  // How many programs the cold process loads.
  const auto loaded = [this](const Words& options) {
    Words words = {"demo", "--json", "--runs", "1"};
    words.insert(words.end(), options.begin(), options.end());
    const auto outcome = command_.run(words, {{"KILN_SHARED", url()}});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    const auto report = outcome.json();
    return report.at("programs").get<int>() - report.at("cold").at("compiles").get<int>();
  };
  EXPECT_EQ(loaded({}), 0);
  EXPECT_TRUE(fs::is_empty(shared()));
  EXPECT_EQ(loaded({"--shared", url()}), 0);
  EXPECT_FALSE(fs::is_empty(shared()));
  EXPECT_GT(loaded({"--shared", url()}), 0);
}

}  // namespace
}  // namespace kiln::cli
