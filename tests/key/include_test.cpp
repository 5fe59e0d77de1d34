#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <kiln/request.hpp>

#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln {
namespace {

using Headers = std::map<std::string, std::string>;

class Include : public testing::Test {
 protected:
  /// The request for a source that finds its files among `headers` and in the folders "first" and "second".
  Request request(std::string source, Headers headers = {}) const {
    return Request({.name = "main.glsl",
                    .source = std::move(source),
                    .headers = std::move(headers),
                    .include_folders = {first_, second_}});
  }

  /// What is left of the resolved source without #line directives and empty lines, or the error.
  std::string words(std::string source, Headers headers = {}) const {
    const Request made = request(std::move(source), std::move(headers));
    if (made.error()) return "error: " + made.error()->message();
    std::istringstream lines(made.source());
    std::string words;
    for (std::string line; std::getline(lines, line);)
      if (!line.empty() && !line.starts_with("#line")) words += (words.empty() ? "" : " ") + line;
    return words;
  }

  fakes::TemporaryFolder place_;
  const std::filesystem::path first_ = place_.path() / "first";
  const std::filesystem::path second_ = place_.path() / "second";
};

TEST_F(Include, IsReplacedByTheGivenHeader) {
  EXPECT_EQ(words("one\n#include \"a.h\"\nthree\n", {{"a.h", "two\n"}}), "one two three");
  EXPECT_EQ(words("one\n#include <a.h>\nthree\n", {{"a.h", "two\n"}}), "one two three");
}

TEST_F(Include, IsReplacedByTheFileInAFolder) {
  fakes::write_file(first_ / "lib/a.h", "two\n");
  EXPECT_EQ(words("one\n#include \"lib/a.h\"\nthree\n"), "one two three");
  EXPECT_EQ(words("one\n#include <lib/a.h>\nthree\n"), "one two three");
}

TEST_F(Include, FindsGivenHeadersBeforeFolders) {
  fakes::write_file(first_ / "a.h", "of the folder\n");
  EXPECT_EQ(words("#include \"a.h\"\n", {{"a.h", "given\n"}}), "given");
  fakes::write_file(first_ / "b.h", "#include \"a.h\"\n");
  EXPECT_EQ(words("#include \"b.h\"\n", {{"a.h", "given\n"}}), "of the folder")
      << "the file beside b.h comes first";
  fakes::write_file(first_ / "c.h", "#include <a.h>\n");
  EXPECT_EQ(words("#include \"c.h\"\n", {{"a.h", "given\n"}}), "given");
}

TEST_F(Include, LooksThroughTheFoldersInTheirOrder) {
  fakes::write_file(second_ / "a.h", "second\n");
  EXPECT_EQ(words("#include \"a.h\"\n"), "second");
  fakes::write_file(first_ / "a.h", "first\n");
  EXPECT_EQ(words("#include \"a.h\"\n"), "first");
}

TEST_F(Include, LooksBesideTheIncludingFileFirstForQuotesOnly) {
  fakes::write_file(first_ / "a.h", "of the folder\n");
  fakes::write_file(second_ / "lib" / "a.h", "beside\n");
  fakes::write_file(second_ / "lib" / "quoted.h", "#include \"a.h\"\n");
  fakes::write_file(second_ / "lib" / "angled.h", "#include <a.h>\n");
  EXPECT_EQ(words("#include <lib/quoted.h>\n"), "beside");
  EXPECT_EQ(words("#include <lib/angled.h>\n"), "of the folder");
}

TEST_F(Include, GoesUpFromTheIncludingFile) {
  fakes::write_file(first_ / "lib" / "deep" / "a.h", "#include \"../b.h\"\n");
  fakes::write_file(first_ / "lib" / "b.h", "b\n");
  EXPECT_EQ(words("#include \"lib/deep/a.h\"\n"), "b");
  EXPECT_EQ(words("#include \"g/deep/a.h\"\n", {{"g/deep/a.h", "#include \"../b.h\"\n"}, {"g/b.h", "given b\n"}}),
            "given b");
}

TEST_F(Include, LooksBesideAGivenHeaderAmongTheGivenOnes) {
  const Headers headers = {{"lib/a.h", "#include \"b.h\"\n"}, {"lib/b.h", "beside\n"}, {"b.h", "on top\n"}};
  EXPECT_EQ(words("#include \"lib/a.h\"\n", headers), "beside");
  EXPECT_EQ(words("#include \"b.h\"\n", headers), "on top");
}

TEST_F(Include, NestsFromHeadersIntoFilesAndBack) {
  fakes::write_file(first_ / "b.h", "b\n#include \"c.h\"\n");
  EXPECT_EQ(words("#include \"a.h\"\nend\n", {{"a.h", "a\n#include \"b.h\"\n"}, {"c.h", "c\n"}}), "a b c end");
}

TEST_F(Include, OfAnEmptyFileIsNothing) { EXPECT_EQ(words("a\n#include \"e.h\"\nb\n", {{"e.h", ""}}), "a b"); }

TEST_F(Include, TwiceIsThereTwice) {
  EXPECT_EQ(words("#include \"a.h\"\n#include \"a.h\"\n", {{"a.h", "a\n"}}), "a a");
}

TEST_F(Include, TwiceIsThereOnceWithPragmaOnce) {
  for (const char* pragma : {"#pragma once\n", "# pragma once\r\n", "#pragma  once\n", "#pragma\tonce\n",
                             "// a license\n#pragma once // said once\n", "/* a license */ #pragma once\n"}) {
    const Headers headers = {{"a.h", std::string(pragma) + "a\n"}};
    EXPECT_EQ(words("#include \"a.h\"\n#include \"a.h\"\n", headers), words("#include \"a.h\"\n", headers))
        << pragma;
  }
}

TEST_F(Include, OfAFileThatTheCompilerMayHavePassedOverIsThereAgain) {
  const Headers headers = {{"a.h", "#pragma once\nint a;\n"}};
  const auto copies = [&](std::string source) {
    const std::string text = words(std::move(source), headers);
    std::size_t count = 0;
    for (std::size_t at = text.find("int a;"); at != std::string::npos; at = text.find("int a;", at + 1)) ++count;
    return count;
  };
  const std::string in_if = "#if 0\n#include \"a.h\"\n#endif\n";
  EXPECT_EQ(copies(in_if + "#include \"a.h\"\n"), 2U);
  EXPECT_EQ(copies(in_if + in_if), 2U);
  EXPECT_EQ(copies("#include \"a.h\"\n" + in_if), 1U);
  EXPECT_EQ(copies(in_if + "#include \"a.h\"\n#include \"a.h\"\n"), 2U);
}

TEST_F(Include, AnotherPragmaIsNotOnce) {
  EXPECT_EQ(words("#include \"a.h\"\n#include \"a.h\"\n", {{"a.h", "#pragma once_more\n"}}),
            "#pragma once_more #pragma once_more");
  EXPECT_EQ(words("#include \"a.h\"\n#include \"a.h\"\n", {{"a.h", "// #pragma once\n"}}),
            "// #pragma once // #pragma once");
}

TEST_F(Include, OncePerFileWhateverWayLeadsToIt) {
  fakes::write_file(first_ / "a.h", "#pragma once\na\n");
  std::filesystem::create_symlink("a.h", first_ / "link.h");
  std::filesystem::create_directory(first_ / "sub");
  EXPECT_EQ(words("#include \"a.h\"\n#include \"sub/../a.h\"\n#include \"./a.h\"\n#include \"link.h\"\n"),
            "#pragma once a");
}

TEST_F(Include, OncePerFileWhateverWayLeadsToItAlsoInsideIf) {
  fakes::write_file(first_ / "a.h", "#pragma once\na\n");
  // The compiler tells the copies apart by what guards them.
  const std::string text = words("#if A\n#include \"a.h\"\n#endif\n#include \"./a.h\"\n");
  const std::size_t first = text.find("#ifndef ");
  ASSERT_NE(first, std::string::npos) << text;
  const std::string guard = text.substr(first, text.find(' ', first + 8) - first);
  EXPECT_NE(text.find(guard, first + 1), std::string::npos) << text;
}

TEST_F(Include, OfADiamondIsFine) {
  const Headers headers = {{"left.h", "l\n#include \"base.h\"\n"}, {"right.h", "r\n#include \"base.h\"\n"}};
  const std::string source = "#include \"left.h\"\n#include \"right.h\"\n";
  Headers plain = headers;
  plain["base.h"] = "base\n";
  EXPECT_EQ(words(source, plain), "l base r base");
  Headers once = headers;
  once["base.h"] = "#pragma once\nbase\n";
  EXPECT_EQ(words(source, once), "l #pragma once base r");
}

TEST_F(Include, FilesAreListedInTheOrderOfTheirFirstUse) {
  fakes::write_file(first_ / "c.h", "c\n");
  const Request made = request("#include \"b.h\"\n#include \"a.h\"\n#include \"b.h\"\n",
                               {{"a.h", "#include \"c.h\"\n"}, {"b.h", "b\n"}, {"unused.h", ""}});
  EXPECT_EQ(made.files(), (std::vector<std::string>{"main.glsl", "b.h", "a.h", (first_ / "c.h").string()}));
}

TEST_F(Include, ThatIsMissingInsideIfIsForTheCompilerToMeet) {
  const std::string source = "#if VULKAN\n#include \"vulkan.h\"\n#endif\nend\n";
  const Request without = request(source);
  ASSERT_FALSE(without.error()) << without.error()->message();
  EXPECT_NE(without.source().find("\n#error \"vulkan.h\""), std::string::npos) << without.source();
  EXPECT_NE(request(source, {{"vulkan.h", ""}}).key().digest, without.key().digest);
}

TEST_F(Include, ThatIsMissingInsideEveryKindOfConditionIsNoError) {
  for (const char* source : {"#ifdef A\n#include \"x\"\n#endif\n", "#ifndef A\n#include \"x\"\n#endif\n",
                             "#if A\n#else\n#include \"x\"\n#endif\n", "#if A\n#elif B\n#include \"x\"\n#endif\n",
                             "# if A\n#ifdef B\n#endif\n# include \"x\"\n#endif\n"})
    EXPECT_FALSE(request(source).error()) << source;
}

TEST_F(Include, ThatIsMissingBehindTheConditionIsAnError) {
  for (const char* source : {"#if A\n#endif\n#include \"x\"\n", "#endif\n#include \"x\"\n",
                             "#if A\n#if B\n#endif\n#endif\n#include \"x\"\n", "// #if A\n#include \"x\"\n"})
    EXPECT_TRUE(request(source).error()) << source;
}

TEST_F(Include, ThatIsMissingInAFileIncludedInsideIfIsNoError) {
  EXPECT_FALSE(request("#if VULKAN\n#include \"a.h\"\n#endif\n", {{"a.h", "#include \"vulkan.h\"\n"}}).error());
}

TEST_F(Include, EndsAtAGuardedFileThatIsBeingIncluded) {
  for (const auto& [begin, end] : std::vector<std::pair<std::string, std::string>>{
           {"#pragma once\n", ""},
           {"#ifndef GUARD\n#define GUARD\n", "#endif\n"},
           {"// a licence\n/* more */ #  if !defined(GUARD)\n# define GUARD 1\n", "#endif // GUARD\n"},
           {"#if ! defined GUARD\n#define GUARD\n", "#endif /* GUARD */"},
           {"#ifndef GUARD\n#define GUARD\n#if A\n#else\n#endif\n", "#endif\n\n"}}) {
    const Headers headers = {{"a.h", begin + "int a;\n#include \"b.h\"\n" + end},
                             {"b.h", "int b;\n#include \"a.h\"\n"}};
    const Request made = request("#include \"a.h\"\nend\n", headers);
    ASSERT_FALSE(made.error()) << begin << made.error()->message();
    EXPECT_NE(made.source().find("int b;"), std::string::npos);
    EXPECT_EQ(made.source().find("int a;"), made.source().rfind("int a;")) << made.source();
  }
}

TEST_F(Include, OfAFileThatIsNotGuardedAsAWholeIsACycle) {
  for (const char* text : {"#ifndef GUARD\n#define GUARD\n#endif\n#include \"a.h\"\n",
                           "int x;\n#ifndef GUARD\n#define GUARD\n#include \"a.h\"\n#endif\n",
                           "#ifndef GUARD\n#define OTHER\n#include \"a.h\"\n#endif\n",
                           "#ifdef GUARD\n#define GUARD\n#include \"a.h\"\n#endif\n",
                           "#ifndef GUARD\n#define GUARD\n#undef GUARD\n#include \"a.h\"\n#endif\n",
                           "#ifndef GUARD\n#define GUARD\n#else\n#include \"a.h\"\n#endif\n",
                           "#ifndef GUARD\n#define GUARD\n#include \"a.h\"\n#endif\nint x;\n",
                           "#if !defined(GUARD) || 1\n#define GUARD\n#include \"a.h\"\n#endif\n"}) {
    const Request made = request("#include \"a.h\"\n", {{"a.h", text}});
    ASSERT_TRUE(made.error()) << text;
    EXPECT_EQ(made.error()->code(), ErrorCode::include_cycle) << text;
  }
}

}  // namespace
}  // namespace kiln
