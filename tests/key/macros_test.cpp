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
  const auto found = macros.header_names(operand);
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
            Names{"<thrust/system/cpp/detail/copy.h>"});
}

TEST(Macros, WithArgumentsAreReplaced) {
  const char* strings = "#define M2S(x) XM2S(x)\n#define XM2S(x) #x\n";
  EXPECT_EQ(names(strings, "M2S(INCLUDE_PATH/inc_vendor.h)", {{"INCLUDE_PATH", "/usr/share/hashcat/OpenCL"}}),
            Names{"\"/usr/share/hashcat/OpenCL/inc_vendor.h\""});
  EXPECT_EQ(names(strings, "XM2S(A/b.h)", {{"A", "a"}}), Names{"\"A/b.h\""}) << "# takes the argument as written";
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
            (Names{"<x/a.h>", "<x/b.h>", "<y/a.h>", "<y/b.h>"}));
  EXPECT_EQ(names("#define A <a.h>\n", "A", {{"A", "<b.h>"}}), (Names{"<a.h>", "<b.h>"}));
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
  EXPECT_EQ(names(doubling + "#define A40 x\n", "A0"), Names{"unknown"});
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "#define A <" + std::to_string(i) + ".h>\n";
  EXPECT_EQ(names(many, "A"), Names{"unknown"});
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "#define A" + std::to_string(i) + " A" + std::to_string(i + 1) + "\n";
  EXPECT_EQ(names(deep, "A0"), Names{"unknown"});
}

}  // namespace
}  // namespace kiln::key
