#include <string>

#include <gtest/gtest.h>
#include <kiln/request.hpp>

#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln {
namespace {

/// What is wrong with a request, where that is an invalid_request; otherwise something that no test expects.
std::string complaint(Request::Fields fields) {
  const Request request(std::move(fields));
  if (!request.error()) return "no error";
  if (request.error()->code() != ErrorCode::invalid_request) return "another code";
  return request.error()->message();
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(BadRequest, EmptySourceIsTold) {
  for (const char* source : {"", " ", "\n", "\t \r\n\n"})
    EXPECT_EQ(complaint({.name = "conv", .source = source}), "the request for \"conv\" has an empty source");
}

TEST(BadRequest, SourceBeyondTheBoundIsToldWithBothSizes) {
  const std::string why = complaint({.name = "conv", .source = std::string(50'000'000, 'x')});
  EXPECT_TRUE(contains(why, "50000000") && contains(why, std::to_string(Request::max_source_bytes))) << why;
  EXPECT_TRUE(contains(why, "conv")) << why;
}

TEST(BadRequest, SourceOfExactlyTheBoundIsTaken) {
  std::string source(Request::max_source_bytes, 'x');
  EXPECT_FALSE(Request({.source = source}).error());
  EXPECT_TRUE(Request({.source = source + "x"}).error());
}

TEST(BadRequest, NulInTheSourceIsTold) {
  EXPECT_TRUE(contains(complaint({.source = std::string("void\0main() {}", 14)}), "NUL"));
  EXPECT_TRUE(contains(complaint({.source = std::string("\0", 1)}), "NUL"));
}

TEST(BadRequest, NulInAnIncludedFileIsTold) {
  const std::string text("int a;\0int b;\n", 14);
  EXPECT_TRUE(contains(complaint({.source = "#include \"a.h\"\n", .headers = {{"a.h", text}}}), "NUL"));
  const fakes::TemporaryFolder folder;
  fakes::write_file(folder.path() / "a.h", text);
  EXPECT_TRUE(contains(complaint({.source = "#include \"a.h\"\n", .include_folders = {folder.path()}}), "NUL"));
}

TEST(BadRequest, WithoutAnEntryPointIsTold) {
  EXPECT_TRUE(contains(complaint({.name = "conv", .source = "x", .entries = {""}}), "entry point"));
}

TEST(BadRequest, OptionThatMakesTheCompilerReadAFileIsToldByName) {
  for (const char* option :
       {"--pre-include=a.h", "-include=a.h", "-include", "-includea.h", "--include=a.h", "-imacros",
        "--imacros=a.h", "-include-pch", "--use-pch=a.pch", "@options", "-Wp,-include,a.h", "-Wp,-I/a",
        "--config=a.cfg", "-stdlib++-isystem", "-iframework", "-F"})
    for (const Language language : {Language::opencl, Language::cuda, Language::hip})
      EXPECT_EQ(complaint({.name = "conv", .source = "x", .language = language, .options = {"-g", option}}),
                std::string("the request for \"conv\" has the option ") + option +
                    ", which makes the compiler read a file that is not part of the key; write #include in the "
                    "source instead");
}

TEST(BadRequest, OptionThatIsHandedToThePreprocessorIsToldByName) {
  const auto complaint_of = [](std::vector<std::string> options) {
    return complaint({.name = "conv", .source = "x", .language = Language::hip, .options = std::move(options)});
  };
  for (const char* by : {"-Xclang", "-Xpreprocessor"})
    for (const char* option : {"-I/a", "-include", "-DA", "-isystem"})
      EXPECT_TRUE(contains(complaint_of({by, option}), std::string("the option ") + option)) << by << ' ' << option;
  const Request fine(
      {.name = "conv", .source = "x", .language = Language::hip, .options = {"-Xclang", "-fno-inline", "-DA"}});
  EXPECT_FALSE(fine.error());
  EXPECT_EQ(fine.options(), (std::vector<std::string>{"-Xclang", "-fno-inline"}));
}

TEST(BadRequest, ConstantsOfALanguageThatHasNoneAreTold) {
  for (const Language language : {Language::glsl, Language::opencl, Language::cuda, Language::hip, Language::ptx,
                                  Language::cubin, Language::fatbin, Language::code_object})
    EXPECT_EQ(complaint({.name = "conv", .source = "x", .language = language, .constants = {{0, 1U}}}),
              "the request for \"conv\" has specialisation constants, which " + std::string(to_string(language)) +
                  " does not have; only GLSL for Vulkan and SPIR-V have them");
  for (const Language language : {Language::vulkan_glsl, Language::spirv})
    EXPECT_FALSE(Request({.source = "x", .language = language, .constants = {{0, 1U}}}).error());
}

TEST(BadRequest, DefineThatIsNoMacroNameIsToldByName) {
  for (const char* name : {"", "1A", "A B", "A-B", "A(x", "A)", "A(x)y", "A(x)(y)", "A(x-y)", "(x)", "A(x\n)",
                           "A\n#error", "\xC3\xA9tage", "A=1", " A"}) {
    const std::string why = complaint({.name = "conv", .source = "x", .defines = {{name, "1"}}});
    EXPECT_TRUE(contains(why, "not a valid macro name") && contains(why, name)) << why;
  }
  EXPECT_TRUE(
      contains(complaint({.source = "x", .defines = {{std::string("A\0B", 3), ""}}}), "not a valid macro name"));
}

TEST(BadRequest, DefineThatIsAMacroNameIsTaken) {
  for (const char* name : {"A", "a", "_", "_1", "A_LONG_name_2", "A()", "A(x)", "A(x, y)", "A(...)"})
    EXPECT_FALSE(Request({.source = "x", .defines = {{name, "1"}}}).error()) << name;
}

TEST(BadRequest, DefineWithAValueOfSeveralLinesIsToldByName) {
  for (const std::string& value :
       {std::string("1\n2"), std::string("\n"), std::string("1\r\n"), std::string("1\0002", 3)}) {
    const std::string why = complaint({.source = "x", .defines = {{"TILE", value}}});
    EXPECT_TRUE(contains(why, "TILE") && contains(why, "several lines")) << why;
  }
}

TEST(BadRequest, DefineWhoseValueWouldSwallowTheNextLineIsToldByName) {
  EXPECT_TRUE(contains(complaint({.source = "x", .defines = {{"TILE", "1 \\"}}}), "TILE"));
}

TEST(BadRequest, NameOfFiveThousandCharactersIsToldWithoutRepeatingIt) {
  const std::string why = complaint({.name = std::string(5000, 'n'), .source = "x"});
  EXPECT_TRUE(contains(why, "5000") && contains(why, "4096")) << why;
  EXPECT_LT(why.size(), 200U);
}

TEST(BadRequest, StrangeNamesAreTaken) {
  for (const std::string& name : {std::string("a/b"), std::string(".."), std::string("../../x"), std::string("/"),
                                  std::string("a\0b", 3), std::string("\xF0\x9F\x94\xA5"), std::string("\xff\xfe"),
                                  std::string(300, 'n'), std::string(4096, 'n'), std::string("{}%s\n\"")}) {
    const Request request({.name = name, .source = "x"});
    EXPECT_FALSE(request.error()) << name;
    EXPECT_EQ(request.name(), name);
    EXPECT_FALSE(request.describe().empty());
  }
}

TEST(BadRequest, StrangeNamesMakeGoodSentences) {
  EXPECT_EQ(complaint({.name = "{}%s"}), "the request for \"{}%s\" has an empty source");
  EXPECT_TRUE(contains(complaint({.name = std::string("a\0b", 3)}), "has an empty source"));
}

TEST(BadRequest, KeepsItsFieldsAndIsStillDescribed) {
  const Request request({.name = "conv", .options = {"-a"}});
  ASSERT_TRUE(request.error());
  EXPECT_EQ(request.name(), "conv");
  EXPECT_EQ(request.options().size(), 1U);
  EXPECT_TRUE(contains(request.describe(), "conv"));
}

}  // namespace
}  // namespace kiln
