#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "key/macros.hpp"

namespace kiln::key {
namespace {

/// The file names that an operand can stand for, as in "<a.h>"; "unknown" if they cannot be listed.
std::vector<std::string> names(std::string_view definitions, std::string_view operand,
                               const std::map<std::string, std::string>& defines = {}) {
  Macros macros(defines);
  macros.add(find_definitions(definitions));
  const auto found = macros.header_names(std::string(operand));
  if (!found) return {"unknown"};
  std::vector<std::string> result;
  for (const HeaderName& name : *found)
    result.push_back(name.quoted ? '"' + name.name + '"' : '<' + name.name + '>');
  return result;
}

using Names = std::vector<std::string>;

TEST(Macros, ThatStandForAFileAreReplaced) {
  EXPECT_EQ(names("#define A <a.h>\n", "A"), Names{"<a.h>"});
  EXPECT_EQ(names("#define A \"a.h\"\n", "A"), Names{"\"a.h\""});
  EXPECT_EQ(names("#define A B\n#define B C\n#define C <c.h>\n", "A"), Names{"<c.h>"});
  EXPECT_EQ(names("", "A", {{"A", "<a.h>"}}), Names{"<a.h>"});
}

TEST(Macros, InsideOfAFileNameAreReplaced) {
  EXPECT_EQ(names("#define ROOT thrust/system/cpp\n#define A <ROOT/detail/copy.h>\n", "A"),
            (Names{"<ROOT/detail/copy.h>", "<thrust/system/cpp/detail/copy.h>"}));
}

TEST(Macros, WithArgumentsAreReplaced) {
  const char* m2s = "#define M2S(x) XM2S(x)\n#define XM2S(x) #x\n";
  EXPECT_EQ(names(m2s, "M2S(INCLUDE_PATH/inc_vendor.h)", {{"INCLUDE_PATH", "/usr/share/hashcat/OpenCL"}}),
            Names{"\"/usr/share/hashcat/OpenCL/inc_vendor.h\""});
  EXPECT_EQ(names(m2s, "XM2S(A/b.h)", {{"A", "a"}}), Names{"\"A/b.h\""}) << "# takes the argument as written";
  EXPECT_EQ(names("#define CAT(a, b) a ## b\n#define FILE_2 <two.h>\n", "CAT(FILE_, 2)"), Names{"<two.h>"});
  EXPECT_EQ(names("#define FIRST(a, ...) a\n", "FIRST(<a.h>, x, y)"), Names{"<a.h>"});
  EXPECT_EQ(names("#define REST(a, ...) __VA_ARGS__\n", "REST(x, <a.h>)"), Names{"<a.h>"});
  EXPECT_EQ(names("#define ID(a) a\n#define P(a) ID(a)\n", "P(ID(P(<a.h>)))"), Names{"<a.h>"});
}

TEST(Macros, WithArgumentsMayBeGivenByTheRequest) {
  EXPECT_EQ(names("", "M2S(DIR/a.h)", {{"XM2S(x)", "#x"}, {"M2S(x)", "XM2S(x)"}, {"DIR", "lib"}}),
            Names{"\"lib/a.h\""});
}

TEST(Macros, WithSeveralDefinitionsHaveSeveralValues) {
  EXPECT_EQ(names("#if X\n#define A <a.h>\n#else\n#define A <b.h>\n#endif\n", "A"), (Names{"<a.h>", "<b.h>"}));
  EXPECT_EQ(names("#define ROOT x\n#define ROOT y\n#define A <ROOT/a.h>\n#define A <ROOT/b.h>\n", "A"),
            (Names{"<ROOT/a.h>", "<ROOT/b.h>", "<x/a.h>", "<x/b.h>", "<y/a.h>", "<y/b.h>"}));
  EXPECT_EQ(names("#define A <a.h>\n", "A", {{"A", "<b.h>"}}), (Names{"<a.h>", "<b.h>"}));
}

constexpr const char* strings = "#define S(x) #x\n#define T(x) S(x)\n";

TEST(Macros, MayNotBeDefinedOnTheLineThatUsesThem) {
  EXPECT_EQ(names(std::string(strings) + "#ifdef FAST\n#define MODE fast\n#endif\n", "T(MODE.h)"),
            (Names{"\"MODE.h\"", "\"fast.h\""}));
  EXPECT_EQ(names(std::string(strings) + "#define N x\n#define N(a) a\n", "T(N.h)"), (Names{"\"N.h\"", "\"x.h\""}));
  EXPECT_EQ(names("#undef DIR\n", "M2S(DIR/a.h)", {{"M2S(x)", "XM2S(x)"}, {"XM2S(x)", "#x"}, {"DIR", "lib"}}),
            (Names{"\"DIR/a.h\"", "\"lib/a.h\""}));
}

TEST(Macros, InsideOfANumberAreNone) {
  EXPECT_EQ(names(std::string(strings) + "#define h foo\n#define F(d) T(3d.h)\n", "T(3d.h)"), Names{"\"3d.h\""});
  EXPECT_EQ(names(std::string(strings) + "#define F(d) T(3d.h)\n", "F(x)"), Names{"\"3d.h\""});
  EXPECT_EQ(names(std::string(strings) + "#define h foo\n", "T(v3d.h)"), (Names{"\"v3d.foo\"", "\"v3d.h\""}));
}

TEST(Macros, ThatGetTheirArgumentsLaterAreReplaced) {
  EXPECT_EQ(names("#define STR(x) #x\n#define ARGS (a.h)\n#define EVAL(x) x\n", "EVAL(STR ARGS)"),
            Names{"\"a.h\""});
  EXPECT_EQ(names("#define EMPTY\n#define DEFER(x) x EMPTY\n#define FILE() \"a.h\"\n#define EVAL(x) x\n",
                  "EVAL(DEFER(FILE)())"),
            Names{"\"a.h\""});
  const auto found = names(std::string(strings) + "#define f(a) a.g\n#define g(a) f(a)\n", "T(f(2)(9))");
  EXPECT_NE(std::ranges::find(found, "\"2.9.g\""), found.end()) << "as gcc, clang and NVRTC do";
}

TEST(Macros, PasteEmptyArguments) {
  EXPECT_EQ(
      names(std::string(strings) + "#define NAME impl\n#define PATH(pre, n) T(lib/pre##n.h)\n", "PATH(,NAME)"),
      (Names{"\"lib/NAME.h\"", "\"lib/impl.h\""}));
  EXPECT_EQ(names("#define CAT(a, b, c) <a##b##c.h>\n", "CAT(,,x)"), Names{"<x.h>"});
  EXPECT_EQ(names("#define CAT(a, b, c) <a##b##c.h>\n", "CAT(x,,)"), Names{"<x.h>"});
  const std::string comma =
      "#define S(...) #__VA_ARGS__\n#define T(...) S(__VA_ARGS__)\n#define P(f, ...) T(f, ## __VA_ARGS__)\n";
  EXPECT_EQ(names(comma, "P(a.h)"), (Names{"\"a.h\"", "\"a.h,\""})) << "gcc removes the comma";
}

TEST(Macros, WithNamesBeyondAsciiAreReplaced) {
  EXPECT_EQ(names("#define $H \"a.h\"\n", "$H"), Names{"\"a.h\""});
  EXPECT_EQ(names("#define \xc3\xa9 \"a.h\"\n", "\xc3\xa9"), Names{"\"a.h\""});
  EXPECT_EQ(names(strings, "T(caf\xc3\xa9/a.h)"), Names{"\"caf\xc3\xa9/a.h\""});
  EXPECT_EQ(names(std::string(strings) + "#define caf x\n", "T(caf\xc3\xa9.h)"), Names{"unknown"})
      << "the compiler may read two words";
}

TEST(Macros, WithStrangeCharactersCannotBeListed) {
  EXPECT_EQ(names(strings, "T(a\\b.h)"), Names{"unknown"});
  EXPECT_EQ(names(strings, "T(\x01.h)"), Names{"unknown"});
  EXPECT_EQ(names(strings, "\\u00e9"), Names{"unknown"});
}

TEST(Macros, WithQuotesInAStringAreReadAsCompilersDo) {
  EXPECT_EQ(names(std::string(strings) + "#define H \"x.h\"\n", "T(H)"),
            (Names{"\"H\"", "\"\\\"", "\"\\\"x.h\\\"\""}));
}

TEST(Macros, ThatLeaveBlanksInANameHaveThemInSomeCompilers) {
  EXPECT_EQ(names("#define Q <x.h >\n", "Q"), (Names{"<x.h>", "<x.h >"}));
  EXPECT_EQ(names("#define E\n#define Q <lib/E x.h>\n", "Q"),
            (Names{"<lib/ x.h>", "<lib/E x.h>", "<lib/Ex.h>", "<lib/x.h>"}));
  EXPECT_EQ(names(std::string(strings) + "#define E\n", "T(x E.h)"), (Names{"\"x .h\"", "\"x E.h\""}));
}

TEST(Macros, OfOpenClAndLinuxHaveTheirValues) {
  EXPECT_EQ(names(strings, "T(cl_khr_fp64.h)"), (Names{"\"1.h\"", "\"cl_khr_fp64.h\""}));
  EXPECT_EQ(names(strings, "T(CL_VERSION_1_2.h)"), (Names{"\"120.h\"", "\"CL_VERSION_1_2.h\""}));
  EXPECT_EQ(names(strings, "T(lib/linux/a.h)"), (Names{"\"lib/1/a.h\"", "\"lib/linux/a.h\""}));
}

TEST(Macros, AreListedAgainOnlyIfOneOfThemChanges) {
  Macros macros({});
  macros.add(find_definitions("#define A <a.h>\n"));
  const auto before = macros.header_names("A");
  macros.add(find_definitions("#define B <b.h>\n#define A <a.h>\n"));
  EXPECT_EQ(macros.header_names("A"), before);
  macros.add(find_definitions("#define A <b.h>\n"));
  EXPECT_NE(macros.header_names("A"), before);
  EXPECT_EQ(macros.header_names("A")->size(), 2U);
}

TEST(Macros, InLongOperandsTakeLittleTime) {
  std::string words = "T(";
  for (int i = 0; i < 500; ++i) words += "A ";
  EXPECT_EQ(names(std::string(strings) + "#define A b\n", words + ")"), Names{"unknown"});
}

TEST(Macros, ThatAreNotDefinedLeadToNoFile) {
  EXPECT_EQ(names("", "A_H"), Names{});
  EXPECT_EQ(names("#define A 1\n", "A"), Names{});
  EXPECT_EQ(names("#define F(x) <x>\n", "F"), Names{}) << "without arguments";
  EXPECT_EQ(names("#define F(x) <x>\n", "F(a.h"), Names{});
}

TEST(Macros, OfTheCompilerCannotBeListed) {
  EXPECT_EQ(names("", "__KERNEL_HEADER__"), Names{"unknown"});
  EXPECT_EQ(names("#define S(x) <sm_##x.h>\n#define T(x) S(x)\n", "T(__CUDA_ARCH__)"), Names{"unknown"});
}

TEST(Macros, ThatContainThemselvesEnd) {
  EXPECT_EQ(names("#define A A\n", "A"), Names{});
  EXPECT_EQ(names("#define A B\n#define B A\n", "A"), Names{});
  EXPECT_EQ(names("#define F(x) F(x)\n", "F(F(1))"), Names{});
  EXPECT_EQ(names("#define F(x) G(x)\n#define G(x) F(x) F(x)\n", "F(1)"), Names{});
}

TEST(Macros, ThatGrowWithoutBoundCannotBeListed) {
  std::string doubling;
  for (int i = 0; i < 40; ++i)
    doubling +=
        "#define A" + std::to_string(i) + " A" + std::to_string(i + 1) + " A" + std::to_string(i + 1) + "\n";
  EXPECT_EQ(names(doubling + "#define A40 <x>\n", "A0"), Names{"unknown"});
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "#define A <" + std::to_string(i) + ".h>\n";
  EXPECT_EQ(names(many, "A"), Names{"unknown"});
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "#define A" + std::to_string(i) + " A" + std::to_string(i + 1) + "\n";
  EXPECT_EQ(names(deep, "A0"), Names{"unknown"});
}

}  // namespace
}  // namespace kiln::key
