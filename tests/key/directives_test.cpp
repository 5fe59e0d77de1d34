#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "key/directives.hpp"

namespace kiln::key {
namespace {

/// The questions of a text, as in "<a.h>", "\"a.h\"", "next <a.h>", "has <a.h>" and "computed A_H".
std::vector<std::string> questions(std::string_view text) {
  std::vector<std::string> found;
  const auto prefix = [](LookupKind kind) {
    return kind == LookupKind::exists ? "has " : kind == LookupKind::include_next ? "next " : "";
  };
  const Directives directives = find_directives(text);
  for (const Lookup& lookup : directives.lookups)
    found.push_back(
        fmt::format(fmt::runtime(lookup.quoted ? "{}\"{}\"" : "{}<{}>"), prefix(lookup.kind), lookup.name));
  for (const ComputedLookup& lookup : directives.computed)
    found.push_back(fmt::format("{}computed {}", prefix(lookup.kind), lookup.operand));
  return found;
}

using Questions = std::vector<std::string>;

TEST(Directives, AreFoundHoweverTheyAreWritten) {
  for (const char* text : {
           "#include <a.h>",
           "#include <a.h>\n",
           "#include<a.h>\r\n",
           "  #  include  <a.h>\n",
           "\t#\tinclude\t<a.h>\n",
           "/* c */ #include <a.h>\n",
           "# /* c */ include /* c\n */ <a.h>\n",
           "#include \\\n<a.h>\n",
           "# \\\n include <a.h>\n",
           "#inc\\\nlude <a.h>\n",
           "#include <a\\\n.h>\n",
           "#include \\ \n <a.h>\n",
           "%:include <a.h>\n",
           "?\?=include <a.h>\n",
           "#in?\?/\nclude <a.h>\n",
           "#import <a.h>\n",
           "#embed <a.h>\n",
           "int x; // \\ \n#include <a.h>\n",
           "R\"(\n#include <a.h>\n",
           "'\"'\n#include <a.h>\n",
           "/*\n#include <a.h>\n*/\n",
           "// #include <a.h>\n",
           "#if 0\n#include <a.h>\n#endif\n",
           "#include <a.h> // why\n#include <a.h>\n",
           "#define S(x) #x\n#include <a.h>\n",
       })
    EXPECT_EQ(questions(text), Questions{"<a.h>"}) << text;
}

TEST(Directives, TellQuotesFromBracketsAndNextFromFirst) {
  EXPECT_EQ(questions("#include \"a.h\"\n#include <a.h>\n#include_next <b>\n#include_next \"c\"\n"),
            (Questions{"\"a.h\"", "<a.h>", "next <b>", "next \"c\""}));
  EXPECT_EQ(questions("#include \"http://x/*y*/\"\n#include <a//b>\n"), (Questions{"\"http://x/*y*/\"", "<a//b>"}));
}

TEST(Directives, AreNotInventedFromOtherText) {
  for (const char* text :
       {"", "#", "#include", "#include\n", "#include \"a.h\n", "#include <a.h\"\n", "#include \"\"\n",
        "#included <a.h>\n", "include <a.h>\n", "#Include <a.h>\n", "#define A <a.h>\n", "#if A < B && C > D\n",
        "#if defined(A) && (B < C)\n", "#pragma once\n", "#error \"a.h\"\n", "f(\"a.h\");\n"})
    EXPECT_EQ(questions(text), Questions{}) << text;
}

TEST(Directives, FindFilesWhoseExistenceIsTested) {
  for (const char* text : {
           "#if __has_include(<a.h>)\n",
           "#if defined(__has_include) && __has_include ( <a.h> )\n",
           "#elif __has_include(\\\n<a.h>)\n",
           "#define HAS __has_include(<a.h>)\n",
           "#if __has_include_next(<a.h>)\n",
           "#if __has_embed(<a.h>)\n",
           "#if HAS_INCLUDE(<a.h>)\n",
           "#if X(<a.h>)\n",
           "#define B MY_HAS_INCLUDE(<a.h>)\n",
           "#if A /*\n*/ && X(<a.h>)\n",
       })
    EXPECT_EQ(questions(text), Questions{"has <a.h>"}) << text;
  EXPECT_EQ(questions("#if __has_include(\"a.h\")\n"), Questions{"has \"a.h\""});
  EXPECT_EQ(questions("#if __has_include(A_H)\n"), Questions{"has computed A_H"});
  EXPECT_EQ(questions("#if MY_HAS_INCLUDE(A_H)\n"), Questions{"has computed A_H"});
  EXPECT_EQ(questions("#ifdef __has_include\n"), Questions{});
}

TEST(Directives, FindNamesThatMacrosCompute) {
  EXPECT_EQ(questions("#include A_H\n"), Questions{"computed A_H"});
  EXPECT_EQ(questions("#include A_H // why\n"), Questions{"computed A_H"});
  EXPECT_EQ(questions("#include M2S( DIR / \\\n x.h ) /* why */\n"), Questions{"computed M2S( DIR /  x.h )"});
  EXPECT_EQ(questions("#include_next A_H\n"), Questions{"next computed A_H"});
}

TEST(Directives, ListEachQuestionOnce) {
  EXPECT_EQ(questions("#include <a>\n#include <a>\n#if __has_include(<a>)\n#include <a>\n#endif\n"),
            (Questions{"<a>", "has <a>"}));
}

TEST(Directives, OfTextThatEndsAnywhereAreNoCrash) {
  const std::string text =
      "#if __has_include(<a.h>) /* c */ && X(\"b\\\n\")\n%:define F(a, b...) \\\n a ## b\n#include F(1, 2)\n";
  for (std::size_t size = 0; size <= text.size(); ++size) {
    static_cast<void>(find_directives(std::string_view(text).substr(0, size)));
    static_cast<void>(find_definitions(std::string_view(text).substr(0, size)));
  }
}

TEST(Definitions, AreReadWithTheirParameters) {
  const auto found = find_definitions(
      "#define A\n# define B 1 // one\n#define C(x) #x\n#define D(x, y) x ## y \\\n  + 1 /* two */\n#define E (x)\n"
      "#define F(x, ...) __VA_ARGS__\n#define G(rest...) rest\n#define\n");
  ASSERT_EQ(found.size(), 7U);
  EXPECT_EQ(found[0].name, "A");
  EXPECT_EQ(found[0].body, "");
  EXPECT_EQ(found[1].body, "1");
  EXPECT_EQ(found[2].parameters, std::vector<std::string>{"x"});
  EXPECT_EQ(found[2].body, "#x");
  EXPECT_EQ(found[3].parameters, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(found[3].body, "x ## y   + 1");
  EXPECT_FALSE(found[4].takes_arguments);
  EXPECT_EQ(found[4].body, "(x)");
  EXPECT_TRUE(found[5].is_variadic);
  EXPECT_EQ(found[5].parameters, (std::vector<std::string>{"x", "__VA_ARGS__"}));
  EXPECT_EQ(found[6].parameters, std::vector<std::string>{"rest"});
}

}  // namespace
}  // namespace kiln::key
