#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

#include "fakes/child.hpp"
#include "key/record_fixture.hpp"
#include "key/toolkit.hpp"

// Requests that are recorded on one machine and made again on another one.
namespace kiln::key {
namespace {

namespace fs = std::filesystem;

class RebuiltRequest : public RecordTest {
 protected:
  Request opencl(std::string source, std::vector<std::string> folders, Request::Fields more = {}) const {
    more.name = "program";
    more.source = std::move(source);
    more.language = Language::opencl;
    for (const std::string& folder : folders) more.include_folders.push_back(files_ / folder);
    return Request(std::move(more));
  }
};

TEST_F(RebuiltRequest, HasItsSourceOptionsDefinesAndEntries) {
  const Request request({.name = "program",
                         .source = "kernel void f() {}\n",
                         .entries = {"f", "g"},
                         .language = Language::opencl,
                         .options = {"-cl-fast-relaxed-math -DN=4", "-cl-std=CL2.0"},
                         .defines = {{"TEXT(x)", "#x"}, {"EMPTY", ""}}});
  const auto rebuilt = rebuild_elsewhere(request);
  EXPECT_EQ(rebuilt.difference, "");
  EXPECT_EQ(rebuilt.request.source(), request.source());
  EXPECT_EQ(rebuilt.request.options(), request.options());
  EXPECT_EQ(rebuilt.request.defines(), request.defines());
  EXPECT_EQ(rebuilt.request.entries(), request.entries());
  EXPECT_EQ(rebuilt.request.name(), "program");
}

TEST_F(RebuiltRequest, KeepsADefineThatComesAfterItsRemoval) {
  // The option of each language, and its value.
  const std::vector<std::pair<std::string, std::string>> in_opencl = {
      {"-DX=2", "2"}, {R"("-DX=a b")", "a b"}, {R"(-DX=\"a.h\")", R"("a.h")"}, {R"("-DX=\'c d\'")", "'c d'"}};
  for (const auto& [option, value] : in_opencl) {
    fs::remove(path_);
    const Request request({.name = "program",
                           .source = "int x;\n",
                           .language = Language::opencl,
                           .options = {"-DX=1 -UX " + option}});
    ASSERT_EQ(request.defines().at("X"), value);
    expect_rebuilt(request);
  }
  for (const std::string value : {"2", "a b", R"("a.h" 'c')", ""}) {
    fs::remove(path_);
    const Request request({.name = "program",
                           .source = "int x;\n",
                           .language = Language::cuda,
                           .options = {"-DX=1", "--undefine-macro=X", "-DX=" + value}});
    ASSERT_EQ(request.defines().at("X"), value);
    expect_rebuilt(request);
  }
}

TEST_F(RebuiltRequest, FindsNestedIncludesInSeveralFolders) {
  write("first/a.h", "#include \"sub/b.h\"\n#include <c.h>\n");
  write("first/sub/b.h", "#include \"../d.h\"\n#include \"e.h\"\n");
  write("first/d.h", "int d;\n");
  write("first/sub/e.h", "int e;\n");
  write("second/c.h", "int c;\n");
  write("second/a.h", "int shadowed;\n");
  write("second/unrelated.h", "");
  const Request request = opencl("#include <a.h>\n", {"first", "second"});
  expect_rebuilt(request);
}

TEST_F(RebuiltRequest, FindsFilesOutsideOfItsFolders) {
  write("outer/common.h", "#include \"lib/x.h\"\n");
  write("outer/lib/x.h", "int x;\n");
  write("outer/lib/sub/empty/keep", "");
  write("other/y.h", "int y;\n");
  expect_rebuilt(opencl(
      "#include \"../common.h\"\n#include \"sub/empty/../../x.h\"\n#include \"../../other/y.h\"\n", {"outer/lib"}));
}

TEST_F(RebuiltRequest, IgnoresFilesAroundTheFolderThatItIsUnpackedTo) {
  write("lib/a.h", "#include \"../b.h\"\n#include \"../../c.h\"\n");
  const Request request = opencl("#include \"a.h\"\n", {"lib"});
  for (const char* name : {"b.h", "elsewhere/b.h", "elsewhere/c.h"})
    fakes::write_file(folder_.path() / name, "int other;\n");
  EXPECT_EQ(rebuild_elsewhere(request).difference, "");
}

TEST_F(RebuiltRequest, FollowsIncludeNextMissingNamesAndExistence) {
  write("first/a.h", "#include_next <a.h>\n#include <missing.h>\n");
  write("second/a.h", "#include_next <a.h>\n");
  write("third/a.h", "#if __has_include(<b.h>)\n#endif\n#if __has_include(<gone.h>)\n#endif\n");
  write("third/b.h", "its contents do not matter");
  const Request request = opencl("#include <a.h>\n", {"first", "second", "third"});
  expect_rebuilt(request);
}

TEST_F(RebuiltRequest, FollowsComputedNames) {
  write("lib/gemm.h", "#define NEXT <conv.h>\n");
  write("lib/conv.h", "int conv;\n");
  expect_rebuilt(opencl("#define FILE(x) <x.h>\n#include FILE(gemm)\n#include NEXT\n", {"lib"}));
}

TEST_F(RebuiltRequest, HasAllFilesIfNamesCannotBeListed) {
  write("lib/a.h", "int a;\n");
  write("lib/deep/b.h", "int b;\n");
  fs::create_directories(files_ / "lib/empty/deep");
  fs::create_directory_symlink(files_ / "lib/deep", files_ / "lib/link");
  const Request request({.name = "program",
                         .source = "#include __FILE__\n",
                         .language = Language::cuda,
                         .include_folders = {files_ / "lib"}});
  expect_rebuilt(request);
}

TEST_F(RebuiltRequest, HasTheGivenHeaders) {
  write("lib/b.h", "int b;\n");
  const Request request =
      opencl("#include \"lib/a.h\"\n#include <b.h>\n", {"lib"},
             {.headers = {{"lib/a.h", "#include \"c.h\"\n"}, {"lib/c.h", "int c;\n"}, {"unused.h", ""}}});
  expect_rebuilt(request);
}

TEST_F(RebuiltRequest, TellsLinksFromCopies) {
  const std::string text = "#pragma once\nint x;\n";
  const std::string source = "#include <a.h>\n#include <b.h>\n#include <c.h>\n#include <linked/d.h>\n";
  const auto make = [&](const std::function<void(const fs::path&, const fs::path&)>& copy) {
    write("lib/a.h", text);
    write("real/d.h", "int d;\n");
    copy(files_ / "lib/a.h", files_ / "lib/b.h");
    fs::create_symlink(files_ / "lib/a.h", files_ / "lib/c.h");
    fs::create_directory_symlink("../real", files_ / "lib/linked");
    const Request request = opencl(source, {"lib"});
    expect_rebuilt(request);
    return request.key().digest;
  };
  const Digest hard = make([](const auto& from, const auto& to) { fs::create_hard_link(from, to); });
  fs::remove(path_);
  const Digest copied = make([](const auto& from, const auto& to) { fs::copy(from, to); });
  EXPECT_NE(hard, copied);
}

TEST_F(RebuiltRequest, FollowsLinksOfFoldersToTheirParents) {
  write("versions/1.2/include/lib/a.h", "#include \"../common.h\"\n#include \"../../top.h\"\n");
  write("versions/1.2/include/common.h", "int common;\n");
  write("versions/1.2/top.h", "int top;\n");
  fs::create_directories(files_ / "usr");
  fs::create_directory_symlink(files_ / "versions/1.2", files_ / "versions/current");
  fs::create_directory_symlink(files_ / "versions/current/include/lib", files_ / "usr/lib");
  const Request request = opencl("#include <a.h>\n#include \"lib/a.h\"\n", {"usr/lib", "usr", "usr/lib/../lib"});
  expect_rebuilt(request);
}

TEST_F(RebuiltRequest, TakesOddSpellingsOfFolders) {
  write("lib/a.h", "#include \"b.h\"\n");
  write("lib/b.h", "");
  expect_rebuilt(opencl("#include \"a.h\"\n", {"lib/", "lib/.", "lib//../lib", "nowhere", "lib/a.h"}));
}

TEST_F(RebuiltRequest, NeedsItsWorkingFolderIfOneOfItsFilesWasThere) {
  write("lib/a.h", "int a;\n");
  const auto before = fs::current_path();
  fs::current_path(files_ / "lib");
  const Request request(
      {.name = "program", .source = "#include \"a.h\"\n", .language = Language::opencl, .include_folders = {"."}});
  RecordWriter writer(path_);
  EXPECT_TRUE(writer.add(request, "opencl", {}).value());
  fs::current_path(before);
  const auto record = read();
  const auto rebuilt = record.rebuild(record.entries().at(0), folder_.path() / "one").value();
  EXPECT_NE(rebuilt.request.key().digest, request.key().digest);
  EXPECT_NE(rebuilt.difference.find("working folder"), std::string::npos) << rebuilt.difference;

  const auto unpacked = record.unpack(record.entries().at(0), folder_.path() / "two").value();
  fs::current_path(unpacked.working_folder.value());
  const Request again(unpacked.fields);
  fs::current_path(before);
  EXPECT_EQ(again.key().digest, request.key().digest);
}

TEST_F(RebuiltRequest, NeedsNoWorkingFolderBecauseAnIncludeFolderIsInIt) {
  write("lib/a.h", "int a;\n");
  const auto before = fs::current_path();
  fs::current_path(files_);
  const Request request = opencl("#include \"a.h\"\n", {"lib"});
  RecordWriter writer(path_);
  EXPECT_TRUE(writer.add(request, "opencl", {}).value());
  fs::current_path(before);
  const auto record = read();
  EXPECT_FALSE(record.unpack(record.entries().at(0), folder_.path() / "one").value().working_folder);
  EXPECT_EQ(record.rebuild(record.entries().at(0), folder_.path() / "two").value().difference, "");
}

TEST_F(RebuiltRequest, OfAFileThatCannotBeReadIsTheSameForAnOrdinaryUser) {
  const auto in_child = [&]() -> std::string {
    write("lib/a.h", "#if __has_include(\"secret.h\")\n#include \"secret.h\"\n#endif\n");
    write("lib/secret.h", "int secret;\n");
    chmod((files_ / "lib/secret.h").c_str(), 0);
    const Request request = opencl("#include \"a.h\"\n", {"lib"});
    const auto rebuilt = rebuild_elsewhere(request);
    return rebuilt.request.key().digest == request.key().digest ? "same" : rebuilt.difference;
  };
  EXPECT_EQ(fakes::in_ordinary_child(folder_.path(), in_child), "same");
}

TEST_F(RebuiltRequest, IsNotRecordedIfAFolderCannotBeSearched) {
  const auto in_child = [&]() -> std::string {
    write("lib/a.h", "int a;\n");
    write("closed/inner/a.h", "int other;\n");
    chmod((files_ / "closed").c_str(), 0600);
    std::string said;
    for (const char* folder : {"closed", "closed/inner"}) {
      RecordWriter writer(path_);
      const auto added = writer.add(opencl("#include <a.h>\n", {folder, "lib"}), "api", {});
      if (added || added.error().code() != ErrorCode::outdated) said += "it was recorded; ";
      if (!added) said += added.error().message() + "; ";
    }
    RecordWriter writer(path_);
    if (!writer.add(opencl("#include <a.h>\n", {"lib", "closed"}), "api", {})) said += "nothing is recorded";
    chmod((files_ / "closed").c_str(), 0700);
    return said;
  };
  const auto said = fakes::in_ordinary_child(folder_.path(), in_child);
  const std::string why =
      "program is not recorded: the folder " + (files_ / "closed").string() + " cannot be searched; ";
  EXPECT_EQ(said, why + why);
}

TEST_F(RebuiltRequest, NamesTheAbsoluteFileThatIsMissing) {
  for (const char* name : {"a.h", "lib/a.h"}) {
    fs::remove(path_);
    write(name, "int a;\n");
    const std::string path = (files_ / name).string();
    const auto rebuilt = rebuild_elsewhere(opencl("#include \"" + path + "\"\n", {"lib"}));
    EXPECT_FALSE(rebuilt.request.error());
    EXPECT_EQ(rebuilt.difference, "this machine does not have the file " + path);
    fs::remove_all(folder_.path() / "elsewhere");
  }
}

TEST_F(RebuiltRequest, TakesTheToolkitOfTheMachine) {
  write("cuda/include/cuda_fp16.h", "#include \"cuda_fp16.hpp\"\n");
  write("cuda/include/cuda_fp16.hpp", "struct half {};\n");
  write("mine/a.h", "#include <cuda_fp16.h>\n");
  setenv("CUDA_HOME", (files_ / "cuda").c_str(), 1);
  const Request request({.name = "program",
                         .source = "#include \"a.h\"\n",
                         .entries = {"scale<float>"},
                         .language = Language::cuda,
                         .include_folders = {files_ / "mine", files_ / "cuda/include/"}});
  RecordWriter writer(path_);
  EXPECT_TRUE(writer.add(request, "cuda", {}).value());
  const auto record = read();
  const auto recorded = record.request(record.entries().at(0)).value();
  EXPECT_EQ(recorded.tree.files.size(), 1U) << "headers of the toolkit are not stored";
  EXPECT_EQ(recorded.tree.outside.size(), 2U);
  EXPECT_EQ(record.entries()[0].headers, 3U);

  fs::rename(files_ / "cuda", folder_.path() / "cuda");
  setenv("CUDA_HOME", (folder_.path() / "cuda").c_str(), 1);
  EXPECT_EQ(record.rebuild(record.entries()[0], folder_.path() / "one").value().difference, "");
  fakes::write_file(folder_.path() / "cuda/include/cuda_fp16.hpp", "struct half { int more; };\n");
  const auto other = record.rebuild(record.entries()[0], folder_.path() / "two").value();
  EXPECT_EQ(other.difference, "the file cuda_fp16.hpp of the toolkit has other contents on this machine");
  fs::remove(folder_.path() / "cuda/include/cuda_fp16.hpp");
  const auto none = record.rebuild(record.entries()[0], folder_.path() / "three").value();
  EXPECT_EQ(none.difference, "this machine does not have the file cuda_fp16.hpp of the toolkit");
  unsetenv("CUDA_HOME");
}

TEST_F(RebuiltRequest, TakesTheInstalledToolkit) {
  if (toolkit_folders(Language::cuda).empty()) GTEST_SKIP() << "CUDA is not installed";
  expect_rebuilt(Request({.name = "program", .source = "#include <cuda_fp16.h>\n", .language = Language::cuda}));
}

TEST_F(RebuiltRequest, OfGlslHasTheFilesInItsSource) {
  write("lib/a.glsl", "#include \"b.glsl\"\nfloat a;\n");
  write("lib/b.glsl", "#pragma once\nfloat b;\n");
  for (const Language language : {Language::glsl, Language::vulkan_glsl}) {
    write("lib/a.glsl", "#include \"b.glsl\"\nfloat a;\n");
    write("lib/b.glsl", "#pragma once\nfloat b;\n");
    fs::remove(path_);
    Request::Fields fields{.name = "program",
                           .source = "#version 450\n#include \"a.glsl\"\n/* #include \"none\" */\nvoid main() {}\n",
                           .language = language,
                           .defines = {{"N", "4"}},
                           .include_folders = {files_ / "lib"}};
    if (language == Language::vulkan_glsl)
      fields.constants = {
          {0, 64U}, {1, true}, {2, -1}, {3, 0.5F}, {4, 0.25}, {5, std::int64_t{-5}}, {6, ~std::uint64_t{0}}};
    expect_rebuilt(Request(fields));
  }
}

TEST_F(RebuiltRequest, OfACompiledProgramHasItsBytes) {
  std::string bytes = "\x03\x02\x23\x07 any bytes";
  bytes += '\0';
  for (const Language language :
       {Language::spirv, Language::ptx, Language::cubin, Language::fatbin, Language::code_object}) {
    fs::remove(path_);
    Request::Fields fields{.name = "program", .source = bytes, .entries = {"main"}, .language = language};
    if (language == Language::spirv) fields.constants = {{1, 2U}};
    expect_rebuilt(Request(fields));
  }
}

TEST_F(RebuiltRequest, IsNotUnpackedToAFolderWithFiles) {
  write("lib/a.h", "");
  RecordWriter writer(path_);
  EXPECT_TRUE(writer.add(opencl("#include \"a.h\"\n", {"lib"}), "api", {}).value());
  const auto record = read();
  const auto rebuilt = record.rebuild(record.entries().at(0), files_);
  ASSERT_FALSE(rebuilt);
  EXPECT_NE(rebuilt.error().message().find("is not an empty folder"), std::string::npos);
}

}  // namespace
}  // namespace kiln::key
