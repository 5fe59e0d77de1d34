#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <kiln/request.hpp>

#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "key/dependencies.hpp"

// The files that a source of OpenCL, CUDA or HIP depends on.
namespace kiln {
namespace {

namespace fs = std::filesystem;
using Headers = std::map<std::string, std::string>;

class Dependencies : public testing::Test {
 protected:
  Request request(std::string source, Request::Fields more = {}) const {
    more.name = "scale";
    more.source = std::move(source);
    more.language = Language::opencl;
    if (more.include_folders.empty()) more.include_folders = {first_, second_};
    return Request(std::move(more));
  }
  Digest key(std::string source, Request::Fields more = {}) const {
    const Request made = request(std::move(source), std::move(more));
    EXPECT_FALSE(made.error()) << made.error()->message();
    return made.key().digest;
  }
  void write(const std::string& name, std::string_view text) const {
    fakes::write_file(place_.path() / name, text);
  }
  void remove(const std::string& name) const { fs::remove_all(place_.path() / name); }

  /// Expects that a change of the files gives the source another key, and that undoing it gives the first one
  /// again.
  template <class Change, class Undo>
  void expect_noticed(const std::string& source, Change change, Undo undo, const Request::Fields& more = {}) {
    const Digest before = key(source, more);
    change();
    EXPECT_NE(key(source, more), before) << source;
    undo();
    EXPECT_EQ(key(source, more), before) << source;
  }
  void expect_edit_noticed(const std::string& source, const std::string& file, const Request::Fields& more = {}) {
    const std::string before = fakes::read_file(place_.path() / file);
    expect_noticed(
        source, [&] { write(file, before + "// edited\n"); }, [&] { write(file, before); }, more);
  }

  fakes::TemporaryFolder place_;
  const fs::path first_ = place_.path() / "first";
  const fs::path second_ = place_.path() / "second";
};

TEST_F(Dependencies, OfASourceThatNamesNoFileAreNone) {
  const Request plain = request("kernel void scale() {}\n");
  EXPECT_EQ(plain.included(), nullptr);
  EXPECT_EQ(plain.files(), std::vector<std::string>{"scale"});
  EXPECT_TRUE(plain.include_folders().empty());
  EXPECT_EQ(key("int x;\n"), key("int x;\n", {.include_folders = {"/elsewhere"}}));
}

TEST_F(Dependencies, AtAnyDepthAndUnderAnyConditionAreNoticed) {
  write("first/a.h", "#include \"b.h\"\n");
  write("first/b.h", "#if 0\n#include <deep/c.h>\n#endif\n");
  write("second/deep/c.h", "#include \"d.h\"\n");
  write("second/deep/d.h", "int d;\n");
  for (const char* file : {"first/a.h", "first/b.h", "second/deep/c.h", "second/deep/d.h"})
    expect_edit_noticed("#include \"a.h\"\n", file);
}

TEST_F(Dependencies, AreListedInTheOrderInWhichTheyAreNamed) {
  write("first/a.h", "#include \"b.h\"\n#include <missing.h>\n");
  write("first/b.h", "");
  const Request made = request("#include \"c.h\"\n#include \"a.h\"\n", {.headers = {{"c.h", "int c;\n"}}});
  EXPECT_EQ(made.files(), (std::vector<std::string>{"scale", "c.h", first_ / "a.h", first_ / "b.h"}));
  EXPECT_EQ(made.missing_files(), std::vector<std::string>{"missing.h"});
  EXPECT_EQ(made.source(), "#include \"c.h\"\n#include \"a.h\"\n");
}

TEST_F(Dependencies, ThatAreTouchedAreTheSame) {
  write("first/a.h", "int a;\n");
  const Digest before = key("#include <a.h>\n");
  fakes::set_age(first_ / "a.h", std::chrono::hours(1));
  EXPECT_EQ(key("#include <a.h>\n"), before);
  write("first/a.h", "int a;\n");
  EXPECT_EQ(key("#include <a.h>\n"), before);
  fs::rename(first_ / "a.h", first_ / "b.h");
  fs::copy(first_ / "b.h", first_ / "a.h");
  EXPECT_EQ(key("#include <a.h>\n"), before) << "another inode";
}

TEST_F(Dependencies, ThatChangeFasterThanTheClockOfTheFileSystemAreNoticed) {
  Digest before = {};
  for (int i = 0; i < 300; ++i) {
    write("first/a.h", fmt::format("int a = {:03};\n", i));
    const Digest now = key("#include <a.h>\n");
    EXPECT_NE(now, before) << i;
    before = now;
  }
}

TEST_F(Dependencies, ThatAreAddedInFrontOfOthersAreNoticed) {
  write("second/a.h", "int a;\n");
  write("second/lib/b.h", "#include \"c.h\"\n");
  write("second/c.h", "int c;\n");
  write("first/other.h", "");
  const std::string source = "#include <a.h>\n#include <lib/b.h>\n";
  for (const char* file : {"first/a.h", "first/lib/b.h", "second/lib/c.h", "first/c.h"})
    expect_noticed(
        source, [&] { write(file, "int shadow;\n"); },
        [&] {
          remove(file);
          remove("first/lib");
        });
  const Digest before = key(source);
  write("first/unrelated.h", "");
  write("second/lib/unrelated.h", "");
  EXPECT_EQ(key(source), before);
}

TEST_F(Dependencies, ThatWereMissingAreNoticedWhenTheyAreAdded) {
  write("first/other.h", "");
  for (const char* file : {"first/x.h", "second/x.h", "first/a/b/x.h"}) {
    const std::string name = std::string(file).substr(std::string(file).find('/') + 1);
    expect_noticed(
        "#include <" + name + ">\n", [&] { write(file, "int x;\n"); },
        [&] {
          remove("first/x.h");
          remove("first/a");
          remove("second");
        });
  }
}

TEST_F(Dependencies, InFoldersThatAreMadeOneByOneAreNoticed) {
  const std::string source = "#include <a/b/x.h>\n";
  const Digest before = key(source);
  fs::create_directories(first_ / "a");
  EXPECT_EQ(key(source), before);
  fs::create_directories(first_ / "a/b");
  EXPECT_EQ(key(source), before);
  write("first/a/b/x.h", "int x;\n");
  EXPECT_NE(key(source), before);
}

TEST_F(Dependencies, BehindALinkThatLedNowhereAreNoticed) {
  fs::create_directories(first_);
  fs::create_symlink(place_.path() / "target.h", first_ / "x.h");
  fs::create_symlink(place_.path() / "folder", first_ / "lib");
  expect_noticed(
      "#include <x.h>\n", [&] { write("target.h", "int x;\n"); }, [&] { remove("target.h"); });
  expect_noticed(
      "#include <lib/y.h>\n", [&] { write("folder/y.h", "int y;\n"); }, [&] { remove("folder"); });
}

TEST_F(Dependencies, AtAnotherPathHaveTheSameKey) {
  write("first/a.h", "#include \"lib/b.h\"\n#include <c.h>\n#include <missing.h>\n");
  write("first/lib/b.h", "#include \"../d.h\"\n");
  write("first/d.h", "#pragma once\n");
  write("second/c.h", "#include_next <c.h>\n");
  const Digest before = key("#include <a.h>\n");
  const fakes::TemporaryFolder other;
  fs::copy(place_.path(), other.path() / "copy", fs::copy_options::recursive);
  fs::create_directory_symlink(other.path() / "copy", other.path() / "link");
  for (const auto& folders :
       std::vector<std::vector<fs::path>>{{other.path() / "copy/first", other.path() / "copy/second"},
                                          {other.path() / "link/first", other.path() / "link/second"},
                                          {other.path() / "link/../copy/./first/", second_}})
    EXPECT_EQ(key("#include <a.h>\n", {.include_folders = folders}), before) << folders[0];
}

TEST_F(Dependencies, OfRelativeFoldersAreThoseOfTheWorkingFolder) {
  write("first/a.h", "int a;\n");
  const std::string answer = fakes::in_child([this]() -> std::string {
    if (chdir(place_.path().c_str()) != 0) return "no chdir";
    const Request made = request("#include <a.h>\n", {.include_folders = {"first"}});
    return made.key().digest.hex() + made.include_folders().at(0).string();
  });
  EXPECT_EQ(answer, key("#include <a.h>\n").hex() + first_.string());
}

TEST_F(Dependencies, OfRelativeFoldersAreAnErrorInARemovedWorkingFolder) {
  fs::create_directories(second_);
  const std::string answer = fakes::in_child([this]() -> std::string {
    if (chdir(second_.c_str()) != 0 || rmdir(second_.c_str()) != 0) return "no chdir";
    const Request made = request("#include <a.h>\n", {.include_folders = {"first"}});
    return made.error() ? std::string(to_string(made.error()->code())) : "no error";
  });
  EXPECT_EQ(answer, "io");
  const std::vector<fs::path> relative = {"first"};
  const Headers none;
  EXPECT_TRUE(key::find_dependencies("#include <a.h>\n", {none, relative}, none)) << "it ends";
}

TEST_F(Dependencies, InAFolderWithoutANameAreAnError) {
  for (const Request& made :
       {request("#include <a.h>\n", {.include_folders = {""}}), request("#include <a.h>\n", {.options = {"-I"}})}) {
    ASSERT_TRUE(made.error());
    EXPECT_EQ(made.error()->code(), ErrorCode::invalid_request);
  }
}

TEST_F(Dependencies, InTheWorkingFolderCountForOpenClDrivers) {
  // PoCL searches it before the include folders, other drivers do not.
  const std::string answer = fakes::in_child([this]() -> std::string {
    write("work/unrelated.h", "");
    write("first/a.h", "int a;\n");
    if (chdir((place_.path() / "work").c_str()) != 0) return "no chdir";
    const Digest without = key("#include <a.h>\n");
    write("work/a.h", "int b;\n");
    const Digest with = key("#include <a.h>\n");
    write("first/a.h", "int c;\n");
    const Digest edited = key("#include <a.h>\n");
    return without != with && with != edited ? "noticed" : "not noticed";
  });
  EXPECT_EQ(answer, "noticed");
}

TEST_F(Dependencies, ThatIncludeEachOtherAreFine) {
  write("first/a.h", "#pragma once\n#include \"b.h\"\n");
  write("first/b.h", "#ifndef B\n#define B\n#include \"a.h\"\n#endif\n");
  write("first/self.h", "#include \"self.h\"\n#include \"../first/self.h\"\n#include <self.h>\n");
  EXPECT_EQ(request("#include <a.h>\n").files().size(), 3U);
  EXPECT_EQ(request("#include <self.h>\n").files().size(), 2U);
  expect_edit_noticed("#include <a.h>\n", "first/b.h");
}

TEST_F(Dependencies, ReachedByTwoPathsAreOneFile) {
  write("first/a.h", "#pragma once\nint a;\n");
  fs::create_symlink("a.h", first_ / "link.h");
  fs::create_directory(first_ / "sub");
  const std::string source = "#include \"a.h\"\n#include <link.h>\n#include <sub/../a.h>\n";
  const Digest one_file = key(source);
  fs::remove(first_ / "link.h");
  fs::copy(first_ / "a.h", first_ / "link.h");
  EXPECT_NE(key(source), one_file) << "the compiler includes the copy as well";
}

TEST_F(Dependencies, ReachedThroughTwoFoldersLookBesideThemselvesInBoth) {
  write("first/a.h", "#include \"b.h\"\n");
  write("first/b.h", "int b;\n");
  fs::create_directories(second_ / "lib");
  fs::create_symlink(first_ / "a.h", second_ / "lib/a.h");
  write("second/lib/b.h", "int other;\n");
  const std::string source = "#include \"a.h\"\n#include <lib/a.h>\n";
  expect_edit_noticed(source, "first/b.h");
  expect_edit_noticed(source, "second/lib/b.h");
}

TEST_F(Dependencies, BehindIncludeNextAreNoticed) {
  write("first/a.h", "#include_next <a.h>\n");
  write("second/a.h", "int second;\n");
  expect_edit_noticed("#include <a.h>\n", "second/a.h");
  expect_noticed(
      "#include <a.h>\n", [&] { fs::rename(second_ / "a.h", second_ / "b.h"); },
      [&] { fs::rename(second_ / "b.h", second_ / "a.h"); });
}

TEST_F(Dependencies, ThatMacrosNameAreNoticed) {
  write("first/hdr.h", "int h;\n");
  write("first/names.h", "#define INDIRECT <hdr.h>\n");
  expect_edit_noticed("#define H <hdr.h>\n#include H\n", "first/hdr.h");
  expect_edit_noticed("#include \"names.h\"\n#define H INDIRECT\n#include H\n", "first/hdr.h");
  expect_edit_noticed("#include H\n", "first/hdr.h", {.defines = {{"H", "\"hdr.h\""}}});
  expect_edit_noticed("#define S(x) T(x)\n#define T(x) #x\n#include S(DIR/hdr.h)\n", "first/hdr.h",
                      {.options = {"-D DIR=" + first_.string()}});
  const std::string strings = "#define S(x) #x\n#define T(x) S(x)\n";
  write("first/MODE.h", "int mode;\n");
  write("first/1.h", "int one;\n");
  expect_edit_noticed(strings + "#ifdef FAST\n#define MODE fast\n#endif\n#include T(MODE.h)\n", "first/MODE.h");
  expect_edit_noticed(strings + "#include T(MODE.h)\n#define MODE x\n", "first/MODE.h");
  expect_edit_noticed(strings + "#include T(cl_khr_fp64.h)\n", "first/1.h");
  // A file that a computed name leads to may define the next name.
  write("first/second_name.h", "#define NEXT <last.h>\n");
  write("first/last.h", "int last;\n");
  expect_edit_noticed("#define H <second_name.h>\n#include H\n#include NEXT\n", "first/last.h");
}

TEST_F(Dependencies, ThatOnlyTheCompilerCouldNameAreAllFilesOfAllFolders) {
  write("first/sm_900.h", "int a;\n");
  write("second/lib/other.h", "int b;\n");
  const std::vector<fs::path> folders = {first_, second_};
  const Headers none;
  const auto digest = [&] {
    const key::IncludeSearch search{none, folders};
    return key::find_dependencies("#define S(x) #x\n#define T(x) S(x)\n#include T(lib/__ARCH__.h)\n", search, none)
        .value()
        ->digest;
  };
  const Digest before = digest();
  write("first/sm_900.h", "int b;\n");
  EXPECT_NE(digest(), before);
  write("first/sm_900.h", "int a;\n");
  EXPECT_EQ(digest(), before);
  write("second/lib/new.h", "");
  EXPECT_NE(digest(), before);
  remove("second/lib/new.h");
  fs::rename(first_ / "sm_900.h", first_ / "sm_800.h");
  EXPECT_NE(digest(), before);
}

TEST_F(Dependencies, BesideASourceThatOnlyTheCompilerCouldNameCount) {
  const std::string computed = "#define S(x) #x\n#define T(x) S(x)\n#include T(__ARCH__.h)\n";
  write("first/unrelated.h", "");
  write("other/a.h", computed);
  write("other/1.h", "int a;\n");
  write("elsewhere/2.h", "int a;\n");
  fs::create_directory_symlink(place_.path() / "elsewhere", first_ / "link");
  fs::create_directory_symlink(place_.path() / "elsewhere", first_ / "another_link");
  fs::create_directory_symlink(place_.path(), first_ / "cycle");
  const std::vector<fs::path> folders = {first_};
  const auto digest = [&](const Headers& headers = {}) {
    const key::IncludeSearch search{headers, folders};
    return key::find_dependencies("#include \"../other/a.h\"\n", search, {}).value()->digest;
  };
  const Digest before = digest();
  for (const char* file : {"other/1.h", "elsewhere/2.h"}) {
    write(file, "int b;\n");
    EXPECT_NE(digest(), before) << file;
    write(file, "int a;\n");
    EXPECT_EQ(digest(), before) << file;
  }
  fs::rename(first_ / "another_link", first_ / "renamed_link");
  EXPECT_NE(digest(), before);
  EXPECT_NE(digest({{"12.h", "a"}, {"13.h", "b"}}), digest({{"13.h", "a"}, {"14.h", "b"}}));
}

TEST_F(Dependencies, ThatOnlyTheCompilerCouldNameMayBeBesideHugeFiles) {
  write("first/data.bin", "");
  fs::resize_file(first_ / "data.bin", (std::uintmax_t{256} << 20) + 1);
  const std::vector<fs::path> folders = {first_};
  const Headers none;
  const auto digest = [&] {
    return key::find_dependencies("#include __HEADER__\n", {none, folders}, none).value()->digest;
  };
  const Digest before = digest();
  fs::resize_file(first_ / "data.bin", (std::uintmax_t{256} << 20) + 2);
  EXPECT_NE(digest(), before);
}

TEST_F(Dependencies, ThatOnlyTheCompilerCouldNameAreAnErrorIfItMaySearchTheWorkingFolder) {
  const Request made = request("#define S(x) #x\n#define T(x) S(x)\n#include T(lib/__ARCH__.h)\n");
  ASSERT_TRUE(made.error());
  EXPECT_EQ(made.error()->code(), ErrorCode::invalid_request);
  EXPECT_NE(made.error()->message().find("T(lib/__ARCH__.h)"), std::string::npos) << made.error()->message();
}

TEST_F(Dependencies, WhoseExistenceIsTestedCountByTheirExistence) {
  const std::string source = "#if __has_include(<x.h>)\nint x;\n#endif\n";
  expect_noticed(
      source, [&] { write("first/x.h", "int a;\n"); }, [&] { remove("first"); });
  write("first/x.h", "int a;\n");
  const Digest before = key(source);
  write("first/x.h", "int b;\n");
  EXPECT_EQ(key(source), before);
  fs::rename(first_ / "x.h", first_ / "y.h");
  EXPECT_NE(key(source), before);
}

TEST_F(Dependencies, WhoseExistenceIsTestedInLaterFoldersCount) {
  write("first/x.h", "#if __has_include_next(<x.h>)\nint x;\n#endif\n");
  write("second/unrelated.h", "");
  expect_noticed(
      "#include <x.h>\n", [&] { write("second/x.h", ""); }, [&] { remove("second/x.h"); });
}

TEST_F(Dependencies, ThatAreGivenAreSearchedBeforeFolders) {
  write("first/a.h", "int of_the_folder;\n");
  const Request::Fields given{.headers = {{"a.h", "int given;\n"}}};
  EXPECT_EQ(request("#include <a.h>\n", given).files(), (std::vector<std::string>{"scale", "a.h"}));
  write("first/b.h", "#include \"a.h\"\n");
  EXPECT_EQ(request("#include <b.h>\n", given).files().back(), (first_ / "a.h").string());
  const Request::Fields nested{
      .headers = {{"lib/a.h", "#include \"b.h\"\n#include \"../c.h\"\n"}, {"lib/b.h", ""}, {"c.h", ""}}};
  EXPECT_EQ(request("#include \"lib/a.h\"\n", nested).files(),
            (std::vector<std::string>{"scale", "lib/a.h", "lib/b.h", "c.h"}));
  EXPECT_NE(key("#include <a.h>\n", given), key("#include <a.h>\n", {.headers = {{"a.h", "int other;\n"}}}));
}

TEST_F(Dependencies, ThatAreGivenWithNamesOutsideOfTheirFolderAreErrors) {
  for (const char* name : {"", "/a.h", "../a.h", "a/../b.h", "./a.h", "a/", ".", "a//b.h"}) {
    const Request made = request("#include <x.h>\n", {.headers = {{name, ""}}});
    ASSERT_TRUE(made.error()) << name;
    EXPECT_EQ(made.error()->code(), ErrorCode::invalid_request) << name;
  }
  EXPECT_TRUE(request("#include <x.h>\n", {.headers = {{"a", ""}, {"a/b", ""}}}).error());
  const Request leaves = request("#include <a.h>\n", {.headers = {{"a.h", "#include \"../b.h\"\n"}}});
  ASSERT_TRUE(leaves.error());
  EXPECT_NE(leaves.error()->message().find("../b.h"), std::string::npos) << leaves.error()->message();
}

TEST_F(Dependencies, ThatAreNoFilesAreMissing) {
  fs::create_directories(first_ / "a.h");
  ASSERT_EQ(mkfifo((first_ / "b.h").c_str(), 0600), 0);
  fs::create_symlink("c.h", first_ / "c.h");
  const Request made = request("#include <a.h>\n#include <b.h>\n#include <c.h>\n#include <" +
                               std::string(5000, 'x') + ">\n" + std::string("#include <nul\0.h>\n", 18));
  // A NUL character makes the request invalid, but only after its files were looked up.
  EXPECT_TRUE(made.error());
  const Request without =
      request("#include <a.h>\n#include <b.h>\n#include <c.h>\n#include <" + std::string(5000, 'x') + ">\n");
  ASSERT_FALSE(without.error());
  EXPECT_EQ(without.missing_files().size(), 4U);
  expect_noticed(
      "#include <a.h>\n",
      [&] {
        remove("first/a.h");
        write("first/a.h", "int a;\n");
      },
      [&] { remove("first/a.h"); });
}

TEST_F(Dependencies, ThatMayNotBeReadAreNoticedOnceTheyMay) {
  write("first/a.h", "int a;\n");
  const std::string answer = fakes::in_ordinary_child(place_.path(), [this]() -> std::string {
    const Digest readable = key("#include <a.h>\n");
    if (chmod((first_ / "a.h").c_str(), 0) != 0) return "no chmod";
    const Request unreadable = request("#include <a.h>\n");
    if (unreadable.error()) return "error: " + unreadable.error()->message();
    if (unreadable.key().digest == readable) return "not noticed";
    if (chmod((first_ / "a.h").c_str(), 0600) != 0) return "no chmod";
    return key("#include <a.h>\n") == readable ? "noticed" : "not noticed again";
  });
  EXPECT_EQ(answer, "noticed");
}

TEST_F(Dependencies, ThatTheSystemCannotOpenAreAnError) {
  write("first/a.h", "int a;\n");
  const std::string answer = fakes::in_child([this]() -> std::string {
    const rlimit none{3, 3};
    if (setrlimit(RLIMIT_NOFILE, &none) != 0) return "no limit";
    const Request made = request("#include <a.h>\n");
    return made.error() ? std::string(to_string(made.error()->code())) : "no error";
  });
  EXPECT_EQ(answer, "io");
}

TEST_F(Dependencies, WithAnyBytesInTheirNamesAreFound) {
  const std::string name = "caf\xe9 \xff'$.h";
  write("first/" + name, "int a;\n");
  const Request made = request("#include <" + name + ">\n");
  ASSERT_FALSE(made.error());
  EXPECT_EQ(made.files().size(), 2U);
  EXPECT_FALSE(made.describe_files().empty());
  expect_edit_noticed("#include <" + name + ">\n", "first/" + name);
}

TEST_F(Dependencies, MayBeTenThousand) {
  std::string all;
  for (int i = 0; i < 10'000; ++i) {
    write(fmt::format("first/{}/{}.h", i % 100, i),
          fmt::format("#include \"{}.h\"\nint x{};\n", (i + 100) % 10'000, i));
    if (i < 100) all += fmt::format("#include <{}/{}.h>\n", i % 100, i);
  }
  EXPECT_EQ(request(all).files().size(), 10'001U);
  expect_edit_noticed(all, "first/42/9942.h");
}

TEST_F(Dependencies, InAChainOfComputedNamesTakeLinearTime) {
  for (int i = 0; i < 1500; ++i)
    write(fmt::format("first/{}.h", i), fmt::format("#define NEXT_{0} <{1}.h>\n#include NEXT_{0}\n", i, i + 1));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(request("#include <0.h>\n").files().size(), 1501U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST_F(Dependencies, InAChainOfTenThousandAreNoCrash) {
  for (int i = 0; i < 10'000; ++i) write(fmt::format("first/{}.h", i), fmt::format("#include \"{}.h\"\n", i + 1));
  EXPECT_EQ(request("#include <0.h>\n").files().size(), 10'001U);
}

TEST_F(Dependencies, AreTheSameForSixtyFourThreads) {
  write("first/a.h", "#include \"b.h\"\n#include H\n");
  write("first/b.h", "#define H <c.h>\n");
  write("first/c.h", "int c;\n");
  const Digest expected = key("#include <a.h>\n");
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 64; ++i)
      threads.emplace_back([&] {
        for (int j = 0; j < 20; ++j)
          if (request("#include <a.h>\n").key().digest != expected) ++wrong;
      });
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(Dependencies, ThatVanishAndComeBackAreOneOfBothStates) {
  write("first/a.h", "#include \"b.h\"\n");
  write("first/b.h", "int b;\n");
  const Digest with = key("#include <a.h>\n");
  fs::rename(first_ / "b.h", first_ / "hidden.h");
  const Digest without = key("#include <a.h>\n");
  std::atomic<bool> done = false;
  std::jthread mover([&] {
    while (!done) {
      fs::rename(first_ / "hidden.h", first_ / "b.h");
      fs::rename(first_ / "b.h", first_ / "hidden.h");
    }
  });
  for (int i = 0; i < 2000; ++i) {
    const Digest now = key("#include <a.h>\n");
    EXPECT_TRUE(now == with || now == without);
  }
  done = true;
  mover.join();
  EXPECT_EQ(key("#include <a.h>\n"), without);
}

TEST_F(Dependencies, ThatChangedSinceMakeTheRequestOutdated) {
  write("first/a.h", "int a;\n");
  const Request made = request("#include <a.h>\n#include <missing.h>\n");
  const Digest unchanged = made.check_files().value();
  EXPECT_EQ(made.check_files().value(), unchanged);
  write("first/a.h", "int b;\n");
  const auto changed = made.check_files();
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code(), ErrorCode::outdated);
  EXPECT_NE(changed.error().message().find((first_ / "a.h").string()), std::string::npos)
      << changed.error().message();
  write("first/a.h", "int a;\n");
  EXPECT_TRUE(made.check_files());
  EXPECT_NE(made.check_files().value(), unchanged) << "it had other contents for a moment";
  write("second/missing.h", "");
  EXPECT_FALSE(made.check_files());
  remove("second/missing.h");
  remove("first/a.h");
  EXPECT_FALSE(made.check_files());
}

}  // namespace
}  // namespace kiln
