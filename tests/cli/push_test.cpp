#include "fakes/servers.hpp"
#include "store/catalogue.hpp"
#include "store/signatures.hpp"
#include "transfer_fixture.hpp"

namespace kiln::cli {
namespace {

class Push : public Transfers {
 protected:
  std::string in_backup(const std::string& path) const { return contents(backup() / path); }
  fs::path catalogue() const { return backup() / store::catalogue_path(fire_gpu.digest().hex()); }
};

TEST_F(Push, AndPullCopyAllProgramsOfAllDevices) {
  store_programs(fire_gpu, 1, 20);
  store_programs(water_gpu, 15, 30);
  const auto pushed = push(backup_url());
  EXPECT_EQ(pushed.status, 0) << pushed.error;
  EXPECT_TRUE(pushed.out.starts_with("pushed 36 of 36 programs (")) << pushed.out;
  const auto pulled = pull(backup_url());
  EXPECT_EQ(pulled.status, 0) << pulled.error;
  EXPECT_TRUE(pulled.out.starts_with("pulled 36 of 36 programs (")) << pulled.out;
  EXPECT_EQ(entries_in(restored()), entries_in(cache()));
  EXPECT_EQ(count_files(restored(), ".meta"), 36U);
  const auto verified = command_.run({"verify", "--dir", restored().string(), "--json"});
  EXPECT_EQ(verified.status, 0) << verified.out;
  EXPECT_EQ(verified.json()["meta"], nlohmann::json::array());
  EXPECT_EQ(verified.json()["manifest"], nlohmann::json::array());
}

TEST_F(Push, AndPullTransferOnlyWhatIsMissing) {
  store_programs(fire_gpu, 1, 10);
  EXPECT_EQ(push(backup_url(), {"--json"}).json()["pushed"], 10);
  EXPECT_EQ(pull(backup_url(), {"--json"}).json()["pulled"], 10);
  const auto time = fs::last_write_time(catalogue());
  for (const auto& report : {push(backup_url(), {"--json"}).json(), pull(backup_url(), {"--json"}).json()}) {
    EXPECT_EQ(report["present"], 10);
    EXPECT_EQ(report["bytes"], 0);
  }
  EXPECT_EQ(fs::last_write_time(catalogue()), time) << "an unchanged catalogue is not written";
  store_programs(fire_gpu, 11, 12);
  const auto again = push(backup_url(), {"--json"}).json();
  EXPECT_EQ(again["pushed"], 2);
  EXPECT_EQ(again["present"], 10);
  EXPECT_EQ(pull(backup_url(), {"--json"}).json()["pulled"], 2);
}

TEST_F(Push, ShowsWhatItWouldDoAndDoesNothing) {
  store_programs(fire_gpu, 1, 12);
  fs::remove(backup());
  const auto plan = push(backup_url(), {"--dry-run"});
  EXPECT_EQ(plan.status, 1) << "there is no such folder";
  EXPECT_FALSE(fs::exists(backup()));
  SetUp();
  const auto text = push(backup_url(), {"--dry-run"});
  EXPECT_EQ(text.status, 0) << text.error;
  EXPECT_TRUE(text.out.starts_with("would push 12 of 12 programs (")) << text.out;
  EXPECT_TRUE(contains(text.out, "program_12 ")) << text.out;
  EXPECT_FALSE(contains(text.out, "program_2 ")) << "only the ten most expensive programs are shown";
  EXPECT_TRUE(fs::is_empty(backup()));
  const auto json = push(backup_url(), {"--dry-run", "--json"}).json();
  EXPECT_EQ(json["missing"], 12);
  EXPECT_EQ(json["first"][0]["name"], "program_12");
  EXPECT_EQ(json["first"][0]["compile_ms"], 12.0);

  ASSERT_EQ(push(backup_url()).status, 0);
  const auto back = pull(backup_url(), {"--dry-run", "--json"});
  EXPECT_EQ(back.status, 0) << back.error;
  EXPECT_EQ(back.json()["missing"], 12);
  EXPECT_EQ(back.json()["first"][0]["name"], key_of(12).digest.hex(16));
  EXPECT_EQ(back.json()["first"][0]["compile_ms"], 12.0);
  EXPECT_FALSE(fs::exists(restored()));
}

TEST_F(Push, AndPullSelectByCompileTime) {
  store_programs(fire_gpu, 1, 10);
  EXPECT_EQ(push(backup_url(), {"--min-compile-time", "8ms", "--json"}).json()["pushed"], 3);
  EXPECT_EQ(push(backup_url(), {"--json"}).json()["pushed"], 7);
  EXPECT_EQ(pull(backup_url(), {"--min-compile-time", "9ms", "--json"}).json()["pulled"], 2);
  // Without a catalogue, the time is known once the program is there.
  fs::remove(catalogue());
  const auto rest = pull(backup_url(), {"--min-compile-time", "5ms", "--json"}).json();
  EXPECT_EQ(rest["pulled"], 4);
  EXPECT_EQ(rest["skipped"], 4);
  EXPECT_EQ(push(backup_url(), {"--min-compile-time", "often"}).status, 2);
}

TEST_F(Push, SelectsProgramsThatNobodyLoads) {
  store_programs(fire_gpu, 1, 4);
  const auto folder = cache() / fire_gpu.folder();
  for (const int old : {2, 3}) set_age(folder / store::entry_file_name(key_of(old)), 24h * 8);
  EXPECT_EQ(push(backup_url(), {"--rare", "--json"}).json()["pushed"], 2);
  EXPECT_TRUE(fs::exists(backup() / path_of(fire_gpu, 2)));
  EXPECT_FALSE(fs::exists(backup() / path_of(fire_gpu, 4)));
}

TEST_F(Push, ReportsDamagedProgramsAndGoesOn) {
  store_programs(fire_gpu, 1, 5);
  damage(cache() / fire_gpu.folder() / store::entry_file_name(key_of(2)));
  const auto pushed = push(backup_url());
  EXPECT_EQ(pushed.status, 1);
  EXPECT_TRUE(pushed.out.starts_with("pushed 4 of 5 programs")) << pushed.out;
  EXPECT_TRUE(contains(pushed.error, "its checksum does not match its contents (program_2")) << pushed.error;
  damage(backup() / path_of(fire_gpu, 3));
  damage(backup() / path_of(fire_gpu, 4));
  const auto pulled = pull(backup_url(), {"--json"});
  EXPECT_EQ(pulled.status, 1);
  EXPECT_EQ(pulled.json()["pulled"], 2);
  ASSERT_EQ(pulled.json()["problems"].size(), 1U) << pulled.out;
  EXPECT_EQ(pulled.json()["problems"][0]["programs"], 2);
}

TEST_F(Push, SignsWhereSignaturesAreRequired) {
  store_programs(fire_gpu, 1, 3);
  const auto url = backup_url("verify=required");
  const auto refused = push(url);
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.error, "3 programs not pushed: the store needs signatures")) << refused.error;
  ASSERT_EQ(command_.run({"key", "new", "ci"}).status, 0);
  const auto pushed = push(url);
  ASSERT_EQ(pushed.status, 0);
  EXPECT_TRUE(contains(pushed.out, ", 3 signed with your keys, in ")) << pushed.out;
  ASSERT_EQ(pull(url).status, 0);
  EXPECT_EQ(entries_in(restored()).size(), 3U);
  for (const auto& [path, bytes] : entries_in(restored())) {
    const auto sealed = fakes::bytes_of(bytes);
    EXPECT_EQ(store::examine_entry(sealed)->signatures.at(0).signer, "ci");
    EXPECT_EQ(bytes, in_backup(path_of(fire_gpu, std::stoi(path.substr(path.find("program_") + 8)))));
  }
}

TEST_F(Push, PullRefusesWhatNoTrustedKeySigned) {
  store_programs(fire_gpu, 1, 3);
  ASSERT_EQ(push(backup_url()).status, 0);
  const auto nothing_trusted = pull(backup_url("verify=required"));
  EXPECT_EQ(nothing_trusted.status, 1);
  EXPECT_TRUE(contains(nothing_trusted.error, "no key is trusted")) << nothing_trusted.error;
  ASSERT_EQ(command_.run({"key", "new", "ci"}).status, 0);
  const auto refused = pull(backup_url("verify=required"));
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.error, "3 programs not pulled: it has no signature")) << refused.error;
  EXPECT_TRUE(entries_in(restored()).empty());
}

TEST_F(Push, LeavesFactsOutIfTheyAreNotShared) {
  store_programs(fire_gpu, 1, 2);
  ASSERT_EQ(command_.run({"key", "new", "ci"}).status, 0);
  ASSERT_EQ(push(backup_url(), {}, {{"KILN_SHARE_FACTS", "0"}}).status, 0);
  EXPECT_FALSE(contains(in_backup(path_of(fire_gpu, 1)), "secret"));
  EXPECT_TRUE(store::examine_entry(fakes::bytes_of(in_backup(path_of(fire_gpu, 1))))->signatures.empty())
      << "the store needs none";
  ASSERT_EQ(pull(backup_url()).status, 0);
  // A cache finds the programs although they have no name.
  auto disk = store::DiskStore::open(restored(), fire_gpu, quiet).value();
  for (const int number : {1, 2}) {
    const auto found = disk->get({fire_gpu.digest(), key_of(number)}).value();
    ASSERT_TRUE(found);
    EXPECT_EQ(fakes::text_of(*found), in_backup(path_of(fire_gpu, number)));
    EXPECT_TRUE(fs::exists(disk->path() / store::entry_file_name(key_of(number))));
  }
  EXPECT_EQ(pull(backup_url(), {"--json"}).json()["present"], 2);
}

TEST_F(Push, PassesOnWhatOthersSigned) {
  store_programs(fire_gpu, 1, 1);
  const auto theirs = home_.path() / "theirs";
  ASSERT_EQ(command_.run({"key", "new", "vendor"}, {{"XDG_CONFIG_HOME", theirs.string()}}).status, 0);
  ASSERT_EQ(kiln({"sign", "--key", (theirs / "kiln/keys/vendor.key").string()}).status, 0);
  ASSERT_EQ(command_.run({"key", "new", "ci"}).status, 0);
  ASSERT_EQ(push(backup_url("verify=required"), {}, {{"KILN_SHARE_FACTS", "0"}}).status, 0);
  EXPECT_EQ(in_backup(path_of(fire_gpu, 1)), entries_in(cache()).begin()->second);
}

TEST_F(Push, IgnoresAHostileCatalogue) {
  store_programs(fire_gpu, 1, 3);
  ASSERT_EQ(push(backup_url()).status, 0);
  const std::string key(64, 'a');
  const std::string good = contents(catalogue());
  for (const std::string& text :
       {std::string(9 << 20, ' '), std::string("no json"), std::string(R"({"version": 2, "programs": []})"),
        R"({"version": 1, "programs": {")" + key + R"(": 1}})",
        R"({"version": 1, "programs": [[")" + key + R"(", "x", {}]]})",
        std::string(R"({"version": 1, "programs": [["../../etc/passwd", 1, 1]]})"),
        R"({"version": 1, "programs": [[")" + key + R"(", -1, 1]]})",
        R"({"version": 1, "programs": [[")" + key + R"(", 1, 99999999999999999999]]})"}) {
    fakes::write_file(catalogue(), text);
    fs::remove_all(restored());
    const auto pulled = pull(backup_url(), {"--json"});
    EXPECT_EQ(pulled.status, 1) << text.substr(0, 100);
    EXPECT_EQ(pulled.json()["pulled"], 3) << text.substr(0, 100);
  }
  // Keys that are not in the store, and wrong numbers.
  fakes::write_file(catalogue(), R"({"version": 1, "programs": [[")" + key + R"(", 1, 9223372036854775807], [")" +
                                     key_of(1).digest.hex() + R"(", 268435456, 5]]})");
  fs::remove_all(restored());
  const auto pulled = pull(backup_url(), {"--json"});
  EXPECT_EQ(pulled.status, 0) << pulled.error;
  EXPECT_EQ(pulled.json()["pulled"], 3);
  // The next push repairs it.
  ASSERT_EQ(push(backup_url()).status, 0);
  EXPECT_EQ(contents(catalogue()), good);
}

TEST_F(Push, PullRefusesAHostileIdentityAndForeignEntries) {
  store_programs(fire_gpu, 1, 3);
  store_programs(water_gpu, 4, 5);
  ASSERT_EQ(push(backup_url()).status, 0);
  const auto identity = backup() / store::identity_path(fire_gpu.digest().hex());
  const auto water = contents(backup() / store::identity_path(water_gpu.digest().hex()));
  for (const std::string& text : {std::string(), std::string("{"), std::string(1 << 20, '['), water,
                                  std::string(R"({"identity": {"api": 7}})")}) {
    fakes::write_file(identity, text);
    fs::remove_all(restored());
    const auto pulled = pull(backup_url(), {"--json"});
    EXPECT_EQ(pulled.status, 1);
    EXPECT_EQ(pulled.json()["pulled"], 2) << "those of the other device";
    EXPECT_TRUE(contains(pulled.error, "identity.json is missing or wrong")) << pulled.error;
  }
  ASSERT_EQ(push(backup_url()).status, 0);
  fs::remove_all(restored());
  EXPECT_EQ(pull(backup_url(), {"--json"}).json()["pulled"], 5) << "push corrects identity.json";
  // An entry under the key of another, and names that are no keys.
  fs::copy_file(backup() / path_of(water_gpu, 5), backup() / path_of(water_gpu, 4),
                fs::copy_options::overwrite_existing);
  fs::remove_all(backup() / "3" / fire_gpu.digest().hex());
  const auto folder = backup() / "3" / water_gpu.digest().hex();
  for (const char* name : {"ab/..x",
                           "zz/"
                           "name with spaces",
                           "ab/ABC.bin", "nested/more/ab"})
    fakes::write_file(folder / name, "x");
  fs::remove_all(restored());
  const auto pulled = pull(backup_url(), {"--json"});
  EXPECT_EQ(pulled.status, 1);
  EXPECT_EQ(pulled.json()["programs"], 2) << pulled.out;
  EXPECT_EQ(pulled.json()["pulled"], 1);
  EXPECT_TRUE(contains(pulled.error, "it holds another program")) << pulled.error;
}

TEST_F(Push, RefusesUrlsThatCannotBeUsed) {
  store_programs(fire_gpu, 1, 1);
  EXPECT_EQ(push("ftp://host").status, 2);
  EXPECT_EQ(push(backup_url("mode=ro")).status, 2);
  EXPECT_EQ(pull(backup_url("mode=wo")).status, 2);
  EXPECT_EQ(pull("file:///nonexistent/folder").status, 1);
  EXPECT_EQ(push("redis://127.0.0.1:1/0?timeout=200ms").status, 1);
}

TEST_F(Push, StopsAtOnceIfTheStoreIsReadOnly) {
  if (!fakes::is_installed("nginx")) GTEST_SKIP() << "nginx is not installed";
  store_programs(fire_gpu, 1, 30);
  const fakes::NginxServer server({.read_only = true, .logs_requests = true});
  const auto pushed = push(server.url("verify=off"), {"--jobs", "2"});
  EXPECT_EQ(pushed.status, 1);
  EXPECT_TRUE(contains(pushed.error, "permits no writing")) << pushed.error;
  const auto lines = lines_of(server.log());
  EXPECT_LE(std::ranges::count_if(lines, [](const auto& line) { return line.starts_with("PUT"); }), 3)
      << server.log();
}

TEST_F(Push, StopsAtOnceIfTheUserOfTheServerMayNotWrite) {
  if (!fakes::is_installed("redis-server")) GTEST_SKIP() << "redis-server is not installed";
  store_programs(fire_gpu, 1, 30);
  const fakes::RedisServer server(
      {.arguments = {"--user", "default", "on", "nopass", "~kiln/*", "-@all", "+ping", "+get", "+exists"}});
  const auto pushed = push(server.url("verify=off"));
  EXPECT_EQ(pushed.status, 1);
  EXPECT_TRUE(contains(pushed.error, "NOPERM")) << pushed.error;
}

TEST_F(Push, WorksWithServersThatCannotList) {
  if (!fakes::is_installed("nginx")) GTEST_SKIP() << "nginx is not installed";
  const fakes::NginxServer server({.logs_requests = true});
  store_programs(fire_gpu, 1, 20);
  const auto url = server.url("verify=off");
  EXPECT_EQ(push(url, {"--json"}).json()["pushed"], 20);
  const auto again = push(url, {"--json"}).json();
  EXPECT_EQ(again["present"], 20);
  EXPECT_EQ(again["bytes"], 0);
  // The device is known because the cache directory has one of its programs.
  const auto unknown = pull(url, {"--json"});
  EXPECT_EQ(unknown.json()["pulled"], 0) << unknown.out;
  fs::create_directory(restored());
  fs::permissions(restored(), fs::perms::owner_all);
  fs::create_directory(restored() / fire_gpu.folder());
  fs::permissions(restored() / fire_gpu.folder(), fs::perms::owner_all);
  fs::copy_file(cache() / fire_gpu.folder() / "manifest.json", restored() / fire_gpu.folder() / "manifest.json");
  const auto pulled = pull(url, {"--json"});
  EXPECT_EQ(pulled.status, 0) << pulled.error;
  EXPECT_EQ(pulled.json()["pulled"], 20);
  EXPECT_EQ(entries_in(restored()), entries_in(cache()));
  fs::remove(server.objects() / store::catalogue_path(fire_gpu.digest().hex()));
  const auto nothing = pull(url);
  EXPECT_EQ(nothing.status, 1);
  EXPECT_TRUE(contains(nothing.error, "cannot be listed, and has no catalogue")) << nothing.error;
}

}  // namespace
}  // namespace kiln::cli
