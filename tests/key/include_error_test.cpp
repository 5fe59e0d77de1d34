#include <filesystem>
#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <kiln/request.hpp>

#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "key/include_resolver.hpp"

namespace kiln {
namespace {

using Headers = std::map<std::string, std::string>;

class IncludeError : public testing::Test {
 protected:
  const std::filesystem::path& folder() const { return place_.path(); }

  /// The error of a source that includes "a.h" in its second line.
  Error error(Headers headers = {}) const {
    const Request request({.name = "main.glsl",
                           .source = "#version 430\n#include \"a.h\"\nvoid main() {}\n",
                           .headers = std::move(headers),
                           .include_folders = {folder()}});
    return request.error().value_or(Error(ErrorCode::device_failed, "no error"));
  }

  fakes::TemporaryFolder place_;
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(IncludeError, OfAMissingFileNamesFileAndLineAndWhereItWasLookedFor) {
  EXPECT_EQ(error().code(), ErrorCode::include_not_found);
  EXPECT_HAS(error().message(), "main.glsl:2 includes \"a.h\"");
  EXPECT_HAS(error().message(), folder().string());
  const Request nowhere({.name = "main.glsl", .source = "#include \"a.h\"\n"});
  ASSERT_TRUE(nowhere.error());
  EXPECT_HAS(nowhere.error()->message(), "none given");
}

TEST_F(IncludeError, OfAMissingFileNamesTheHeaderThatWantsIt) {
  const Error found = error({{"a.h", "\n\n#include <b.h>\n"}});
  EXPECT_EQ(found.code(), ErrorCode::include_not_found);
  EXPECT_HAS(found.message(), "a.h:3 includes \"b.h\"");
  fakes::write_file(folder() / "a.h", "/*\n*/ #include \"b.h\"\n");
  EXPECT_HAS(error().message(), (folder() / "a.h").string() + ":2 includes \"b.h\"");
}

TEST_F(IncludeError, OfAFileThatIncludesItselfNamesItAndTheLine) {
  const Error found = error({{"a.h", "a\n#include \"a.h\"\n"}});
  EXPECT_EQ(found.code(), ErrorCode::include_cycle);
  EXPECT_HAS(found.message(), "a.h:2 includes \"a.h\"");
  EXPECT_HAS(found.message(), "main.glsl → a.h → a.h");
}

TEST_F(IncludeError, OfACycleNamesTheWholeChain) {
  const Error found =
      error({{"a.h", "#include \"b.h\"\n"}, {"b.h", "\n#include \"c.h\"\n"}, {"c.h", "\n\n#include \"a.h\"\n"}});
  EXPECT_EQ(found.code(), ErrorCode::include_cycle);
  EXPECT_HAS(found.message(), "c.h:3 includes \"a.h\"");
  EXPECT_HAS(found.message(), "main.glsl → a.h → b.h → c.h → a.h");
}

TEST_F(IncludeError, OfACycleIsFoundThroughEveryNameOfAFile) {
  std::filesystem::create_directory(folder() / "sub");
  std::filesystem::create_symlink("..", folder() / "sub" / "up");
  for (const char* name : {"a.h", "./a.h", "sub/../a.h", "sub/up/a.h", "sub/up/sub/up/a.h"}) {
    fakes::write_file(folder() / "a.h", fmt::format("#include \"{}\"\n", name));
    EXPECT_EQ(error().code(), ErrorCode::include_cycle) << name;
  }
}

TEST_F(IncludeError, OfAFifoComesWithoutWaitingForAWriter) {
  ASSERT_EQ(mkfifo((folder() / "a.h").c_str(), 0600), 0);
  EXPECT_EQ(error().code(), ErrorCode::include_not_found);
}

TEST_F(IncludeError, OfAFolderIsThatTheFileIsMissing) {
  std::filesystem::create_directory(folder() / "a.h");
  EXPECT_EQ(error().code(), ErrorCode::include_not_found);
}

TEST_F(IncludeError, OfANameWithANulIsThatTheFileIsMissing) {
  fakes::write_file(folder() / "a.h", "a\n");
  const Request request(
      {.name = "main", .source = std::string("#include \"a.h\0.h\"\n", 18), .include_folders = {folder()}});
  ASSERT_TRUE(request.error());
  EXPECT_EQ(request.error()->code(), ErrorCode::include_not_found);
}

TEST_F(IncludeError, OfAFileThatEndsInTheMiddleOfSomethingNamesIt) {
  // Else the compiler would find the string's end in the comment below it, and an #include behind that.
  const std::string source = "#include \"a.h\"\n/* )\"\n#include \"b.h\"\n*/\n";
  for (const auto& [header, what] : Headers{{"/* open", "a comment"}, {"R\"(open\n", "a string"}}) {
    const Request request({.name = "main", .source = source, .headers = {{"a.h", header}}});
    ASSERT_TRUE(request.error()) << header;
    EXPECT_EQ(request.error()->code(), ErrorCode::invalid_request);
    EXPECT_HAS(request.error()->message(), "main:1 includes \"a.h\", which ends in the middle of " + what);
  }
  EXPECT_FALSE(
      Request({.name = "main", .source = source, .headers = {{"a.h", "/* closed */ R\"(closed)\""}}}).error());
}

TEST_F(IncludeError, OfAHugeFileNamesItAndItsSize) {
  fakes::write_file(folder() / "a.h", "");
  for (const off_t size : {off_t{Request::max_source_bytes + 1}, off_t{1} << 40}) {
    if (truncate((folder() / "a.h").c_str(), size) != 0) continue;
    EXPECT_EQ(error().code(), ErrorCode::invalid_request);
    EXPECT_HAS(error().message(), (folder() / "a.h").string());
    EXPECT_HAS(error().message(), std::to_string(size));
  }
}

TEST_F(IncludeError, OfAHugeFileNamesTheLineThatIncludesIt) {
  fakes::write_file(folder() / "a.h", "");
  ASSERT_EQ(truncate((folder() / "a.h").c_str(), off_t{Request::max_source_bytes + 1}), 0);
  EXPECT_HAS(error().message(), "main.glsl:2");
}

TEST_F(IncludeError, OfAFileThatMayNotBeReadNamesIt) {
  fakes::write_file(folder() / "a.h", "a\n");
  const std::string message = fakes::in_ordinary_child(folder(), [this]() -> std::string {
    if (chmod((folder() / "a.h").c_str(), 0) != 0) return "no chmod";
    return error().code() == ErrorCode::io ? error().message() : "another code: " + error().message();
  });
  EXPECT_HAS(message, (folder() / "a.h").string());
  EXPECT_HAS(message, "cannot be read");
}

TEST_F(IncludeError, OfAFileThatMayNotBeReadNamesTheLineThatIncludesIt) {
  fakes::write_file(folder() / "a.h", "a\n");
  const std::string message = fakes::in_ordinary_child(folder(), [this]() -> std::string {
    return chmod((folder() / "a.h").c_str(), 0) == 0 ? error().message() : "no chmod";
  });
  EXPECT_HAS(message, "main.glsl:2");
}

TEST_F(IncludeError, OfIncludesThatDoubleOnEveryLevelComesSoon) {
  for (const char* leaf : {"leaf\n", ""}) {
    Headers headers = {{"a.h", "#include \"0\"\n"}, {"40", leaf}};
    for (int level = 0; level < 40; ++level)
      headers[std::to_string(level)] = fmt::format("#include \"{0}\"\n#include \"{0}\"\n", level + 1);
    EXPECT_EQ(error(headers).code(), ErrorCode::invalid_request);
    EXPECT_HAS(error(headers).message(), std::to_string(Request::max_source_bytes));
  }
}

TEST_F(IncludeError, OfAChainWithoutEndIsNoCrash) {
  const std::string answer = fakes::in_child([this]() -> std::string {
    Headers headers = {{"a.h", "#include \"0\"\n"}};
    for (int level = 0; level < 20'000; ++level)
      headers[std::to_string(level)] = fmt::format("#include \"{}\"\n", level + 1);
    headers["20000"] = "";
    return error(headers).message();
  });
  EXPECT_EQ(answer.find("it ended with"), std::string::npos) << answer;
}

TEST_F(IncludeError, NamesARequestWithoutANameSomehow) {
  const Request request({.source = "\n#include \"a.h\"\n"});
  ASSERT_TRUE(request.error());
  EXPECT_HAS(request.error()->message(), ":2 includes \"a.h\"");
}

TEST_F(IncludeError, LeavesNothingOfTheSource) {
  const Request request({.source = "secret\n#include \"a.h\"\n"});
  EXPECT_EQ(request.source(), "");
  EXPECT_TRUE(request.files().empty());
}

TEST(ResolveIncludes, IsBoundedByWhatItIsAllowed) {
  const std::map<std::string, std::string> headers = {{"a.h", std::string(50, 'a')}};
  const std::string source = "#include \"a.h\"\n" + std::string(30, 'b');
  const auto resolve = [&](std::size_t max) { return key::resolve_includes("main", source, {headers, {}}, max); };
  const auto whole = resolve(1000);
  ASSERT_TRUE(whole);
  EXPECT_TRUE(resolve(whole->text.size()));
  const auto refused = resolve(whole->text.size() - 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid_request);
}

}  // namespace
}  // namespace kiln
