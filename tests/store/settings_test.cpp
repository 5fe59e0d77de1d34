#include "store/settings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <sys/stat.h>
#include <unistd.h>

#include "base/process.hpp"
#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/set_uid.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln::store {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr const char* password = "correct-horse-battery";

std::vector<std::string> urls_of(const StoreList& stores) {
  std::vector<std::string> urls;
  for (const auto& store : stores.value) urls.push_back(store.value);
  return urls;
}

std::vector<std::string> sources_of(const StoreList& stores) {
  std::vector<std::string> sources;
  for (const auto& store : stores.value) sources.push_back(store.source);
  return sources;
}

using Texts = std::vector<std::string>;

TEST(Config, HasSettingsCommentsAndBlankLines) {
  const auto config = parse_config(
      "# Settings of this machine\n"
      "\n"
      "\tstore=redis://cache.example:6379/0?mode=ro\r\n"
      "  store =  file:///mnt/kiln  \n"
      "share_facts = no\n"
      "upload_limit = 500ms\n"
      "signing_key = /etc/kiln/my ci.key ",
      "/etc/kiln.conf");
  EXPECT_EQ(config.problems, Texts());
  ASSERT_TRUE(config.stores);
  EXPECT_EQ(config.stores->source, "/etc/kiln.conf:3");
  EXPECT_EQ(urls_of(*config.stores), (Texts{"redis://cache.example:6379/0?mode=ro", "file:///mnt/kiln"}));
  EXPECT_EQ(sources_of(*config.stores), (Texts{"/etc/kiln.conf:3", "/etc/kiln.conf:4"}));
  EXPECT_EQ(config.share_facts, (Setting<bool>{false, "/etc/kiln.conf:5"}));
  EXPECT_EQ(config.upload_limit, (Setting<std::chrono::milliseconds>{500ms, "/etc/kiln.conf:6"}));
  EXPECT_EQ(config.signing_key, (Setting<fs::path>{"/etc/kiln/my ci.key", "/etc/kiln.conf:7"}));
}

TEST(Config, TakesValuesLiterallyToTheEndOfTheLine) {
  const auto config = parse_config("signing_key = /a # b = \"c\" \\\n");
  EXPECT_EQ(config.problems, Texts());
  EXPECT_EQ(config.signing_key->value, "/a # b = \"c\" \\");
}

TEST(Config, NamesBundlesAndThePolicy) {
  const auto config = parse_config(
      "bundle = /opt/app.kiln\nbundle = /opt/b.kiln?verify=required\nbundle = c.kiln\ncompile = never\n"
      "compile = sometimes\n",
      "/etc/kiln.conf");
  ASSERT_TRUE(config.bundles && config.compile);
  EXPECT_EQ(config.bundles->source, "/etc/kiln.conf:1");
  ASSERT_EQ(config.bundles->value.size(), 2U);
  EXPECT_EQ(config.bundles->value[0].value, (Bundle{"/opt/app.kiln", Verification::off}));
  EXPECT_EQ(config.bundles->value[1].value, (Bundle{"/opt/b.kiln", Verification::required}));
  EXPECT_EQ(config.compile, (Setting<CompilePolicy>{CompilePolicy::never, "/etc/kiln.conf:4"}));
  ASSERT_EQ(config.problems.size(), 2U);
  EXPECT_NE(config.problems[0].find("kiln.conf:3: the setting needs an absolute path"), std::string::npos);
  EXPECT_NE(config.problems[1].find("kiln.conf:5: compile is not always, never or background"), std::string::npos);
  EXPECT_TRUE(parse_config("bundle = none").bundles->value.empty());
}

TEST(Config, OfNothingSetsNothing) {
  for (const char* text : {"", "\n", "#", "# store = file:///mnt/kiln", " \t\r\n\n "}) {
    const auto config = parse_config(text);
    EXPECT_FALSE(config.stores || config.share_facts || config.upload_limit || config.signing_key) << text;
    EXPECT_EQ(config.problems, Texts()) << text;
  }
}

TEST(Config, NamesTheLineOfEachProblemAndUsesTheOthers) {
  const struct {
    std::string line;
    std::string problem;
  } cases[] = {
      {"hello", "kiln.conf:2: the line has no '='"},
      {"cache = /a", "kiln.conf:2: there is no setting of this name; the settings are store, bundle, compile, "},
      {"= /a", "kiln.conf:2: there is no setting of this name"},
      {"directory = /a", "kiln.conf:2: there is no setting of this name"},
      {"Signing_key = /a", "kiln.conf:2: there is no setting of this name"},
      {"signing_key =", "kiln.conf:2: the setting has no value"},
      {"signing_key = ci.key", "kiln.conf:2: the setting needs an absolute path"},
      {"signing_key = ~/ci.key", "kiln.conf:2: the setting needs an absolute path"},
      {"signing_key = /a\tb", "kiln.conf:2: the value has control characters"},
      {std::string("signing_key = /a\0b", 18), "kiln.conf:2: the value has control characters"},
      {"share_facts = maybe", "kiln.conf:2: share_facts is not 1 or 0"},
      {"upload_limit = 2", "kiln.conf:2: upload_limit is not a time"},
      {"upload_limit = s", "kiln.conf:2: upload_limit is not a time"},
      {"upload_limit = -1s", "kiln.conf:2: upload_limit is not a time"},
      {"upload_limit = nans", "kiln.conf:2: upload_limit is not a time"},
      {"upload_limit = infs", "kiln.conf:2: upload_limit is not a time"},
      {"upload_limit = 1e3s", "kiln.conf:2: upload_limit is not a time"},
      {"upload_limit = 3601s", "kiln.conf:2: upload_limit is not a time"},
      {"store = ftp://example/", "kiln.conf:2: the store URL does not begin with file://"},
      {"store = redis://host:99999/", "kiln.conf:2: the store URL has an invalid port; this store is not used"},
      {"store = " + std::string(max_config_line_bytes, 'x'), "kiln.conf:2: the line has more than 16384 bytes"}};
  for (const auto& [line, problem] : cases) {
    const auto config = parse_config("\n" + line + "\nstore = file:///mnt/kiln\n");
    ASSERT_EQ(config.problems.size(), 1U) << line;
    EXPECT_TRUE(config.problems[0].starts_with(problem)) << config.problems[0];
    EXPECT_FALSE(config.share_facts || config.upload_limit || config.signing_key) << line;
    EXPECT_EQ(urls_of(config.stores.value()), (Texts{"file:///mnt/kiln"})) << line;
  }
}

TEST(Config, KeepsTheFirstValueOfASettingThatIsThereTwice) {
  const auto config = parse_config("upload_limit = 1.5s\nupload_limit = 0s\n");
  EXPECT_EQ(config.upload_limit->value, 1500ms);
  EXPECT_EQ(config.problems,
            (Texts{"kiln.conf:2: the setting was set before, at kiln.conf:1; this line is ignored"}));
}

TEST(Config, DoesNotWaitForUploadsIfTheLimitIsZero) {
  EXPECT_EQ(parse_config("upload_limit = 0s").upload_limit->value, 0ms);
  EXPECT_EQ(parse_config("upload_limit = 3600s").upload_limit->value, 3600s);
}

TEST(Config, HasNoStoresIfItSaysSo) {
  const auto config = parse_config("store = none\n");
  ASSERT_TRUE(config.stores);
  EXPECT_EQ(config.stores->value.size(), 0U);
  EXPECT_EQ(config.stores->source, "kiln.conf:1");
  EXPECT_EQ(config.problems, Texts());
}

TEST(Config, IsBoundedInBytesStoresAndProblems) {
  std::string stores;
  for (std::size_t i = 0; i <= max_configured_stores; ++i)
    stores += "store = file:///mnt/" + std::to_string(i) + "\n";
  const auto many_stores = parse_config(stores);
  EXPECT_EQ(many_stores.stores->value.size(), max_configured_stores);
  EXPECT_EQ(many_stores.problems, (Texts{"kiln.conf:17: this store is not used, because there are 16 before it"}));

  std::string garbage;
  while (garbage.size() < max_config_bytes) garbage += "x\n";
  const auto many_problems = parse_config(garbage);
  ASSERT_EQ(many_problems.problems.size(), max_config_problems + 1);
  EXPECT_EQ(many_problems.problems.back(), "kiln.conf:21: there are further problems, which are not listed");

  const auto too_large = parse_config("store = file:///mnt/kiln\n" + garbage);
  EXPECT_FALSE(too_large.stores);
  EXPECT_EQ(too_large.problems, (Texts{"kiln.conf: it is ignored, because it has more than 1048576 bytes"}));
}

TEST(Config, NeverQuotesTextsThatMayBeSecrets) {
  const std::string secret = password;
  for (const std::string& line :
       {"redis://user:" + secret + "@host/0?mode=ro", secret + " = x", secret, "store = redis://user:" + secret,
        "store = redis://user:" + secret + "@host:x/", "store = http://" + secret + "@host/?mode=" + secret,
        "stor = redis://user:" + secret + "@host/", "share_facts = " + secret, "upload_limit = " + secret + "s",
        "signing_key = " + secret, "store = file://" + secret + "@/mnt", "store = " + secret}) {
    const auto config = parse_config(line);
    ASSERT_EQ(config.problems.size(), 1U) << line;
    EXPECT_EQ(config.problems[0].find(secret), std::string::npos) << config.problems[0];
  }
}

/// The config folders are those of the test, and no variable of Kiln is set.
class ReadSettings : public testing::Test {
 protected:
  ReadSettings() {
    for (const char* name : {"KILN_CACHE_DIR", "KILN_SHARED", "KILN_SHARE_FACTS", "KILN_SIGNING_KEY", "KILN_RECORD",
                             "XDG_CACHE_HOME", "XDG_CONFIG_HOME"})
      unsetenv(name);
    set("HOME", home_.path());
    set("XDG_CONFIG_DIRS", (first_.parent_path().string() + ":" + second_.parent_path().string()).c_str());
  }

  static void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
  void write_user(std::string_view text) const { fakes::write_file(user_ / "kiln.conf", text); }
  void write_first(std::string_view text) const { fakes::write_file(first_ / "kiln.conf", text); }
  void write_second(std::string_view text) const { fakes::write_file(second_ / "kiln.conf", text); }

  const fakes::TemporaryFolder home_;
  const fs::path user_ = home_.path() / ".config" / "kiln";
  const fs::path first_ = home_.path() / "site" / "kiln";
  const fs::path second_ = home_.path() / "vendor" / "kiln";
  const std::string user_file_ = user_ / "kiln.conf";
};

TEST_F(ReadSettings, ReturnsTheDefaultsIfNothingIsSet) {
  const auto settings = read_settings();
  EXPECT_EQ(settings.directory, (Setting<fs::path>{home_.path() / ".cache" / "kiln", "the default"}));
  EXPECT_EQ(settings.stores, (StoreList{{}, "the default"}));
  EXPECT_EQ(settings.share_facts, (Setting<bool>{true, "the default"}));
  EXPECT_EQ(settings.upload_limit, (Setting<std::chrono::milliseconds>{2s, "the default"}));
  EXPECT_EQ(settings.signing_key, (Setting<fs::path>{"", "the default"}));
  EXPECT_EQ(settings.problems, Texts());
  ASSERT_EQ(settings.files.size(), 3U);
  EXPECT_EQ(settings.files[0].path, user_file_);
  EXPECT_EQ(settings.files[1].path, first_ / "kiln.conf");
  EXPECT_EQ(settings.files[2].path, second_ / "kiln.conf");
  for (const auto& file : settings.files) EXPECT_EQ(file.state, ConfigFile::State::absent);
}

TEST_F(ReadSettings, PrefersHigherLevels) {
  const auto expect = [](const char* store, const std::string& source) {
    const auto settings = read_settings();
    EXPECT_EQ(urls_of(settings.stores), Texts{store});
    EXPECT_EQ(settings.stores.source, source);
    EXPECT_EQ(sources_of(settings.stores), Texts{source});
    EXPECT_EQ(settings.problems, Texts());
  };
  write_second("store = file:///vendor\n");
  expect("file:///vendor", (second_ / "kiln.conf").string() + ":1");
  write_first("store = file:///site\n");
  expect("file:///site", (first_ / "kiln.conf").string() + ":1");
  write_user("store = file:///user\n");
  expect("file:///user", user_file_ + ":1");
  set("KILN_SHARED", "file:///environment");
  expect("file:///environment", "$KILN_SHARED");
  const auto settings = read_settings({.stores = Texts{"file:///line"}});
  EXPECT_EQ(urls_of(settings.stores), Texts{"file:///line"});
  EXPECT_EQ(settings.stores.source, "--shared");
}

TEST_F(ReadSettings, TakesOtherSettingsFromLowerLevels) {
  write_first("share_facts = 0\nupload_limit = 3s\n");
  write_user("upload_limit = 4s\n");
  set("KILN_SIGNING_KEY", "none");
  const auto settings = read_settings();
  EXPECT_EQ(settings.share_facts, (Setting<bool>{false, (first_ / "kiln.conf").string() + ":1"}));
  EXPECT_EQ(settings.upload_limit, (Setting<std::chrono::milliseconds>{4s, user_file_ + ":1"}));
  EXPECT_EQ(settings.signing_key, (Setting<fs::path>{"none", "$KILN_SIGNING_KEY"}));
}

TEST_F(ReadSettings, SplitsTheListInTheEnvironmentAtSpaces) {
  write_user("store = file:///user\n");
  set("KILN_SHARED", " file:///a\n\tredis://host/0  http://host/kiln ");
  EXPECT_EQ(urls_of(read_settings().stores), (Texts{"file:///a", "redis://host/0", "http://host/kiln"}));
}

TEST_F(ReadSettings, ReturnsNoStoresIfAHigherLevelSaysSo) {
  write_user("store = file:///user\n");
  for (const char* none : {"", "  ", "none"}) {
    set("KILN_SHARED", none);
    EXPECT_EQ(read_settings().stores, (StoreList{{}, "$KILN_SHARED"})) << none;
  }
  set("KILN_SHARED", "file:///environment");
  for (const Texts& none : {Texts{}, Texts{"none"}})
    EXPECT_EQ(read_settings({.stores = none}).stores, (StoreList{{}, "--shared"}));
  unsetenv("KILN_SHARED");
  EXPECT_EQ(urls_of(read_settings().stores), Texts{"file:///user"});
}

TEST_F(ReadSettings, DoesNotReturnToStoresOfALowerLevelAfterAWrongUrl) {
  write_user("store = file:///user\n");
  set("KILN_SHARED", "redis//typo");
  const auto settings = read_settings();
  EXPECT_EQ(settings.stores, (StoreList{{}, "$KILN_SHARED"}));
  ASSERT_EQ(settings.problems.size(), 1U);
  EXPECT_TRUE(settings.problems[0].starts_with("$KILN_SHARED, URL 1: the store URL ")) << settings.problems[0];
}

TEST_F(ReadSettings, ReportsWrongVariablesByTheirNamesAndIgnoresThem) {
  set("KILN_SHARE_FACTS", password);
  set("KILN_SHARED", std::string("file:///a redis://user:") + password + "@host:x/");
  const auto settings = read_settings();
  EXPECT_TRUE(settings.share_facts.value);
  EXPECT_EQ(urls_of(settings.stores), Texts{"file:///a"});
  ASSERT_EQ(settings.problems.size(), 2U);
  EXPECT_TRUE(settings.problems[0].starts_with("$KILN_SHARE_FACTS: ")) << settings.problems[0];
  EXPECT_TRUE(settings.problems[1].starts_with("$KILN_SHARED, URL 2: ")) << settings.problems[1];
  for (const auto& problem : settings.problems) EXPECT_EQ(problem.find(password), std::string::npos) << problem;
}

TEST_F(ReadSettings, TakesEmptyVariablesForUnsetExceptForTheStores) {
  for (const char* name :
       {"KILN_CACHE_DIR", "KILN_SHARE_FACTS", "KILN_SIGNING_KEY", "KILN_RECORD", "XDG_CACHE_HOME"})
    set(name, "");
  const auto settings = read_settings();
  EXPECT_EQ(settings.directory.source, "the default");
  EXPECT_EQ(settings.share_facts.source, "the default");
  EXPECT_EQ(settings.signing_key.source, "the default");
  EXPECT_EQ(settings.record, (Setting<fs::path>{}));
  EXPECT_EQ(settings.problems, Texts());
}

TEST_F(ReadSettings, TakesTheDirectoryFromTheCommandLineOrTheEnvironment) {
  set("XDG_CACHE_HOME", "/caches");
  EXPECT_EQ(read_settings().directory, (Setting<fs::path>{"/caches/kiln", "$XDG_CACHE_HOME"}));
  set("KILN_CACHE_DIR", "/environment");
  EXPECT_EQ(read_settings().directory, (Setting<fs::path>{"/environment", "$KILN_CACHE_DIR"}));
  EXPECT_EQ(read_settings({.directory = "/line"}).directory, (Setting<fs::path>{"/line", "--dir"}));
}

TEST_F(ReadSettings, FollowsLinksToFiles) {
  // As in the volume of a Kubernetes ConfigMap.
  fakes::write_file(user_ / "..data" / "kiln.conf", "share_facts = 0\n");
  fs::create_symlink(fs::path("..data") / "kiln.conf", user_file_);
  const auto settings = read_settings();
  EXPECT_FALSE(settings.share_facts.value);
  EXPECT_EQ(settings.files[0].state, ConfigFile::State::read);
}

/// Expects that the user's file is ignored with one problem, and that the other files are used.
void expect_ignored(const std::string& why) {
  const auto settings = read_settings();
  EXPECT_TRUE(settings.share_facts.value) << why;
  EXPECT_EQ(settings.upload_limit.value, 7s) << why;
  EXPECT_EQ(settings.files[0].state, ConfigFile::State::ignored) << why;
  ASSERT_EQ(settings.problems.size(), 1U) << why;
  EXPECT_NE(settings.problems[0].find(settings.files[0].path.string()), std::string::npos) << settings.problems[0];
  EXPECT_NE(settings.problems[0].find(why), std::string::npos) << settings.problems[0];
}

TEST_F(ReadSettings, IgnoresFilesThatOthersCanWriteTo) {
  write_first("upload_limit = 7s\n");
  for (const mode_t mode : {0664, 0646, 0666}) {
    write_user("share_facts = 0\n");
    ASSERT_EQ(chmod(user_file_.c_str(), mode), 0);
    expect_ignored("chmod go-w");
  }
  ASSERT_EQ(chmod(user_file_.c_str(), 0644), 0);
  EXPECT_FALSE(read_settings().share_facts.value);
}

TEST_F(ReadSettings, IgnoresAFileOfAnotherUser) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a file to another user";
  write_first("upload_limit = 7s\n");
  write_user("share_facts = 0\n");
  ASSERT_EQ(chown(user_file_.c_str(), fakes::other_user, fakes::other_user), 0);
  expect_ignored("belongs to another user");
}

TEST_F(ReadSettings, IgnoresAFileInAFolderThatOthersCanWriteTo) {
  write_first("upload_limit = 7s\n");
  write_user("share_facts = 0\n");
  for (const mode_t mode : {0775, 0757, 0777, 01777}) {
    ASSERT_EQ(chmod(user_.c_str(), mode), 0);
    expect_ignored("chmod go-w " + user_.string());
  }
  // The folder does not matter if it has no such file.
  fs::remove(user_file_);
  EXPECT_EQ(read_settings().problems, Texts());
  EXPECT_EQ(read_settings().files[0].state, ConfigFile::State::absent);
}

TEST_F(ReadSettings, IgnoresAFileInAFolderOfAnotherUser) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a folder to another user";
  write_first("upload_limit = 7s\n");
  write_user("share_facts = 0\n");
  ASSERT_EQ(chown(user_.c_str(), fakes::other_user, fakes::other_user), 0);
  expect_ignored("the folder " + user_.string() + " is not trusted, because it belongs to another user");
}

TEST_F(ReadSettings, IgnoresALinkOfAnotherUser) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a link to another user";
  write_first("upload_limit = 7s\n");
  fakes::write_file(home_.path() / "own.conf", "share_facts = 0\n");
  fs::create_directories(user_);
  fs::create_symlink(home_.path() / "own.conf", user_file_);
  EXPECT_FALSE(read_settings().share_facts.value);
  ASSERT_EQ(lchown(user_file_.c_str(), fakes::other_user, fakes::other_user), 0);
  expect_ignored("belongs to another user");
}

TEST_F(ReadSettings, TakesALinkToNothingForNoFile) {
  fs::create_directories(user_);
  fs::create_symlink("missing", user_file_);
  EXPECT_EQ(read_settings().problems, Texts());
}

TEST_F(ReadSettings, ReadsFilesOfRootForEveryUser) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can make a file of root";
  write_user("share_facts = 0\n");
  const auto seen = fakes::in_ordinary_child(
      home_.path(), [this]() -> std::string { return read_settings().share_facts.source; });
  EXPECT_EQ(seen, user_file_ + ":1") << "its own file";
  ASSERT_EQ(chown(user_file_.c_str(), 0, 0), 0);
  const auto seen_of_root = fakes::in_child([]() -> std::string {
    if (setgid(fakes::other_user) != 0 || setuid(fakes::other_user) != 0) return "it cannot become another user";
    return read_settings().share_facts.source;
  });
  EXPECT_EQ(seen_of_root, user_file_ + ":1");
}

TEST_F(ReadSettings, IgnoresWhatIsNoRegularFileWithoutWaiting) {
  write_first("upload_limit = 7s\n");
  fs::create_directories(user_);
  ASSERT_EQ(mkfifo(user_file_.c_str(), 0600), 0);
  expect_ignored("not a regular file");
  fs::remove(user_file_);
  fs::create_directory(user_file_);
  expect_ignored("not a regular file");
  fs::remove(user_file_);
  fs::create_symlink("/dev/zero", user_file_);
  expect_ignored("not a regular file");
  fs::remove(user_file_);
  fs::create_symlink(user_file_, user_file_);
  expect_ignored("cannot read");
}

TEST_F(ReadSettings, IgnoresAFileThatCannotBeReadOrIsTooLarge) {
  write_first("upload_limit = 7s\n");
  write_user("share_facts = 0\n" + std::string(max_config_bytes, '#'));
  expect_ignored("has more than 1048576 bytes");
  write_user("share_facts = 0\n");
  fs::permissions(user_file_, fs::perms::none);
  const auto problem = fakes::in_ordinary_child(home_.path(), []() -> std::string {
    const auto settings = read_settings();
    return settings.problems.size() == 1 ? settings.problems[0] : "it has other problems";
  });
  EXPECT_EQ(problem, "cannot read " + user_file_ + ": Permission denied");
}

TEST_F(ReadSettings, IgnoresFilesAndEnvironmentInASetUidProgram) {
  if (fakes::is_set_uid_program()) {
    // The constructor has changed the environment since the program began.
    set("KILN_SHARED", "file:///environment");
    set("KILN_CACHE_DIR", "/environment");
    fs::remove_all(home_.path());
    const auto settings = read_settings();
    fakes::end_set_uid_program(settings.files.empty() && settings.stores.value.empty() &&
                               settings.directory.value.empty() && settings.share_facts.value &&
                               base::default_directory().empty());
  }
  write_user("store = file:///user\nshare_facts = 0\n");
  const std::string result = fakes::run_in_set_uid_program(home_.path());
  if (result.starts_with("skipped")) GTEST_SKIP() << result;
  EXPECT_EQ(result, fakes::seen_in_set_uid_program);
}

}  // namespace
}  // namespace kiln::store
