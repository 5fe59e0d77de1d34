#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sched.h>
#include <sys/mount.h>

#include <gtest/gtest.h>
#include <kiln/request.hpp>

#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "key/include_graph.hpp"
#include "key/include_record.hpp"
#include "key/toolkit.hpp"

// The digest by which a machine without the toolkit finds a program in a bundle.
namespace kiln::key {
namespace {

namespace fs = std::filesystem;

class WithoutToolkit : public testing::Test {
 protected:
  WithoutToolkit() {
    write("toolkit/half.h",
          "#pragma once\n#include \"half.hpp\"\n#include <types.h>\n#define IN_TOOLKIT <half.hpp>\n");
    write("toolkit/half.hpp", "struct half {};\n");
    write("toolkit/types.h", "#define TYPES \"types\"\n#undef GIVEN\n");
    write("user/a.h", "#include \"b.h\"\n#include <half.h>\n");
    write("user/b.h", "int b;\n");
  }

  void write(const std::string& name, std::string_view text) const { fakes::write_file(place_ / name, text); }

  enum class Toolkit { installed, missing };
  kiln::key::Dependencies dependencies(const std::string& source, Toolkit toolkit,
                                       std::vector<fs::path> folders = {},
                                       const std::map<std::string, std::string>& defines = {}) const {
    folders.insert(folders.begin(), place_ / "user");
    if (toolkit == Toolkit::installed) folders.push_back(place_ / "toolkit");
    const IncludeSearch search{headers_, folders, toolkit == Toolkit::installed ? 1U : 0U};
    IncludeGraph graph(search, defines);
    const auto built = graph.build(source);
    EXPECT_TRUE(built) << built.error().message();
    return graph.dependencies();
  }
  /// The digest on both machines. Expects that it is one, although the keys differ.
  std::optional<Digest> digest(const std::string& source, const std::vector<fs::path>& folders = {},
                               const std::map<std::string, std::string>& defines = {}) const {
    const auto with = dependencies(source, Toolkit::installed, folders, defines);
    const auto without = dependencies(source, Toolkit::missing, folders, defines);
    EXPECT_NE(with.digest, without.digest) << source;
    EXPECT_TRUE(with.without_toolkit) << source;
    EXPECT_EQ(with.without_toolkit, without.without_toolkit) << source;
    return with.without_toolkit;
  }
  std::optional<Digest> installed(const std::string& source, const std::vector<fs::path>& folders = {},
                                  const std::map<std::string, std::string>& defines = {}) const {
    return dependencies(source, Toolkit::installed, folders, defines).without_toolkit;
  }
  void expect_noticed(const std::string& source, const std::function<void()>& change) const {
    const auto before = digest(source);
    change();
    EXPECT_NE(digest(source), before) << source;
  }

  fakes::TemporaryFolder folder_;
  fs::path place_ = folder_.path() / "machine";
  std::map<std::string, std::string> headers_;
};

TEST_F(WithoutToolkit, IsTheSameOnBothMachines) {
  write("user/half_user.h", "#include_next <half.h>\n");
  for (const char* source :
       {"#include <half.h>\n", "#include \"half.h\"\n", "#include <a.h>\n", "#include \"a.h\"\n#include <half.h>\n",
        "#include <half.h>\n#include <a.h>\n#include <missing.h>\n#include <types.h>\n", "#include_next <half.h>\n",
        "#include <half_user.h>\n#include <b.h>\n", "#if __has_include(<half.h>)\n#endif\n",
        "#include <half.h>\n#define NAME(x) <x>\n#include NAME(a.h)\n",
        "#include_next <b.h>\n#include <types.h>\n"})
    EXPECT_TRUE(digest(source));
}

TEST_F(WithoutToolkit, IsTheSameIfTheUserNamesTheToolkitToo) {
  fs::create_directory_symlink("toolkit", place_ / "link");
  for (const char* name : {"toolkit", "toolkit/", "link", "user/../toolkit"}) {
    const auto folders = std::vector{place_ / name};
    const auto with = installed("#include <a.h>\n", folders);
    EXPECT_TRUE(with);
    EXPECT_EQ(with, dependencies("#include <a.h>\n", Toolkit::missing).without_toolkit) << name;
  }
}

TEST_F(WithoutToolkit, IsNoKey) {
  const auto without = dependencies("#include <a.h>\n", Toolkit::missing);
  EXPECT_NE(without.digest, without.without_toolkit);
}

TEST_F(WithoutToolkit, NoticesAnEditOfAFileOfTheUser) {
  headers_["given.h"] = "int given;\n";
  const std::string source = "#include <half.h>\n#include <a.h>\n#include <given.h>\n";
  expect_noticed(source, [&] { write("user/b.h", "int c;\n"); });
  expect_noticed(source, [&] { headers_["given.h"] = "int other;\n"; });
  expect_noticed(source, [&] { write("user/b.h", "#include <types.h>\n"); });
}

TEST_F(WithoutToolkit, NoticesWhichFileOfTheUserANameLeadsTo) {
  const std::string source = "#include <half.h>\n#include <a.h>\n#include <c.h>\n";
  expect_noticed(source, [&] { write("user/c.h", ""); });
  write("user/one.h", "int a;\n");
  write("user/two.h", "int b;\n");
  write("user/c.h", "#include <one.h>\n#include <two.h>\n");
  expect_noticed(source, [&] {
    write("user/one.h", "int b;\n");
    write("user/two.h", "int a;\n");
  });
}

TEST_F(WithoutToolkit, NoticesWhetherAFileOfTheUserExists) {
  expect_noticed("#include <half.h>\n#if __has_include(<c.h>)\n#endif\n", [&] { write("user/c.h", ""); });
}

TEST_F(WithoutToolkit, NoticesAFileOfTheUserInFrontOfOneOfTheToolkit) {
  const std::string source = "#include <a.h>\n#include <half.hpp>\n";
  expect_noticed(source, [&] { write("user/half.h", "struct half { int mine; };\n"); });
}

TEST_F(WithoutToolkit, NoticesThatTwoNamesLeadToOneFile) {
  write("user/c.h", "int b;\n");
  expect_noticed("#include <half.h>\n#include <b.h>\n#include <c.h>\n", [&] {
    fs::remove(place_ / "user/c.h");
    fs::create_symlink("b.h", place_ / "user/c.h");
  });
}

TEST_F(WithoutToolkit, IgnoresTheContentsOfTheToolkit) {
  const std::string source = "#include <half.h>\n#include <a.h>\n";
  const auto before = digest(source);
  write("toolkit/half.hpp", "struct half { int more; };\n#include <missing.h>\n");
  EXPECT_EQ(digest(source), before);
  fs::remove(place_ / "toolkit/types.h");
  EXPECT_EQ(digest(source), before);
}

TEST_F(WithoutToolkit, IgnoresAFileOfTheToolkitThatCannotBeRead) {
  const auto in_child = [this]() -> std::string {
    const auto before = installed("#include <a.h>\n");
    fs::permissions(place_ / "toolkit/half.h", fs::perms::none);
    const bool is_equal = installed("#include <a.h>\n") == before;
    fs::permissions(place_ / "toolkit/half.h", fs::perms::owner_all);
    return is_equal ? "equal" : "not equal";
  };
  EXPECT_EQ(fakes::in_ordinary_child(folder_.path(), in_child), "equal");
}

TEST_F(WithoutToolkit, IsTheSameAfterAMove) {
  const auto before = digest("#include <half.h>\n#include <a.h>\n");
  fs::rename(place_, folder_.path() / "elsewhere");
  place_ = folder_.path() / "elsewhere";
  EXPECT_EQ(digest("#include <half.h>\n#include <a.h>\n"), before);
}

TEST_F(WithoutToolkit, IsNoneIfOnlyTheToolkitLeadsToAFileOfTheUser) {
  write("user/types.h", "int mine;\n");
  EXPECT_FALSE(installed("#include <half.h>\n")) << "the toolkit includes the user's types.h";
  EXPECT_TRUE(digest("#include <half.h>\n#include <types.h>\n")) << "the user names it, too";
  write("toolkit/half.hpp", "#if __has_include(<config.h>)\n#endif\n");
  EXPECT_TRUE(digest("#include <half.h>\n#include <types.h>\n"));
  write("user/config.h", "");
  EXPECT_FALSE(installed("#include <half.h>\n#include <types.h>\n"));
}

TEST_F(WithoutToolkit, IsNoneIfMacrosOfTheToolkitNameAFile) {
  EXPECT_FALSE(installed("#include <half.h>\n#include IN_TOOLKIT\n"));
  EXPECT_FALSE(installed("#include <half.h>\n#define LOCAL IN_TOOLKIT\n#include LOCAL\n"));
  EXPECT_FALSE(installed("#include <half.h>\n#define IN_TOOLKIT <a.h>\n#include IN_TOOLKIT\n"));
  EXPECT_FALSE(installed("#include <half.h>\n#include GIVEN\n", {}, {{"GIVEN", "<a.h>"}})) << "it may be undefined";
  EXPECT_TRUE(digest("#include <half.h>\n#include OTHER\n", {}, {{"OTHER", "<a.h>"}}));
}

TEST_F(WithoutToolkit, IsNoneIfNamesCannotBeListed) {
  for (const Toolkit toolkit : {Toolkit::installed, Toolkit::missing})
    EXPECT_FALSE(dependencies("#include <a.h>\n#include __RESERVED\n", toolkit).without_toolkit);
}

TEST_F(WithoutToolkit, IsNoneIfTheFolderOfTheToolkitAlsoHasHeadersOfOthers) {
  const auto digest_with = [this](const fs::path& toolkit) {
    const std::vector<fs::path> folders = {place_ / "user", toolkit};
    const IncludeSearch search{headers_, folders, 1};
    IncludeGraph graph(search, {});
    EXPECT_TRUE(graph.build("#include <b.h>\n"));
    return graph.dependencies().without_toolkit;
  };
  EXPECT_TRUE(digest_with(place_ / "toolkit"));
  fs::create_directory_symlink("/usr/include", place_ / "link");
  for (const fs::path& common : {fs::path("/usr/include"), fs::path("/usr/include/"),
                                 fs::path("/usr/local/include"), fs::path("/usr/lib/../include"), place_ / "link"})
    EXPECT_FALSE(digest_with(common)) << common;
  fs::create_directory(place_ / "conda-meta");
  EXPECT_FALSE(digest_with(place_ / "toolkit")) << "an environment of conda";
}

TEST_F(WithoutToolkit, CoversAFolderOfTheUserInsideOfTheToolkit) {
  write("toolkit/extra/c.h", "int c;\n");
  const auto folders = std::vector{place_ / "toolkit/extra"};
  const std::string source = "#include <half.h>\n#include <c.h>\n#include <extra/c.h>\n";
  const auto before = installed(source, folders);
  write("toolkit/extra/c.h", "int d;\n");
  EXPECT_TRUE(before);
  EXPECT_NE(installed(source, folders), before);
}

TEST_F(WithoutToolkit, CoversAFileOutsideOfTheToolkitThatIsNamedThroughIt) {
  write("other/c.h", "int c;\n");
  const auto before = installed("#include <half.h>\n#include <../other/c.h>\n");
  write("other/c.h", "int d;\n");
  EXPECT_TRUE(before);
  EXPECT_NE(installed("#include <half.h>\n#include <../other/c.h>\n"), before);
}

TEST_F(WithoutToolkit, IsKeptInTheRecord) {
  for (const char* source : {"#include <a.h>\n", "#include <half.h>\n#include IN_TOOLKIT\n"}) {
    const std::vector<fs::path> folders = {place_ / "user", place_ / "toolkit"};
    const IncludeSearch search{headers_, folders, 1};
    IncludeGraph graph(search, {});
    ASSERT_TRUE(graph.build(source));
    const auto dependencies = graph.dependencies();
    const auto read = IncludeRecord::from_bytes(IncludeRecord(dependencies, graph.take_observations()).to_bytes());
    ASSERT_TRUE(read);
    EXPECT_EQ(read->dependencies().without_toolkit, dependencies.without_toolkit);
  }
}

TEST_F(WithoutToolkit, IsFoundAgainOnlyWithTheSameToolkit) {
  const std::vector<fs::path> folders = {place_ / "user", place_ / "toolkit"};
  const auto find = [&](std::size_t toolkit_folders) {
    return find_dependencies("#include <a.h>\n", {headers_, folders, toolkit_folders}, {}).value()->without_toolkit;
  };
  const auto with = find(1);
  EXPECT_NE(find(0), with) << "the folder is the user's";
  EXPECT_EQ(find(1), with);
}

/// Hides the toolkit from this process, which gets a view of the file system of its own. False if that is not
/// allowed.
bool hide_toolkit(Language language) {
  if (unshare(fakes::is_root() ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return false;
  for (auto folders = toolkit_folders(language); !folders.empty(); folders = toolkit_folders(language))
    if (mount("tmpfs", folders.front().c_str(), "tmpfs", 0, nullptr) != 0) return false;
  return true;
}

class RequestWithoutToolkit : public testing::Test {
 protected:
  RequestWithoutToolkit() {
    fakes::write_file(folder_.path() / "rocm/include/hip/hip_runtime.h", "#include \"details.h\"\n");
    fakes::write_file(folder_.path() / "rocm/include/hip/details.h", "int details;\n");
    fakes::write_file(folder_.path() / "cuda/include/cuda_fp16.h", "#include \"hip/hip_runtime.h\"\n");
    fakes::write_file(folder_.path() / "cuda/include/hip/hip_runtime.h", "int other_details;\n");
    fakes::write_file(folder_.path() / "user/a.h", "#include <cuda_fp16.h>\n#include <hip/hip_runtime.h>\n");
  }

  Request::Fields fields(Language language) const {
    return {.name = "scale",
            .source = "#include <a.h>\n#include <hip/hip_runtime.h>\n",
            .language = language,
            .defines = {{"N", "4"}},
            .include_folders = {folder_.path() / "user"}};
  }

  /// Whether the request has one digest with the toolkit and without, and two keys.
  std::string compare(const std::function<Request()>& request, Language language) const {
    const Request with = request();
    unsetenv("CUDA_HOME");
    unsetenv("ROCM_PATH");
    if (!hide_toolkit(language)) return "skipped";
    const Request without = request();
    if (without.error()) return without.error()->message();
    if (with.key().digest == without.key().digest) return "equal keys";
    if (!with.digest_without_toolkit()) return "none";
    if (with.digest_without_toolkit() == with.key().digest) return "it is the key";
    return with.digest_without_toolkit() == without.digest_without_toolkit() ? "equal" : "not equal";
  }

  const fakes::TemporaryFolder folder_;
};

TEST_F(RequestWithoutToolkit, HasTheSameDigestOnBothMachines) {
  for (const Language language : {Language::cuda, Language::hip}) {
    const std::string result = fakes::in_child([&]() -> std::string {
      setenv("CUDA_HOME", (folder_.path() / "cuda").c_str(), 1);
      setenv("ROCM_PATH", (folder_.path() / "rocm").c_str(), 1);
      return compare([&] { return Request(fields(language)); }, language);
    });
    if (result == "skipped") GTEST_SKIP() << "mount() is not allowed";
    EXPECT_EQ(result, "equal") << to_string(language);
  }
}

TEST_F(RequestWithoutToolkit, HasTheSameDigestWithTheInstalledToolkit) {
  if (toolkit_folders(Language::cuda).empty()) GTEST_SKIP() << "CUDA is not installed";
  fakes::write_file(folder_.path() / "user/b.h", "#include <cuda_bf16.h>\n");
  for (const char* source : {"#include <b.h>\n#include <cuda_fp16.h>\n", "#include <cub/block/block_reduce.cuh>\n",
                             "#include <cooperative_groups.h>\n#include <mma.h>\n"}) {
    const auto request = [&] {
      return Request({.name = "scale",
                      .source = source,
                      .language = Language::cuda,
                      .include_folders = {folder_.path() / "user"}});
    };
    const auto result = fakes::in_child([&] { return compare(request, Language::cuda); });
    if (result == "skipped") GTEST_SKIP() << "mount() is not allowed";
    EXPECT_EQ(result, "equal") << source;
  }
}

TEST_F(RequestWithoutToolkit, ChangesWithTheOtherFields) {
  auto other = fields(Language::cuda);
  other.defines["N"] = "5";
  setenv("CUDA_HOME", (folder_.path() / "cuda").c_str(), 1);
  setenv("ROCM_PATH", (folder_.path() / "rocm").c_str(), 1);
  const auto digest = Request(fields(Language::cuda)).digest_without_toolkit();
  EXPECT_TRUE(digest);
  EXPECT_NE(Request(other).digest_without_toolkit(), digest);
  EXPECT_NE(Request(fields(Language::hip)).digest_without_toolkit(), digest);
  unsetenv("CUDA_HOME");
  unsetenv("ROCM_PATH");
}

TEST_F(RequestWithoutToolkit, HasOneOnlyIfTheLanguageHasAToolkitAndTheSourceNamesAFile) {
  auto none = fields(Language::hip);
  none.source = "int x;\n";
  EXPECT_FALSE(Request(none).digest_without_toolkit());
  fakes::write_file(folder_.path() / "user/a.h", "int a;\n");
  for (const Language language : {Language::opencl, Language::glsl, Language::vulkan_glsl}) {
    auto other = fields(language);
    other.source = "#version 450\n#include <a.h>\nvoid main() {}\n";
    EXPECT_FALSE(Request(other).digest_without_toolkit()) << to_string(language);
  }
  auto invalid = fields(Language::hip);
  invalid.defines["1"] = "";
  EXPECT_FALSE(Request(invalid).digest_without_toolkit());
}

}  // namespace
}  // namespace kiln::key
