#include <array>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "backend/vulkan/shaderc.hpp"
#include "backend/vulkan/spirv.hpp"
#include "backend/vulkan_fixture.hpp"
#include "backend/vulkan_modules.hpp"
#include "fakes/child.hpp"

namespace kiln::vulkan {
namespace {

using fakes::vulkan_program;

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  std::uint32_t operator()() { return static_cast<std::uint32_t>(engine_()); }

 private:
  std::mt19937 engine_;
};

std::vector<std::uint32_t> compiled(const Request& request) {
  return Shaderc::find().value()->compile(request).value().words;
}

/// A module with something of everything that the reader looks at.
std::vector<std::uint32_t> rich_module() {
  return compiled(Request({.name = "rich",
                           .source = R"(#version 450
layout(local_size_x = 8, local_size_y = 4, local_size_z = 2) in;
struct Item { vec3 place; float weight[3]; };
layout(std430, binding = 0) buffer A { float a[]; };
layout(std430, binding = 3) readonly buffer B { Item b[]; };
layout(push_constant) uniform P { uint n; vec2 v; mat3 m; float f[3]; uint last; };
shared float tile[16][17];
shared vec4 row[10];
shared Item items[2];
void main() {
  uint i = gl_LocalInvocationIndex;
  tile[i % 16][i % 17] = b[i].place.x;
  row[i % 10] = vec4(m[1], v.x);
  items[i % 2] = b[i];
  barrier();
  a[i] = tile[n % 16][0] + row[n % 10].y + items[n % 2].weight[1] + f[1] + float(last);
}
)",
                           .language = Language::vulkan_glsl}));
}

/// The interface of a module whose only entry point is main.
ShaderInterface interface_of(std::span<const std::uint32_t> words) {
  const auto entries = read_spirv(words).value();
  EXPECT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].name, "main");
  return entries[0].interface;
}

TEST(Compiler, ThatIsMissingIsNamedWithWhatMakesIt) {
  static constexpr std::array libraries = {"libc.so.6", "libkiln_nowhere.so"};
  const auto missing = Shaderc::open(libraries);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::no_device);
  const std::string& message = missing.error().message();
  EXPECT_NE(message.find("cannot load libkiln_nowhere.so: "), std::string::npos) << message;
  EXPECT_NE(message.find("libshaderc-dev installed, which creates libkiln_shaderc.so.0"), std::string::npos)
      << message;
  EXPECT_NE(missing.error().log().find("libc.so.6 has no shaderc_compiler_initialize"), std::string::npos);
}

#ifdef KILN_SHADERC_VERSION
TEST(Compiler, OfTheBuildsOwnMakingIsFoundWithoutLoadingIt) {
  const auto shaderc = Shaderc::find().value();
  EXPECT_EQ(shaderc->version(), "shaderc " KILN_SHADERC_VERSION);
  EXPECT_FALSE(shaderc->is_loaded());
  ASSERT_TRUE(shaderc->compile(Request({.name = "nothing",
                                        .source = "#version 450\nlayout(local_size_x = 1) in;\nvoid main() {}\n",
                                        .language = Language::vulkan_glsl})));
  EXPECT_TRUE(shaderc->is_loaded());
}

TEST(Compiler, OfAnotherVersionThanKilnWasBuiltWithIsRefused) {
  // Its programs would be stored under the wrong identity.
  const std::string file = fakes::in_child([]() -> std::string {
    const auto loaded = Shaderc::find().value();
    static_cast<void>(loaded->compile(Request({.source = "#version 450\n", .language = Language::vulkan_glsl})));
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      if (line.find("libkiln_shaderc") != std::string::npos) return line.substr(line.find('/'));
    return "";
  });
  ASSERT_FALSE(file.empty());
  const Shaderc other(file, "shaderc 1.0");
  const auto refused =
      other.compile(Request({.name = "conv",
                             .source = "#version 450\nlayout(local_size_x = 1) in;\nvoid main() {}\n",
                             .language = Language::vulkan_glsl}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::unsupported);
  EXPECT_NE(refused.error().message().find("install Kiln and its libkiln_shaderc.so.0 together"), std::string::npos)
      << refused.error().message();
}

TEST(Compiler, OfAVariableThatNamesNoneIsRefusedWithTheVariable) {
  for (const char* library : {"/nowhere/libkiln_shaderc.so.0", "libc.so.6"}) {
    const std::string error = fakes::in_child([library]() -> std::string {
      setenv("KILN_SHADERC", library, 1);
      const auto refused = Shaderc::find().value()->compile(vulkan_program("conv", "", ""));
      if (refused) return "compiled";
      return std::string(to_string(refused.error().code())) + ": " + refused.error().message();
    });
    EXPECT_TRUE(error.starts_with("unsupported: ")) << error;
    EXPECT_NE(error.find(library), std::string::npos) << error;
    EXPECT_NE(error.find("set KILN_SHADERC to the libkiln_shaderc.so.0 of this build of Kiln, or unset it"),
              std::string::npos)
        << error;
  }
}
#endif

TEST(Spirv, TellsWhatAProgramAsksFor) {
  const ShaderInterface interface = interface_of(rich_module());
  EXPECT_EQ(interface.buffers(), 4U);
  // n at 0, v at 8, m at 16 in columns of 16 bytes, f at 64, last at 76.
  EXPECT_EQ(interface.parameter_bytes, 80U);
  EXPECT_EQ(interface.shared_bytes, 4U * 16 * 17 + 16 * 10 + 2 * 24);
  EXPECT_EQ(interface.group_size, (std::array<std::uint32_t, 3>{8, 4, 2}));
}

TEST(Spirv, EntryPointsAreTheSameAfterTheyWereBytes) {
  std::vector<ShaderEntry> entries = read_spirv(rich_module()).value();
  EXPECT_EQ(entries_from(to_bytes(entries)), entries);
  entries[0].name = "other";
  entries.push_back({"second", entries[0].interface});
  entries.back().interface.group_size = {1, 2, 3};
  auto bytes = to_bytes(entries);
  EXPECT_EQ(entries_from(bytes), entries);
  bytes.pop_back();
  EXPECT_FALSE(entries_from(bytes));
  EXPECT_FALSE(entries_from({}));
}

TEST(Spirv, OfAnyVersionOfVulkanIsReadUpToIt) {
  EXPECT_EQ(spirv_version_of(VK_API_VERSION_1_1), 0x00010300U);
  EXPECT_EQ(spirv_version_of(VK_API_VERSION_1_2), 0x00010500U);
  EXPECT_EQ(spirv_version_of(VK_API_VERSION_1_3), 0x00010600U);
  auto words = rich_module();
  words[1] = 0x00010500;
  EXPECT_TRUE(read_spirv(words, {.max_version = 0x00010500}));
  const auto refused = read_spirv(words, {.max_version = 0x00010300});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(), "the SPIR-V has version 1.5; the device takes versions up to 1.3");
}

TEST(Spirv, ThatIsNotValidIsRefusedWithTheReason) {
  const auto shaderc = Shaderc::find().value();
  auto words = rich_module();
  EXPECT_TRUE(shaderc->validate("rich", words, SpirvEnvironment::vulkan_1_1));
  words.resize(words.size() - 1);
  const auto refused = shaderc->validate("rich", words, SpirvEnvironment::vulkan_1_1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::compile_failed);
  EXPECT_TRUE(refused.error().message().starts_with("rich is not valid SPIR-V: ")) << refused.error().message();
}

TEST(Spirv, RowMajorMatricesHaveTheirRowsApart) {
  const ShaderInterface interface = interface_of(
      compiled(vulkan_program("matrix",
                              "layout(push_constant, std430) uniform P { layout(row_major) mat4x2 m; };\n"
                              "layout(binding = 0) buffer A { vec2 a[]; };",
                              "a[0] = m[1];")));
  EXPECT_EQ(interface.parameter_bytes, 32U);
}

TEST(Spirv, ASpecialisedGroupSizeIsThatOfItsConstants) {
  const ShaderInterface interface =
      interface_of(compiled(Request({.name = "special",
                                     .source = "#version 450\nlayout(local_size_x = 32) in;\n"
                                               "layout(local_size_x_id = 7) in;\nvoid main() {}\n",
                                     .language = Language::vulkan_glsl})));
  EXPECT_EQ(interface.group_size, (std::array<std::uint32_t, 3>{32, 1, 1}));
}

TEST(Spirv, DecorationGroupsThatHideTheInterfaceAreRefused) {
  auto words = fakes::DoublingModule{}.words();
  ASSERT_TRUE(read_spirv(words));
  const std::uint32_t group_decorate = 3U << 16 | static_cast<std::uint32_t>(spv::Op::OpGroupDecorate);
  words.insert(words.end(), {group_decorate, 1, 2});
  const auto refused = read_spirv(words);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::unsupported);
}

TEST(Spirv, ALengthOf64BitsIsLarge) {
  auto words = fakes::DoublingModule{.shared_numbers = 77}.words();
  const auto length = std::ranges::find(words, 77U);
  *(length - 3) += 1U << 16;  // One more word of the constant.
  words.insert(length + 1, 1);
  EXPECT_GT(interface_of(words).shared_bytes, std::uint64_t{1} << 32);
}

TEST(Spirv, RefusesWhatIsNone) {
  const auto words = rich_module();
  EXPECT_FALSE(read_spirv({}));
  EXPECT_TRUE(spirv_words(std::as_bytes(std::span(words)).first(23)).empty());
  const std::pair<std::size_t, std::uint32_t> changes[] = {
      {0, 0x03022307},  // the other byte order
      {1, 0x00010600},  // SPIR-V 1.6
      {3, 0},           // no ids
      {3, 5},           // ids beyond the bound
      {3, 0xffffffff},  // more ids than can be
      {4, 1},           // a schema
      {5, 0x00000011},  // an instruction of no words
      {5, 0xffff0011},  // one that overruns
  };
  for (const auto& [at, value] : changes) {
    auto changed = words;
    changed[at] = value;
    const auto result = read_spirv(changed);
    ASSERT_FALSE(result) << at << ' ' << value;
    EXPECT_EQ(result.error().code(), ErrorCode::load_failed) << at << ' ' << value;
  }
}

TEST(Spirv, LengthsThatOverflowAreLargeAndNotSmall) {
  auto words =
      compiled(vulkan_program("long", "layout(binding = 0) buffer A { float a[]; };\nshared float t[12345][6789];",
                              "t[uint(a[0])][uint(a[1])] = 1; barrier(); a[1] = t[uint(a[2])][3];"));
  for (std::uint32_t& word : words)
    if (word == 12345 || word == 6789) word = 0xffffffff;
  EXPECT_GT(interface_of(words).shared_bytes, std::uint64_t{1} << 62);
}

TEST(Spirv, SurvivesEveryTruncation) {
  const auto words = rich_module();
  for (std::size_t size = 0; size < words.size(); ++size)
    (void)read_spirv(std::span(words).first(size));  // Nothing to expect but that it comes back.
}

TEST(Spirv, SurvivesRandomChanges) {
  const auto words = rich_module();
  Random random(20240515);
  std::size_t refused = 0;
  for (int round = 0; round < 20000; ++round) {
    auto changed = words;
    for (std::uint32_t n = random() % 4; n < 4; ++n) {
      std::uint32_t& word = changed[random() % changed.size()];
      const std::uint32_t choices[] = {random(), random() % 64, word ^ 1U << random() % 32,
                                       0,        0xffffffff,    words[random() % words.size()]};
      word = choices[random() % std::size(choices)];
    }
    refused += read_spirv(changed) ? 0 : 1;
  }
  EXPECT_GT(refused, 1000U);
}

TEST(Spirv, SurvivesNoise) {
  Random random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::uint32_t> words = {0x07230203, 0x00010300, 0, 100, 0};
    for (std::uint32_t n = random() % 200; n > 0; --n) {
      const std::uint32_t count = 1 + random() % 6;
      words.push_back(count << 16 | random() % 80);
      for (std::uint32_t i = 1; i < count; ++i) words.push_back(random() % 110);
    }
    (void)read_spirv(words);
  }
}

}  // namespace
}  // namespace kiln::vulkan
