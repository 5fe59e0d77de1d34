#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include "cli_fixture.hpp"
#include "store/signatures.hpp"

namespace kiln::cli {
namespace {

/// The commands `key` and `sign`, and `verify --signatures`, with an empty configuration.
class Keys : public Cli {
 protected:
  fs::path config() const { return home_.path() / "config" / "kiln"; }
  fs::path private_key(const std::string& name) const {
    return config() / store::private_keys_name / (name + store::private_key_suffix);
  }
  Environment environment() const {
    return {{"XDG_CONFIG_HOME", (home_.path() / "config").string()},
            {"XDG_CONFIG_DIRS", (home_.path() / "system").string()}};
  }
  Outcome run(const Words& words) const { return kiln(words, environment()); }

  /// The public line of a new key.
  std::string make_key(const std::string& name) const {
    const auto made = run({"key", "new", name});
    EXPECT_EQ(made.status, 0) << made.error;
    return lines_of(made.out).at(0);
  }

  /// The public line of a key that this user does not have.
  static std::string key_of_another(const std::string& name) {
    return store::to_line(store::SigningKey::generate(name).value().public_key());
  }
};

TEST_F(Keys, NewKeysArePrivateAndTrustedByTheirUser) {
  const auto made = run({"key", "new", "build-farm"});
  EXPECT_EQ(made.status, 0) << made.error;
  const std::string line = lines_of(made.out).at(0);
  EXPECT_TRUE(line.starts_with("build-farm:")) << line;
  EXPECT_TRUE(contains(made.error, "kiln key trust " + line)) << made.error;
  struct stat status {};
  ASSERT_EQ(stat(private_key("build-farm").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
  EXPECT_EQ(contents(config() / "trusted-keys"), line + "\n");
  // The secret is nowhere but in its file.
  const std::string text = contents(private_key("build-farm"));
  const std::string secret = text.substr(text.find("build-farm:") + 11, 43);
  EXPECT_FALSE(contains(made.out + made.error + contents(config() / "trusted-keys"), secret));

  const auto again = run({"key", "new", "build-farm"});
  EXPECT_EQ(again.status, 1);
  EXPECT_TRUE(contains(again.error, "exists already")) << again.error;
  EXPECT_EQ(contents(private_key("build-farm")), text);

  const auto json = run({"key", "new", "two", "--json"}).json();
  EXPECT_EQ(json["name"], "two");
  EXPECT_EQ(json["private_key_file"], private_key("two").string());
  EXPECT_TRUE(json["public_key"].get<std::string>().starts_with("two:"));
}

TEST_F(Keys, AreListedWithTheirState) {
  const auto none = run({"key", "ls"});
  EXPECT_EQ(none.status, 0);
  EXPECT_EQ(none.out, "");
  EXPECT_TRUE(contains(none.error, "kiln key new NAME")) << none.error;
  const std::string own = make_key("own");
  const std::string other = key_of_another("other");
  EXPECT_EQ(run({"key", "trust", other}).out,
            "added 1 key to " + (config() / "trusted-keys").string() + ":\n  " + other + "\n");
  EXPECT_EQ(run({"key", "revoke", "other"}).status, 0);
  const auto listed = run({"key", "ls"});
  EXPECT_EQ(listed.status, 0) << listed.error;
  EXPECT_TRUE(contains(line_with(listed.out, "own"), own.substr(4) + "  trusted  yes")) << listed.out;
  EXPECT_TRUE(contains(line_with(listed.out, "other"), other.substr(6) + "  revoked  -")) << listed.out;
  const auto json = run({"key", "ls", "--json"}).json();
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0],
            (nlohmann::json{
                {"name", "other"}, {"public_key", other}, {"trusted", false}, {"revoked", true}, {"own", false}}));
  EXPECT_EQ(json[1]["trusted"], true);
  EXPECT_EQ(json[1]["own"], true);
}

TEST_F(Keys, AreListedInEightyColumns) {
  make_key(std::string(64, 'x'));
  EXPECT_LE(widest(run({"key", "ls"}).out), 80U);
  for (const Words& words : {Words{"key"}, Words{"key", "new"}, Words{"key", "ls"}, Words{"key", "trust"},
                             Words{"key", "revoke"}, Words{"sign"}, Words{"verify"}}) {
    Words asking = words;
    asking.push_back("--help");
    const auto help = command_.run(asking);
    EXPECT_EQ(help.status, 0) << words.back();
    EXPECT_LE(widest(help.out), 80U) << help.out;
  }
}

TEST_F(Keys, OfAFileAreTrustedOnce) {
  const std::string one = key_of_another("one");
  const std::string two = key_of_another("two");
  write(home_.path() / "team.txt", "# the team\n" + one + "\n" + two + "\n");
  const std::string file = (home_.path() / "team.txt").string();
  EXPECT_EQ(run({"key", "trust", one, "--json"}).json()["added"], 1);
  const auto json = run({"key", "trust", file, "--json"}).json();
  EXPECT_EQ(json["added"], 1);
  EXPECT_EQ(json["keys"], (nlohmann::json{one, two}));
  EXPECT_EQ(json["added_keys"], (nlohmann::json{two}));
  EXPECT_EQ(run({"key", "trust", file}).out, "added 0 keys to " + (config() / "trusted-keys").string() + "\n");
  EXPECT_EQ(contents(config() / "trusted-keys"), one + "\n" + two + "\n");
}

TEST_F(Keys, OfTheCommandLineAreNotReadFromAFileOfThatName) {
  const auto folder = fs::current_path();
  fs::current_path(home_.path());
  std::string key = key_of_another("one");
  // A '/' would be in a folder.
  while (contains(key, "/")) key = key_of_another("one");
  const std::string other = key_of_another("other");
  write(home_.path() / key, other + "\n");
  const auto outcome = run({"key", "trust", key});
  fs::current_path(folder);
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(contents(config() / "trusted-keys"), key + "\n");
}

TEST_F(Keys, OfUnreadableFilesMakeTheOthersUntrustedAndARevocationIncomplete) {
  const std::string line = key_of_another("ci");
  EXPECT_EQ(run({"key", "trust", line}).status, 0);
  fs::create_directories(home_.path() / "system" / "kiln");
  write(home_.path() / "system" / "kiln" / "trusted-keys", "no key\n");
  const auto listed = run({"key", "ls"});
  EXPECT_EQ(listed.status, 1);
  EXPECT_TRUE(contains(line_with(listed.out, "ci"), line.substr(3) + "  not trusted  -")) << listed.out;
  EXPECT_EQ(run({"key", "ls", "--json"}).json()[0]["trusted"], false);
  const auto revoked = run({"key", "revoke", "ci"});
  EXPECT_EQ(revoked.status, 1);
  EXPECT_TRUE(contains(revoked.error, (home_.path() / "system" / "kiln" / "trusted-keys").string()))
      << revoked.error;
  EXPECT_EQ(contents(config() / "revoked-keys"), line + "\n");
}

TEST_F(Keys, ThatAreRevokedAreFollowedByARemovalOfWhatTheySigned) {
  const auto lost = store(fire_gpu, request("lost"));
  make_key("ci");
  EXPECT_EQ(run({"sign"}).status, 0);
  EXPECT_EQ(run({"key", "revoke", "ci"}).status, 0);
  fs::remove(private_key("ci"));
  make_key("new");
  const auto kept = store(fire_gpu, request("kept"));
  const auto unsigned_entry = store(water_gpu, request("unsigned"));
  EXPECT_EQ(run({"sign", kept.string()}).status, 0);
  const auto repaired = run({"verify", "--repair", "--signatures"});
  EXPECT_EQ(repaired.status, 0) << repaired.out << repaired.error;
  EXPECT_TRUE(contains(line_with(repaired.out, lost.filename().string()), "(removed)")) << repaired.out;
  EXPECT_TRUE(contains(repaired.out, ", 1 signed, 1 unsigned, 1 untrusted, 2 removed")) << repaired.out;
  EXPECT_FALSE(fs::exists(lost) || fs::exists(fs::path(lost).replace_extension(".meta")));
  EXPECT_FALSE(fs::exists(unsigned_entry));
  EXPECT_TRUE(fs::exists(kept));
  const auto json = run({"verify", "--signatures", "--json"}).json();
  EXPECT_EQ(json["ok"], true);
  ASSERT_EQ(json["signatures"].size(), 1U);
  EXPECT_EQ(json["signatures"][0]["removed"], false);
}

TEST_F(Keys, ThatArePrivateAreNotTakenForPublicOnes) {
  make_key("mine");
  const auto outcome = run({"key", "trust", private_key("mine").string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.error, "private key")) << outcome.error;
}

TEST_F(Keys, ThatAreRevokedCannotBeTrusted) {
  const std::string line = key_of_another("lost");
  EXPECT_EQ(run({"key", "revoke", line}).status, 0);
  const std::string renamed = "found" + line.substr(4);
  for (const std::string& key : {line, renamed}) {
    const auto outcome = run({"key", "trust", key});
    EXPECT_EQ(outcome.status, 1) << key;
    EXPECT_TRUE(contains(outcome.error, "is revoked")) << outcome.error;
  }
  EXPECT_FALSE(fs::exists(config() / "trusted-keys"));
}

TEST_F(Keys, ThatMakeNoSenseExitWithTwoAndAreNotQuoted) {
  const std::string secret(43, 'S');
  for (const Words& words :
       {Words{"key"}, Words{"key", "bake"}, Words{"key", "new"}, Words{"key", "new", "a b"},
        Words{"key", "new", ""}, Words{"key", "trust", "a:" + secret}, Words{"key", "trust", secret},
        Words{"key", "revoke", "a:" + secret}, Words{"key", "revoke", "a b"}, Words{"sign", "--nonsense"}}) {
    const auto outcome = run(words);
    EXPECT_EQ(outcome.status, 2) << words.back();
    EXPECT_EQ(outcome.out, "") << words.back();
    EXPECT_FALSE(contains(outcome.error, secret)) << outcome.error;
  }
  const auto unknown = run({"key", "revoke", "nobody"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_TRUE(contains(unknown.error, "no key has the name nobody")) << unknown.error;
}

TEST_F(Keys, SignAllEntriesOfTheCacheAndVerifyNamesTheSigner) {
  const auto one = store(fire_gpu, request("double"));
  const auto two = store(water_gpu, request("triple"));
  const auto missing = run({"sign"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_TRUE(contains(missing.error, "kiln key new")) << missing.error;
  const auto before = run({"verify", "--signatures"});
  EXPECT_EQ(before.status, 1);
  EXPECT_TRUE(contains(before.out, "unsigned  ")) << before.out;
  EXPECT_TRUE(contains(before.out, ", 2 unsigned")) << before.out;
  EXPECT_EQ(run({"verify"}).status, 0);

  make_key("ci");
  set_age(one, 24h * 40);
  const auto age = fs::last_write_time(one);
  EXPECT_EQ(run({"sign"}).out, "signed 2 entries with 1 key, 0 signed before\n");
  EXPECT_EQ(fs::last_write_time(one), age) << "signing is not use";
  const auto after = run({"verify", "--signatures"});
  EXPECT_EQ(after.status, 0) << after.out << after.error;
  EXPECT_TRUE(contains(after.out, two.filename().string() + ": it is signed by ci")) << after.out;
  EXPECT_TRUE(contains(after.out, "2 entries checked")) << after.out;
  EXPECT_TRUE(contains(after.out, ", 2 signed")) << after.out;
  EXPECT_FALSE(contains(after.out, ".meta")) << after.out;
  const auto json = run({"verify", "--signatures", "--json"}).json();
  EXPECT_EQ(json["ok"], true);
  ASSERT_EQ(json["signatures"].size(), 2U);
  EXPECT_EQ(json["signatures"][0]["state"], "signed");
  EXPECT_EQ(json["signatures"][0]["signed_by"], "ci");
  EXPECT_FALSE(run({"verify", "--json"}).json().contains("signatures"));
  EXPECT_EQ(run({"ls", "--json"}).json().size(), 2U);
}

TEST_F(Keys, LeaveEntriesThatTheySignedBefore) {
  const auto entry = store(fire_gpu, request("double"));
  make_key("ci");
  EXPECT_EQ(run({"sign", "--json"}).json()["signed"], 1);
  const std::string first = contents(entry);
  const auto again = run({"sign", "--json"}).json();
  EXPECT_EQ(again["signed"], 0);
  EXPECT_EQ(again["signed_before"], 1);
  EXPECT_EQ(contents(entry), first);
  make_key("release");
  EXPECT_EQ(run({"sign", "--json"}).json()["keys"], (nlohmann::json{"ci", "release"}));
  EXPECT_EQ(run({"verify", "--signatures"}).status, 0);
  EXPECT_EQ(run({"key", "revoke", "ci"}).status, 0);
  EXPECT_TRUE(contains(run({"verify", "--signatures"}).out, "it is signed by release"));
  EXPECT_EQ(run({"key", "revoke", "release"}).status, 0);
  const auto untrusted = run({"verify", "--signatures"});
  EXPECT_EQ(untrusted.status, 1);
  EXPECT_TRUE(contains(untrusted.out, "it is signed by ci, release, none of which is trusted")) << untrusted.out;
}

TEST_F(Keys, SignNamedFilesAndFoldersWithANamedKey) {
  const auto entry = store(fire_gpu, request("double"));
  const fs::path share = home_.path() / "share" / "3" / "ab";
  fs::create_directories(share);
  fs::copy(entry, share / "object");
  ASSERT_EQ(chmod((share / "object").c_str(), 0644), 0);
  write(share / "notes.txt", "not an entry");
  make_key("ci");
  const fs::path key = home_.path() / "elsewhere.key";
  fs::rename(private_key("ci"), key);
  const auto outcome = run({"sign", "--key", key.string(), (home_.path() / "share").string(), entry.string()});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(outcome.out, "signed 2 entries with 1 key, 0 signed before\n");
  EXPECT_EQ(contents(share / "object"), contents(entry));
  struct stat status {};
  ASSERT_EQ(stat((share / "object").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0644U) << "readers of the folder keep their access";
  EXPECT_EQ(contents(share / "notes.txt"), "not an entry");
  for (const std::string& wrong : {(share / "notes.txt").string(), (share / "missing").string()})
    EXPECT_EQ(run({"sign", "--key", key.string(), wrong}).status, 1) << wrong;
}

TEST_F(Keys, DoNotSignWhatOthersCanChangeOrWhatIsDamaged) {
  const auto bad = store(fire_gpu, request("bad"));
  const auto open = store(fire_gpu, request("open"));
  const auto good = store(fire_gpu, request("good"));
  damage(bad);
  ASSERT_EQ(chmod(open.c_str(), 0666), 0);
  make_key("ci");
  const auto outcome = run({"sign"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "signed 1 entry with 1 key, 0 signed before\n");
  EXPECT_TRUE(contains(outcome.error, bad.string() + ": its checksum")) << outcome.error;
  EXPECT_TRUE(contains(outcome.error, "other users can write to " + open.string())) << outcome.error;
  ASSERT_EQ(chmod(good.parent_path().c_str(), 0777), 0);
  EXPECT_EQ(run({"sign"}).status, 1);
}

TEST_F(Keys, ThatOthersCanReadSignNothing) {
  store(fire_gpu, request("double"));
  make_key("ci");
  ASSERT_EQ(chmod(private_key("ci").c_str(), 0644), 0);
  const auto outcome = run({"sign"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.error, "chmod 600")) << outcome.error;
}

TEST_F(Keys, AreChosenByTheEnvironment) {
  store(fire_gpu, request("double"));
  make_key("ci");
  Environment with = environment();
  with["KILN_SIGNING_KEY"] = "none";
  EXPECT_EQ(kiln({"sign"}, with).status, 1);
  with["KILN_SIGNING_KEY"] = private_key("ci").string();
  EXPECT_EQ(kiln({"sign"}, with).status, 0);
}

TEST_F(Keys, OfAFileThatOthersCanWriteToTrustNothing) {
  store(fire_gpu, request("double"));
  make_key("ci");
  EXPECT_EQ(run({"sign"}).status, 0);
  ASSERT_EQ(chmod((config() / "trusted-keys").c_str(), 0666), 0);
  for (const Words& words : {Words{"verify", "--signatures"}, Words{"key", "ls"}}) {
    const auto outcome = run(words);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_TRUE(contains(outcome.error, "chmod go-w")) << outcome.error;
  }
}

TEST_F(Keys, AreKnownToTheCompletionScripts) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = command_.run({"completions", shell});
    for (const char* word : {"key", "sign", "revoke", "signatures"})
      EXPECT_TRUE(contains(script.out, word)) << shell << " does not know " << word;
  }
}

}  // namespace
}  // namespace kiln::cli
