#include <chrono>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "key/directives.hpp"

namespace kiln::key {
namespace {

/// The lookups of a text, as in "<a.h>", "\"a.h\"", "next <a.h>", "has <a.h>", "has next <a.h>" and "computed A_H".
std::vector<std::string> lookups(std::string_view text) {
  std::vector<std::string> found;
  const auto prefix = [](LookupKind kind) {
    switch (kind) {
      case LookupKind::include: return "";
      case LookupKind::include_next: return "next ";
      case LookupKind::exists: return "has ";
      case LookupKind::exists_next: return "has next ";
    }
    return "";
  };
  const Directives directives = find_directives(text);
  for (const Lookup& lookup : directives.lookups)
    found.push_back(
        fmt::format(fmt::runtime(lookup.quoted ? "{}\"{}\"" : "{}<{}>"), prefix(lookup.kind), lookup.name));
  for (const ComputedLookup& lookup : directives.computed)
    found.push_back(fmt::format("{}computed {}", prefix(lookup.kind), lookup.operand));
  return found;
}

using Texts = std::vector<std::string>;

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
           "#if 0\n#include <a.h>\n#endif\n",
           "#include <a.h> // why\n#include <a.h>\n",
           "#define S(x) #x\n#include <a.h>\n",
           "\xef\xbb\xbf#include <a.h>\n",
           "int x;\r#include <a.h>\r",
           "%\\\n:include <a.h>\n",
       })
    EXPECT_EQ(lookups(text), Texts{"<a.h>"}) << text;
}

TEST(Directives, TellQuotesFromBracketsAndNextFromFirst) {
  EXPECT_EQ(lookups("#include \"a.h\"\n#include <a.h>\n#include_next <b>\n#include_next \"c\"\n"),
            (Texts{"\"a.h\"", "<a.h>", "next <b>", "next \"c\""}));
  EXPECT_EQ(lookups("#include \"http://x/*y*/\"\n#include <a//b>\n"), (Texts{"\"http://x/*y*/\"", "<a//b>"}));
}

TEST(Directives, AreNotInventedFromOtherText) {
  for (const char* text :
       {"", "#", "#include", "#include\n", "#include \"a.h\n", "#include <a.h\"\n", "#include \"\"\n",
        "#included <a.h>\n", "include <a.h>\n", "#Include <a.h>\n", "#define A <a.h>\n", "#if A < B && C > D\n",
        "#if defined(A) && (B < C)\n", "#pragma once\n", "#error \"a.h\"\n", "f(\"a.h\");\n", "// #include <a.h>\n",
        "#define A #include <a.h>\n", "x #include <a.h>\n"})
    EXPECT_EQ(lookups(text), Texts{}) << text;
}

TEST(Directives, FindFilesWhoseExistenceIsTested) {
  for (const char* text : {
           "#if __has_include(<a.h>)\n",
           "#if defined(__has_include) && __has_include ( <a.h> )\n",
           "#elif __has_include(\\\n<a.h>)\n",
           "#define HAS __has_include(<a.h>)\n",
           "#if __has_embed(<a.h>)\n",
           "#if HAS_INCLUDE(<a.h>)\n",
           "#if X(<a.h>)\n",
           "#define B MY_HAS_INCLUDE(<a.h>)\n",
           "#if A /*\n*/ && X(<a.h>)\n",
       })
    EXPECT_EQ(lookups(text), Texts{"has <a.h>"}) << text;
  EXPECT_EQ(lookups("#if __has_include(\"a.h\")\n"), Texts{"has \"a.h\""});
  EXPECT_EQ(lookups("#if __has_include_next(<a.h>)\n"), Texts{"has next <a.h>"});
  EXPECT_EQ(lookups("#if __has_include(T(a.h)) && B\n"), Texts{"has computed T(a.h)"});
  EXPECT_EQ(lookups("#if __has_include(A_H)\n"), Texts{"has computed A_H"});
  EXPECT_EQ(lookups("#if MY_HAS_INCLUDE(A_H)\n"), Texts{"has computed A_H"});
  EXPECT_EQ(lookups("#ifdef __has_include\n"), Texts{});
}

TEST(Directives, FindNamesThatMacrosCompute) {
  EXPECT_EQ(lookups("#include A_H\n"), Texts{"computed A_H"});
  EXPECT_EQ(lookups("#include A_H // why\n"), Texts{"computed A_H"});
  EXPECT_EQ(lookups("#include M2S( DIR / \\\n x.h ) /* why */\n"), Texts{"computed M2S( DIR /  x.h )"});
  EXPECT_EQ(lookups("#include_next A_H\n"), Texts{"next computed A_H"});
  EXPECT_EQ(lookups("#include $H\n#include caf\xc3\xa9\n"), (Texts{"computed $H", "computed caf\xc3\xa9"}));
}

TEST(Directives, ListEachLookupOnce) {
  EXPECT_EQ(lookups("#include <a>\n#include <a>\n#if __has_include(<a>)\n#include <a>\n#endif\n"),
            (Texts{"<a>", "has <a>"}));
}

TEST(Directives, OfTextThatEndsAnywhereAreNoCrash) {
  const std::string text =
      "#if __has_include(<a.h>) /* c */ && X(\"b\\\n\")\n%:define F(a, b...) \\\n a ## b\n#include F(1, 2)\n";
  for (std::size_t size = 0; size <= text.size(); ++size) {
    static_cast<void>(find_directives(std::string_view(text).substr(0, size)));
    static_cast<void>(find_definitions(std::string_view(text).substr(0, size)));
  }
}

TEST(Directives, WithLongOperandsAreCut) {
  const Directives found = find_directives("#include A" + std::string(5000, 'x') + "\n");
  ASSERT_EQ(found.computed.size(), 1U);
  EXPECT_TRUE(found.computed[0].is_cut);
  EXPECT_LT(found.computed[0].operand.size(), 100U);
}

TEST(Directives, OfLongTextsTakeLinearTime) {
  // Each text took seconds to minutes when its lines were read again for each directive.
  for (const char* part : {"#include a", "/**/#include a", "#if include(a", "#/*", "#include <a", "/**/#include <a",
                           "#define ", "/**/#define ", "#define REG_7 0x10 /* text\n text */\n", "__has_include(a",
                           "__has_include(<a", "/**/#if x(", "%:", "?\?/", "#define A \\\n", "#if A /* B\n"}) {
    std::string text;
    while (text.size() < 400'000) text += part;
    const auto start = std::chrono::steady_clock::now();
    static_cast<void>(find_directives(text));
    static_cast<void>(find_definitions(text));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << part;
  }
}

TEST(Definitions, AreReadWithTheirParameters) {
  const auto found = find_definitions(
                         "#define A\n# define B 1 // one\n#define C(x) #x\n#define D(x, y) x ## y \\\n  + 1 /* two "
                         "*/\n#define E (x)\n"
                         "#define F(x, ...) __VA_ARGS__\n#define G(rest...) rest\n#define\n")
                         .defined;
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

TEST(Definitions, MayHaveNamesBeyondAscii) {
  const auto found = find_definitions("#define $H 1\n#define caf\xc3\xa9(\xc3\xa9) 2\n").defined;
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "$H");
  EXPECT_EQ(found[1].name, "caf\xc3\xa9");
  EXPECT_EQ(found[1].parameters, std::vector<std::string>{"\xc3\xa9"});
}

TEST(Definitions, MayBeRemoved) {
  const auto found = find_definitions("#define A\n# undef A // why\n#undef\n#undef B");
  EXPECT_EQ(found.undefined, (std::vector<std::string>{"A", "", "B"}));
}

}  // namespace
}  // namespace kiln::key
