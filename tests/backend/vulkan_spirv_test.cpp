#include <array>
#include <cstring>
#include <fstream>
#include <functional>
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

/// Writes a SPIR-V module.
class Assembler {
 public:
  explicit Assembler(std::uint32_t version) : words_({spv::MagicNumber, version, 0, 1 << 20, 0}) {}

  Assembler& add(spv::Op op, std::initializer_list<std::uint32_t> operands) {
    return add(op, std::vector<std::uint32_t>(operands));
  }
  Assembler& add(spv::Op op, const std::vector<std::uint32_t>& operands) {
    words_.push_back(static_cast<std::uint32_t>(operands.size() + 1) << spv::WordCountShift |
                     static_cast<std::uint32_t>(op));
    words_.insert(words_.end(), operands.begin(), operands.end());
    return *this;
  }
  /// An entry point, whose name has at most 3 characters.
  Assembler& entry(std::uint32_t function, std::string_view name,
                   std::initializer_list<std::uint32_t> interface = {}) {
    std::vector<std::uint32_t> operands = {static_cast<std::uint32_t>(spv::ExecutionModel::GLCompute), function, 0};
    std::memcpy(&operands[2], name.data(), name.size());
    operands.insert(operands.end(), interface);
    add(spv::Op::OpEntryPoint, operands);
    return add(spv::Op::OpExecutionMode,
               {function, static_cast<std::uint32_t>(spv::ExecutionMode::LocalSize), 1, 1, 1});
  }
  /// A type of a buffer with one uint, and as many buffers of set 0: 101 at binding 0, and so on.
  Assembler& buffers(std::uint32_t count) {
    constexpr auto uniform = static_cast<std::uint32_t>(spv::StorageClass::Uniform);
    add(spv::Op::OpDecorate, {11, static_cast<std::uint32_t>(spv::Decoration::BufferBlock)});
    add(spv::Op::OpMemberDecorate, {11, 0, static_cast<std::uint32_t>(spv::Decoration::Offset), 0});
    for (std::uint32_t i = 0; i < count; ++i)
      add(spv::Op::OpDecorate, {101 + i, static_cast<std::uint32_t>(spv::Decoration::Binding), i});
    add(spv::Op::OpTypeInt, {10, 32, 0}).add(spv::Op::OpTypeStruct, {11, 10});
    add(spv::Op::OpTypePointer, {12, uniform, 11});
    for (std::uint32_t i = 0; i < count; ++i) add(spv::Op::OpVariable, {12, 101 + i, uniform});
    return *this;
  }
  const std::vector<std::uint32_t>& words() const { return words_; }

 private:
  std::vector<std::uint32_t> words_;
};

std::vector<std::uint32_t> bindings_of(const ShaderEntry& entry) {
  std::vector<std::uint32_t> bindings;
  for (const auto& resource : entry.interface.resources) bindings.push_back(resource.place.binding);
  return bindings;
}

/// The message with which a module is refused.
std::string refusal(std::span<const std::uint32_t> words) {
  const auto entries = read_spirv(words);
  return entries ? "" : entries.error().message();
}

using backend::GlslMember;
using backend::GlslResource;
using Kind = GlslResource::Kind;

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
      const auto found = Shaderc::find();
      const auto refused = found ? (*found)->compile(vulkan_program("conv", "", "")) : found.error();
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

TEST(Spirv, AllKindsOfResourcesAreListedWithTheirPlaces) {
  const auto entries =
      Shaderc::find()
          .value()
          ->compile(vulkan_program("kinds",
                                   "layout(binding = 0) buffer A { uint n; float a[]; } storage;\n"
                                   "layout(binding = 1) uniform B { vec3 b; float c; };\n"
                                   "layout(binding = 2, r32f) uniform image2D image;\n"
                                   "layout(binding = 3) uniform sampler2D textures[4];\n"
                                   "layout(set = 1, binding = 0) uniform texture2D plain;\n"
                                   "layout(set = 1, binding = 9) uniform sampler filter_;\n"
                                   "layout(set = 2, binding = 0) uniform samplerBuffer texels;\n"
                                   "layout(set = 2, binding = 1, r32f) uniform imageBuffer rows;\n"
                                   "layout(constant_id = 3) const uint length = 7;\n"
                                   "layout(push_constant) uniform P { uint n; mat3 m; vec2 v[2]; };",
                                   ""))
          .value()
          .entries;
  const ShaderInterface& interface = entries.at(0).interface;
  EXPECT_EQ(interface.resources, (std::vector<GlslResource>{
                                     {Kind::storage_buffer, {0, 0}, 1, "A", 4},
                                     {Kind::uniform_buffer, {1, 0}, 1, "B", 16},
                                     {Kind::image, {2, 0}, 1, "image", 0},
                                     {Kind::texture, {3, 0}, 4, "textures", 0},
                                     {Kind::sampled_image, {0, 1}, 1, "plain", 0},
                                     {Kind::sampler, {9, 1}, 1, "filter_", 0},
                                     {Kind::uniform_texel_buffer, {0, 2}, 1, "texels", 0},
                                     {Kind::storage_texel_buffer, {1, 2}, 1, "rows", 0},
                                 }));
  EXPECT_EQ(interface.members, (std::vector<GlslMember>{{"n", 0, 4}, {"m", 16, 48}, {"v", 64, 16}}));
  EXPECT_EQ(interface.constants,
            (std::vector<SpecConstant>{
                {.id = 3, .kind = SpecConstant::Kind::unsigned_integer, .value = 7, .name = "length"}}));
  EXPECT_EQ(entries_from(to_bytes(entries)), entries);
}

TEST(Spirv, LengthsFollowFromConstants) {
  const auto words = compiled(
      vulkan_program("lengths",
                     "layout(constant_id = 1) const uint n = 4;\n"
                     "layout(local_size_y_id = 2) in;\n"
                     "layout(binding = 0) buffer A { float a[]; } all[n];\n"
                     "shared float square[n * n + gl_WorkGroupSize.y];",
                     "square[uint(all[0].a[0])] = 1; barrier(); all[1].a[0] = square[uint(all[2].a[1])];"));
  const Constants constants = {{1, 10U}, {2, 3U}};
  const ShaderInterface plain = interface_of(words);
  EXPECT_EQ(plain.shared_bytes, 4U * (16 + 1));
  EXPECT_EQ(plain.resources.at(0).count, 4U);
  const ShaderInterface special = read_spirv(words, {.constants = &constants}).value()[0].interface;
  EXPECT_EQ(special.shared_bytes, 4U * (100 + 3));
  EXPECT_EQ(special.resources.at(0).count, 10U);
  EXPECT_EQ(special.group_size, (std::array<std::uint32_t, 3>{1, 3, 1}));
}

/// A module with a buffer of as many uints as the constant 30, which `declare` declares. 10 is the type uint.
std::vector<std::uint32_t> buffer_of_length(const std::function<void(Assembler&)>& declare) {
  constexpr auto uniform = static_cast<std::uint32_t>(spv::StorageClass::Uniform);
  Assembler module(0x00010300);
  module.entry(1, "m")
      .add(spv::Op::OpDecorate, {11, static_cast<std::uint32_t>(spv::Decoration::ArrayStride), 4})
      .add(spv::Op::OpDecorate, {12, static_cast<std::uint32_t>(spv::Decoration::BufferBlock)})
      .add(spv::Op::OpMemberDecorate, {12, 0, static_cast<std::uint32_t>(spv::Decoration::Offset), 0})
      .add(spv::Op::OpDecorate, {14, static_cast<std::uint32_t>(spv::Decoration::Binding), 0})
      .add(spv::Op::OpTypeInt, {10, 32, 0});
  declare(module);
  module.add(spv::Op::OpTypeArray, {11, 10, 30})
      .add(spv::Op::OpTypeStruct, {12, 11})
      .add(spv::Op::OpTypePointer, {13, uniform, 12})
      .add(spv::Op::OpVariable, {13, 14, uniform});
  return module.words();
}

constexpr std::uint32_t operation(spv::Op op) { return static_cast<std::uint32_t>(op); }

TEST(Spirv, ConstantsOf8And16BitsAreComputedWithTheirWidth) {
  const auto bytes_if = [](std::uint32_t bits, bool is_signed, std::uint32_t word, spv::Op convert) {
    const auto words = buffer_of_length([&](Assembler& module) {
      module.add(spv::Op::OpTypeInt, {20, bits, is_signed ? 1U : 0U})
          .add(spv::Op::OpConstant, {20, 21, word})
          .add(spv::Op::OpSpecConstantOp, {20, 22, operation(spv::Op::OpSNegate), 21})
          .add(spv::Op::OpSpecConstantOp, {10, 30, operation(convert), 22});
    });
    const auto entries = read_spirv(words, {.count = SpirvOptions::Count::declared}).value();
    return entries.at(0).interface.resources.at(0).bytes;
  };
  EXPECT_EQ(bytes_if(8, true, 0xffffff9c, spv::Op::OpSConvert), 4U * 100);  // -(-100)
  EXPECT_EQ(bytes_if(8, false, 0xff, spv::Op::OpUConvert), 4U * 1);         // -255 of 8 bits is 1
  EXPECT_EQ(bytes_if(16, true, 0xffffffff, spv::Op::OpSConvert), 4U * 1);
  EXPECT_EQ(bytes_if(16, true, 1, spv::Op::OpUConvert), 4U * 0xffff);  // -1 of 16 bits, without its sign
}

TEST(Spirv, ABlockOfUnknownLengthIsRefused) {
  const auto words = buffer_of_length([](Assembler& module) {
    module.add(spv::Op::OpTypeVector, {23, 10, 2})
        .add(spv::Op::OpConstant, {10, 24, 5})
        .add(spv::Op::OpConstantComposite, {23, 25, 24, 24})
        .add(spv::Op::OpSpecConstantOp, {23, 26, operation(spv::Op::OpIAdd), 25, 25})
        .add(spv::Op::OpSpecConstantOp, {10, 30, operation(spv::Op::OpCompositeExtract), 26, 0});
  });
  const auto entries = read_spirv(words, {.count = SpirvOptions::Count::declared});
  ASSERT_FALSE(entries);
  EXPECT_EQ(entries.error().code(), ErrorCode::unsupported);
  EXPECT_NE(entries.error().message().find("whose length is a constant expression"), std::string::npos)
      << entries.error().message();
}

TEST(Spirv, AnEntryPointHasWhatItsFunctionsUse) {
  using spv::Op;
  // a calls f, which uses buffer 1; b uses buffer 2, and 101, the id of buffer 0, as a number.
  Assembler module(0x00010300);
  module.entry(1, "a").entry(2, "b").buffers(4);
  module.add(Op::OpFunction, {20, 1, 0, 21}).add(Op::OpFunctionCall, {20, 30, 3}).add(Op::OpFunctionEnd, {});
  module.add(Op::OpFunction, {20, 2, 0, 21}).add(Op::OpAccessChain, {20, 31, 103, 22});
  module.add(Op::OpCompositeExtract, {20, 32, 31, 101}).add(Op::OpLoad, {20, 34, 31, 2, 101});
  module.add(Op::OpSwitch, {32, 33, 101, 35}).add(Op::OpFunctionEnd, {});
  module.add(Op::OpFunction, {20, 3, 0, 21}).add(Op::OpArrayLength, {20, 36, 102, 0}).add(Op::OpFunctionEnd, {});
  const auto used = read_spirv(module.words()).value();
  ASSERT_EQ(used.size(), 2U);
  EXPECT_EQ(bindings_of(used[0]), std::vector<std::uint32_t>{1});
  EXPECT_EQ(bindings_of(used[1]), std::vector<std::uint32_t>{2});
  const auto declared = read_spirv(module.words(), {.count = SpirvOptions::Count::declared}).value();
  for (const ShaderEntry& entry : declared) EXPECT_EQ(bindings_of(entry), (std::vector<std::uint32_t>{0, 1, 2, 3}));
  // From SPIR-V 1.4 on, entry points say it.
  Assembler newer(0x00010400);
  newer.entry(1, "a", {101, 104, 999}).entry(2, "b", {102, 102}).buffers(4);
  const auto listed = read_spirv(newer.words(), {.max_version = 0x00010500}).value();
  EXPECT_EQ(bindings_of(listed[0]), (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(bindings_of(listed[1]), std::vector<std::uint32_t>{1});
}

TEST(Spirv, FunctionsThatCallEachOtherEnd) {
  using spv::Op;
  Assembler module(0x00010300);
  module.entry(1, "a").buffers(1);
  module.add(Op::OpFunction, {20, 1, 0, 21}).add(Op::OpFunctionCall, {20, 30, 2}).add(Op::OpFunctionEnd, {});
  module.add(Op::OpFunction, {20, 2, 0, 21}).add(Op::OpFunctionCall, {20, 30, 1}).add(Op::OpStore, {101, 22});
  EXPECT_EQ(bindings_of(read_spirv(module.words()).value()[0]), std::vector<std::uint32_t>{0});
}

TEST(Spirv, VariablesOfOneBindingAreOneResource) {
  const auto words =
      compiled(vulkan_program("alias",
                              "layout(binding = 0) buffer A { float a[]; };\n"
                              "layout(binding = 0) buffer B { uvec4 b[4]; };\n"
                              "layout(binding = 1) uniform texture2D image;\n"
                              "layout(binding = 1) uniform sampler filter_;",
                              "a[0] = textureLod(sampler2D(image, filter_), vec2(0), 0).x; b[1].x = 1;"));
  const auto resources = interface_of(words).resources;
  ASSERT_EQ(resources.size(), 2U);
  EXPECT_EQ(resources[0].bytes, 64U);
  EXPECT_EQ(resources[1].kind, Kind::texture);
  const auto other =
      Shaderc::find().value()->compile(vulkan_program("alias",
                                                      "layout(binding = 7) buffer A { float a[]; };\n"
                                                      "layout(binding = 7) uniform B { vec4 b; };",
                                                      "a[0] = b.x;"));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message(),
            "alias cannot be run: it declares a storage buffer and a uniform buffer with the binding 7 of set 0");
}

TEST(Spirv, OfOpenGlHasKindsWithBindingsOfTheirOwn) {
  using spv::Op;
  Assembler module(0x00010000);
  module.entry(1, "a").buffers(1);
  constexpr auto counter = static_cast<std::uint32_t>(spv::StorageClass::AtomicCounter);
  constexpr auto constant = static_cast<std::uint32_t>(spv::StorageClass::UniformConstant);
  module.add(Op::OpDecorate, {200, static_cast<std::uint32_t>(spv::Decoration::Binding), 5000});
  module.add(Op::OpDecorate, {200, static_cast<std::uint32_t>(spv::Decoration::Offset), 8});
  module.add(Op::OpTypePointer, {15, counter, 10}).add(Op::OpVariable, {15, 200, counter});
  module.add(Op::OpTypePointer, {16, constant, 10}).add(Op::OpVariable, {16, 201, constant});
  SpirvOptions options{.api = SpirvOptions::Api::opengl, .count = SpirvOptions::Count::declared};
  EXPECT_EQ(read_spirv(module.words(), options).value()[0].interface.resources,
            (std::vector<GlslResource>{{.place = {0}, .bytes = 4},
                                       {.kind = Kind::atomic_counters, .place = {5000}, .bytes = 12}}));
  options.api = SpirvOptions::Api::vulkan;
  const auto refused = read_spirv(module.words(), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::unsupported);
}

TEST(Spirv, TypesThatAreNestedTooDeepAreRefused) {
  using spv::Op;
  const auto nested = [](Op op, std::uint32_t depth) {
    Assembler module(0x00010300);
    module.entry(1, "a").add(Op::OpTypeInt, {10, 32, 0}).add(Op::OpConstant, {10, 9, 1});
    for (std::uint32_t i = 11; i < 10 + depth; ++i)
      if (op == Op::OpTypeArray)
        module.add(op, {i, i - 1, 9});
      else if (op == Op::OpTypePointer)
        module.add(op, {i, 0, i - 1});
      else
        module.add(op, {i, i - 1});
    return refusal(module.words());
  };
  for (const Op op : {Op::OpTypeArray, Op::OpTypePointer, Op::OpTypeStruct, Op::OpTypeFunction}) {
    EXPECT_EQ(nested(op, 255), "");
    EXPECT_EQ(nested(op, 256), "it nests types more than 255 deep");
    EXPECT_EQ(nested(op, 500'000), "it nests types more than 255 deep");
  }
}

TEST(Spirv, ManyEntryPointsAreReadQuickly) {
  using spv::Op;
  const auto words_of = [](std::uint32_t entries, std::uint32_t functions) {
    Assembler module(0x00010300);
    for (std::uint32_t i = 0; i < entries; ++i) {
      const char name[] = {static_cast<char>('a' + i % 26), static_cast<char>('a' + i / 26 % 26),
                           static_cast<char>('a' + i / 676)};
      module.entry(1000 + i, {name, sizeof name});
    }
    module.buffers(8);
    // Each function calls the next one.
    for (std::uint32_t i = 0; i < functions; ++i) {
      module.add(Op::OpFunction, {20, 1000 + i, 0, 21}).add(Op::OpStore, {101 + i % 8, 22});
      module.add(Op::OpFunctionCall, {20, 30, 1001 + i}).add(Op::OpFunctionEnd, {});
    }
    return module.words();
  };
  EXPECT_EQ(refusal(words_of(1025, 1)), "it has more than 1024 entry points");
  const auto entries = read_spirv(words_of(1024, 200'000)).value();
  ASSERT_EQ(entries.size(), 1024U);
  for (const ShaderEntry& entry : entries) EXPECT_EQ(bindings_of(entry).size(), 8U);
}

TEST(Spirv, AnInterfaceThatNoModuleHasIsNotLoaded) {
  const auto entries = read_spirv(rich_module()).value();
  const auto changed = [&](auto change) {
    auto other = entries;
    change(other[0].interface);
    return entries_from(to_bytes(other));
  };
  EXPECT_TRUE(changed([](ShaderInterface&) {}));
  EXPECT_FALSE(changed([](ShaderInterface& i) { i.members[0].bytes = 81; }))
      << "a launch would write behind the block";
  EXPECT_FALSE(changed([](ShaderInterface& i) { i.members[0].offset = 0xffffffff; }));
  EXPECT_FALSE(changed([](ShaderInterface& i) { i.parameter_bytes = 4; }));
  EXPECT_FALSE(changed([](ShaderInterface& i) { i.resources[0].kind = static_cast<Kind>(77); }));
  EXPECT_FALSE(changed([](ShaderInterface& i) { i.resources[0].count = 0; }));
  EXPECT_FALSE(changed([](ShaderInterface& i) { i.resources[0].place.binding = 70000; }));
  EXPECT_FALSE(changed([](ShaderInterface& i) { std::swap(i.resources[0], i.resources[1]); }));
  EXPECT_FALSE(changed([](ShaderInterface& i) { i.resources[1] = i.resources[0]; }));
  EXPECT_FALSE(changed([](ShaderInterface& i) { i.constants.push_back({.bits = 3}); }));
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
