#include "cli_fixture.hpp"
#include "fakes/files.hpp"

namespace kiln::cli {
namespace {

using Value = nlohmann::json;

constexpr const char* password = "correct-horse-battery";

/// `kiln config` with config files of the test.
class CliConfig : public Cli {
 protected:
  fs::path user_file() const { return home_.path() / ".config" / "kiln" / "kiln.conf"; }
  fs::path system_file() const { return home_.path() / "etc" / "kiln" / "kiln.conf"; }

  /// With no options but these, so that --dir does not hide other directories.
  Outcome config(Words options = {}, const Environment& environment = {}) const {
    options.insert(options.begin(), "config");
    return command_.run(options, environment);
  }
};

TEST_F(CliConfig, ShowsTheDefaultsOfAMachineWithoutSettings) {
  const auto shown = config();
  EXPECT_EQ(shown.status, 0);
  EXPECT_EQ(shown.error, "");
  const std::string home = home_.path();
  EXPECT_EQ(
      unwrapped(shown.out),
      "SETTING VALUE SOURCE directory " + home +
          "/.cache/kiln the default store none the default bundle none the default compile always the default "
          "share_facts 1 the default "
          "upload_limit 2s the default signing_key " +
          home + "/.config/kiln/keys/*.key the default record none the default CONFIG FILE STATE " +
          user_file().string() + " absent " + system_file().string() + " absent");
  EXPECT_TRUE(config({"--json"}).json()["stores"]["value"].empty());
}

TEST_F(CliConfig, ShowsEachSettingWithItsSource) {
  const auto folder = home_.path() / "shared";
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  fakes::write_file(system_file(), "store = file:///elsewhere\nupload_limit = 500ms\n");
  fakes::write_file(user_file(), "# my caches\n\nstore = file://" + folder.string() +
                                     "\nstore = http://cache.example/kiln?mode=ro&timeout=200ms&verify=off\n");
  const Environment environment = {{"KILN_CACHE_DIR", "/scratch/kiln"},
                                   {"KILN_SHARE_FACTS", "0"},
                                   {"KILN_SIGNING_KEY", "none"},
                                   {"KILN_BUNDLES", "/opt/app.kiln:/opt/more.kiln?verify=required"},
                                   {"KILN_COMPILE", "background"}};
  const auto shown = config({}, environment);
  EXPECT_EQ(shown.status, 0);
  EXPECT_EQ(shown.error, "");
  for (const std::string& line :
       {std::string("directory /scratch/kiln $KILN_CACHE_DIR "), std::string("share_facts 0 $KILN_SHARE_FACTS "),
        std::string("bundle /opt/app.kiln verify=off $KILN_BUNDLES "),
        std::string("bundle /opt/more.kiln verify=required $KILN_BUNDLES "),
        std::string("compile background $KILN_COMPILE "), "upload_limit 500ms " + system_file().string() + ":2 ",
        std::string("signing_key none $KILN_SIGNING_KEY "),
        user_file().string() + " read " + system_file().string() + " read"})
    EXPECT_TRUE(contains(unwrapped(shown.out), line)) << line << " is not in\n" << shown.out;

  const auto json = config({"--json"}, environment).json();
  EXPECT_EQ(json["directory"], (Value{{"value", "/scratch/kiln"}, {"source", "$KILN_CACHE_DIR"}}));
  EXPECT_EQ(json["stores"]["source"], user_file().string() + ":3");
  EXPECT_EQ(json["stores"]["value"], Value::array({{{"url", "file://" + folder.string()},
                                                    {"mode", "rw"},
                                                    {"timeout_ms", 2000},
                                                    {"verify", "off"},
                                                    {"source", user_file().string() + ":3"}},
                                                   {{"url", "http://cache.example/kiln"},
                                                    {"mode", "ro"},
                                                    {"timeout_ms", 200},
                                                    {"verify", "off"},
                                                    {"source", user_file().string() + ":4"}}}));
  EXPECT_EQ(json["share_facts"], (Value{{"value", false}, {"source", "$KILN_SHARE_FACTS"}}));
  EXPECT_EQ(json["upload_limit_ms"], (Value{{"value", 500}, {"source", system_file().string() + ":2"}}));
  EXPECT_EQ(json["signing_key"], (Value{{"value", "none"}, {"source", "$KILN_SIGNING_KEY"}}));
  EXPECT_EQ(json["files"], Value::array({{{"path", user_file().string()}, {"state", "read"}},
                                         {{"path", system_file().string()}, {"state", "read"}}}));
  EXPECT_EQ(json["problems"], Value::array());
}

TEST_F(CliConfig, TakesTheCommandLineBeforeTheEnvironment) {
  const Environment environment = {{"KILN_CACHE_DIR", "/environment"}, {"KILN_SHARED", "file:///environment"}};
  const auto json =
      config({"--json", "--dir", "/line", "--shared", "file:///a", "--shared", "redis://host/1"}, environment)
          .json();
  EXPECT_EQ(json["directory"], (Value{{"value", "/line"}, {"source", "--dir"}}));
  ASSERT_EQ(json["stores"]["value"].size(), 2U);
  EXPECT_EQ(json["stores"]["value"][0]["url"], "file:///a");
  EXPECT_EQ(json["stores"]["value"][1]["url"], "redis://host/1");
  EXPECT_EQ(json["stores"]["source"], "--shared");
  const auto none = config({"--json", "--shared", "none"}, environment).json();
  EXPECT_EQ(none["stores"], (Value{{"value", Value::array()}, {"source", "--shared"}}));
  EXPECT_EQ(none["directory"]["source"], "$KILN_CACHE_DIR");
}

TEST_F(CliConfig, RequiresSignaturesExceptInAFolderThatOnlyThisUserCanWriteTo) {
  const auto verify = [this](const std::string& url) -> std::string {
    return config({"--json", "--shared", url}).json()["stores"]["value"][0]["verify"];
  };
  const auto folder = home_.path() / "shared";
  fs::create_directory(folder);
  const std::string url = "file://" + folder.string();
  fs::permissions(folder, fs::perms::owner_all);
  EXPECT_EQ(verify(url), "off");
  EXPECT_EQ(verify(url + "?verify=required"), "required");
  fs::permissions(folder, fs::perms::all);
  EXPECT_EQ(verify(url), "required");
  EXPECT_EQ(verify(url + "?verify=off"), "off");
  EXPECT_EQ(verify("redis://host"), "required");
  EXPECT_EQ(verify("https://host"), "required");
}

TEST_F(CliConfig, DecidesAboutAFolderOnceItExists) {
  const std::string url = "file://" + (home_.path() / "shared").string();
  EXPECT_TRUE(
      contains(unwrapped(config({"--shared", url}).out), "verify=required unless the new folder is private"));
  EXPECT_EQ(config({"--json", "--shared", url}).json()["stores"]["value"][0]["verify"], nullptr);
  EXPECT_EQ(config({"--json", "--shared", url + "?verify=off"}).json()["stores"]["value"][0]["verify"], "off");
}

TEST_F(CliConfig, NeverShowsCredentials) {
  const std::string secret = password;
  const std::string url = "redis://" + secret + "user:" + secret + "@cache.example:6379/0";
  const std::string broken = "redis://user:" + secret + "@host:port/0";
  fakes::write_file(user_file(), "store = " + url + "\nstore = " + broken + "\n" + url + "\npassword = " + secret +
                                     "\nshare_facts = " + secret + "\n");
  const Environment environment = {{"KILN_SHARED", url + " " + broken + " http://host/a?token_file=/" + secret}};
  for (const Words& options : {Words{}, Words{"--json"}, Words{"--verbose"}, Words{"--shared", url}})
    for (const Environment& variables : {Environment{}, environment}) {
      const auto shown = config(options, variables);
      EXPECT_EQ(shown.status, 0) << shown.error;
      EXPECT_TRUE(contains(shown.out, "redis://cache.example:6379/0")) << shown.out;
      EXPECT_FALSE(contains(shown.out + shown.error, secret)) << shown.out << shown.error;
    }
  const auto refused = config({"--shared", broken});
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_TRUE(contains(refused.error, "--shared: the store URL has an invalid port")) << refused.error;
  EXPECT_FALSE(contains(refused.error, secret)) << refused.error;
}

TEST_F(CliConfig, WarnsAboutWhatItIgnores) {
  fakes::write_file(user_file(), "cache = /a\n");
  fakes::write_file(system_file(), "share_facts = 0\n");
  fs::permissions(system_file(), fs::perms::all);
  const auto shown = config();
  EXPECT_EQ(shown.status, 0);
  EXPECT_TRUE(contains(shown.error, "kiln: warning: " + user_file().string() + ":1: there is no setting"))
      << shown.error;
  EXPECT_TRUE(
      contains(shown.error, "kiln: warning: " + system_file().string() + " is ignored, because other users"))
      << shown.error;
  EXPECT_TRUE(contains(unwrapped(shown.out), system_file().string() + " ignored")) << shown.out;
  const auto json = config({"--json"});
  EXPECT_EQ(json.error, "");
  EXPECT_EQ(json.json()["problems"].size(), 2U);
  EXPECT_EQ(json.json()["share_facts"]["value"], true);
}

}  // namespace
}  // namespace kiln::cli
