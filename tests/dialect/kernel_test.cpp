#include <kiln/kernel.hpp>

#include <cstdlib>
#include <set>

#include <gtest/gtest.h>

#include "contract/kernels.hpp"
#include "fakes/files.hpp"

namespace kiln {
namespace {

using contract::gemm;
using contract::scale;

constexpr std::array languages = {Language::glsl, Language::vulkan_glsl, Language::opencl, Language::cuda,
                                  Language::hip};

std::string problem(const Kernel& kernel) {
  const auto text = kernel.emit(Language::cuda);
  EXPECT_FALSE(text);
  return text ? "" : text.error().message();
}

/// Says where `part` is not in `text`.
testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << part << "\" is not in: " << text;
}

// Set KILN_UPDATE_GOLDEN=1 to write what is emitted now; then read the difference.
TEST(Kernel, EmitsWhatTheGoldenFilesHold) {
  const std::filesystem::path folder = std::filesystem::path(KILN_SOURCE_DIR) / "tests" / "dialect" / "golden";
  for (const Language language : languages) {
    const auto file = folder / ("gemm." + std::string(to_string(language)));
    const std::string text = gemm().emit(language).value();
    if (std::getenv("KILN_UPDATE_GOLDEN") != nullptr) fakes::write_file(file, text);
    EXPECT_EQ(text, fakes::read_file(file)) << file;
  }
}

TEST(Kernel, TheLinesOfTheSourceKeepTheirNumbers) {
  for (const Language language : languages) {
    const std::string text = gemm().emit(language).value();
    const std::size_t directive = text.rfind("#line 1 ");
    ASSERT_NE(directive, std::string::npos);
    const std::string after = text.substr(text.find('\n', directive) + 1);
    const std::string source = gemm().source;
    // All but the line with KERNEL in it are the source's own.
    EXPECT_EQ(after.substr(after.find('\n'), source.size() - source.find('\n')), source.substr(source.find('\n')));
  }
}

TEST(Kernel, ASourceThatEndsInABackslashDoesNotSwallowWhatIsWrittenBehindIt) {
  for (const std::string end : {"\\", "\\\n", "\\\r\n", "\\\r"}) {
    const std::string text = Kernel{.name = "k", .source = "// before " + end + "\nKERNEL {} // after " + end}
                                 .emit(Language::cuda)
                                 .value();
    EXPECT_TRUE(has(text, "// after " + end));
    EXPECT_TRUE(text.ends_with("\n\n}\n")) << text;
    for (const std::string_view joined : {"\\\n#line", "\\\r\n#line"})
      EXPECT_EQ(text.find(joined), std::string::npos) << text;
  }
}

TEST(Kernel, ABarrierIsForBuffersWhereAKernelReadsWhatItWrites) {
  Kernel kernel{.name = "k", .buffers = {{"a", Type::f32, Access::write}}, .source = "KERNEL { group_barrier(); }"};
  EXPECT_FALSE(has(kernel.emit(Language::glsl).value(), "groupMemoryBarrier()"));
  EXPECT_FALSE(has(kernel.emit(Language::vulkan_glsl).value(), "groupMemoryBarrier()"));
  EXPECT_FALSE(has(kernel.emit(Language::opencl).value(), "CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE"));
  kernel.buffers.front().access = Access::read_write;
  EXPECT_TRUE(has(kernel.emit(Language::glsl).value(), "groupMemoryBarrier()"));
  EXPECT_TRUE(has(kernel.emit(Language::vulkan_glsl).value(), "groupMemoryBarrier()"));
  EXPECT_TRUE(has(kernel.emit(Language::opencl).value(), "CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE"));
}

TEST(Kernel, EachLanguageAndParameterIsAnotherProgram) {
  std::set<Digest> digests;
  for (const Language language : languages) digests.insert(scale(2).request(language).value().key().digest);
  digests.insert(scale(3).request(Language::cuda).value().key().digest);
  Kernel wide = scale(2);
  wide.group_size = {128, 1, 1};
  digests.insert(wide.request(Language::cuda).value().key().digest);
  EXPECT_EQ(digests.size(), languages.size() + 2);
}

TEST(Kernel, ItsNameBecomesAFunctionsName) {
  Kernel kernel = scale(2);
  kernel.name = "3x3 conv/\xC3\xA9";
  EXPECT_EQ(kernel.request(Language::cuda).value().entries().at(0), "kiln_3x3_conv___");
  EXPECT_EQ(kernel.request(Language::glsl).value().entries().at(0), "main");
}

TEST(Kernel, SaysWhatIsWrongWithItself) {
  Kernel kernel = scale(2);
  kernel.source = "void main() {}";
  EXPECT_TRUE(has(problem(kernel), "has no KERNEL"));
  kernel.source = "// KERNEL\n/* KERNEL */ KERNELS";
  EXPECT_TRUE(has(problem(kernel), "has no KERNEL"));
  kernel.source = "KERNEL {} KERNEL {}";
  EXPECT_TRUE(has(problem(kernel), "more than once"));
  kernel = scale(2);
  kernel.buffers[1].name = "x";
  EXPECT_TRUE(has(problem(kernel), "a buffer called \"x\", which is already in use in this kernel"));
  kernel.buffers[1].name = "1x";
  EXPECT_TRUE(has(problem(kernel), "not a valid C name"));
  kernel = scale(2);
  kernel.scalars[0].type = Type::f32x4;
  EXPECT_TRUE(has(problem(kernel), "scalar count of a type that only buffers can have"));
  kernel = scale(2);
  kernel.shared = {{"tile", Type::f32, {}}};
  EXPECT_TRUE(has(problem(kernel), "tile without a size"));
  kernel = scale(2);
  kernel.group_size = {0, 1, 1};
  EXPECT_TRUE(has(problem(kernel), "a group size of 0"));
  kernel = scale(2);
  kernel.name = "";
  EXPECT_TRUE(has(problem(kernel), "has no name"));
}

TEST(Kernel, NamesThatBreakSomeLanguagesTextAreRefused) {
  const auto refuses = [](const std::string& what, const Kernel& kernel, const std::string& name) {
    const std::string told = problem(kernel);
    if (!told.ends_with("; choose another name")) return testing::AssertionFailure() << name << ": " << told;
    return has(told, "the kernel \"scale_2\" has " + what + " called \"" + name + "\", which ");
  };
  for (const char* name :
       {"input",    "output",     "sample",     "filter",      "active",       "common",      "half",
        "uint",     "vec4",       "mat3x4",     "isampler2D",  "image3D",      "local",       "global",
        "kernel",   "read_only",  "float16",    "image2d_t",   "new",          "class",       "template",
        "xor",      "linux",      "KERNEL",     "FUNCTION",    "UNROLL",       "local_index", "float4",
        "barrier",  "atomicAdd",  "atomic_add", "blockIdx",    "get_group_id", "clamp",       "load_half",
        "INFINITY", "GROUP_X",    "GROUP_Y",    "GROUP_Z",     "main",         "log",         "min",
        "kiln",     "kiln_given", "KILN_CUDA",  "gl_Position", "two__of",      "_Pragma",     "make_float2"}) {
    Kernel kernel = scale(2);
    kernel.buffers[0].name = name;
    EXPECT_TRUE(refuses("a buffer", kernel, name));
    kernel = scale(2);
    kernel.scalars[0].name = name;
    EXPECT_TRUE(refuses("a scalar", kernel, name));
    kernel = scale(2);
    kernel.shared = {{name, Type::f32, {"4"}}};
    EXPECT_TRUE(refuses("a shared array", kernel, name));
    kernel = scale(2);
    kernel.parameters[name] = "4";
    EXPECT_TRUE(refuses("a parameter", kernel, name));
  }
  // As macros, these would change what comes before the source, or the elements of vectors.
  for (const char* name : {"x", "y", "z", "w", "h", "a", "low", "old", "binding", "set", "std430"}) {
    Kernel kernel = scale(2);
    kernel.buffers = {{"values"}};
    kernel.parameters[name] = "4";
    EXPECT_TRUE(refuses("a parameter", kernel, name));
    kernel = scale(2);
    kernel.buffers = {{name}};
    EXPECT_TRUE(kernel.emit(Language::cuda)) << name;
  }
  EXPECT_TRUE(
      has(problem({.name = "scale_2", .buffers = {{"input"}}, .source = "KERNEL {}"}), "is reserved in GLSL"));
}

TEST(Kernel, PlainNamesAreFree) {
  for (const char* name : {"image", "data", "result", "texture_size", "u", "i", "matrix", "mat10", "kilns", "glow",
                           "_x", "uniforms", "TILE", "N", "K", "int_count", "float_4"}) {
    Kernel kernel = scale(2);
    kernel.shared = {{name, Type::f32, {"4"}}};
    EXPECT_TRUE(kernel.emit(Language::cuda)) << name;
  }
}

/// A buffer of no device.
class Nowhere final : public Buffer {
 public:
  explicit Nowhere(std::size_t size = 0) : size_(size) {}
  std::size_t size() const noexcept override { return size_; }

 private:
  std::size_t size_;
};

TEST(Kernel, ArgumentsOfTheWrongNumberOrTypeAreNamed) {
  const Nowhere x;
  const Nowhere y;
  const Kernel kernel = scale(2);
  const auto message = [&](std::vector<const Buffer*> buffers, const std::vector<Scalar>& scalars) {
    const auto launch = kernel.launch({1, 1, 1}, std::move(buffers), scalars);
    return launch ? "" : launch.error().message();
  };
  EXPECT_EQ(message({&x}, {1, 1.0F}), "scale_2: it takes 2 buffers, but 1 were given: y is missing");
  EXPECT_EQ(message({}, {1, 1.0F}), "scale_2: it takes 2 buffers, but 0 were given: x is missing");
  EXPECT_EQ(message({&x, &y, &x}, {1, 1.0F}),
            "scale_2: it takes 2 buffers, but 3 were given: number 3 is not declared");
  EXPECT_EQ(message({&x, nullptr}, {1, 1.0F}), "scale_2: the buffer y is missing");
  EXPECT_EQ(message({&x, &y}, {1}), "scale_2: it takes 2 scalars, but 1 were given: offset is missing");
  EXPECT_EQ(message({&x, &y}, {1, 1.0F, 2, 3}),
            "scale_2: it takes 2 scalars, but 4 were given: number 3 is not declared");
  EXPECT_EQ(message({&x, &y}, {1, 2}),
            "scale_2: the scalar offset has type float, but a value of type int was given");
  EXPECT_EQ(message({&x, &y}, {1U, 2.0F}),
            "scale_2: the scalar count has type int, but a value of type uint was given");
  const Launch launch = kernel.launch({5, 1, 1}, {&x, &y}, {7, 2.0F}).value();
  EXPECT_EQ(launch.groups[0], 5U);
  EXPECT_EQ(launch.group_size[0], 64U);
  ASSERT_EQ(launch.arguments.size(), 3U);
  EXPECT_EQ(launch.arguments[2].as<Argument::Value>()->bytes().size(), 8U);
}

TEST(Kernel, BuffersThatAreNotWholeElementsAreNamed) {
  const struct {
    Type type;
    std::size_t bytes;
    const char* told;
  } cases[] = {
      {Type::f16, 2, "f16, 2 bytes"},       {Type::f32, 4, "f32, 4 bytes"},
      {Type::i32, 4, "i32, 4 bytes"},       {Type::u32, 4, "u32, 4 bytes"},
      {Type::f32x2, 8, "f32x2, 8 bytes"},   {Type::f32x4, 16, "f32x4, 16 bytes"},
      {Type::i32x4, 16, "i32x4, 16 bytes"}, {Type::u32x4, 16, "u32x4, 16 bytes"},
  };
  for (const auto& each : cases) {
    const Kernel kernel{.name = "copy", .buffers = {{"values", each.type}}, .source = "KERNEL {}"};
    const Nowhere whole(3 * each.bytes);
    EXPECT_TRUE(kernel.launch({1, 1, 1}, {&whole}, {}));
    const Nowhere part(3 * each.bytes + each.bytes / 2);
    EXPECT_EQ(kernel.launch({1, 1, 1}, {&part}, {}).error().message(),
              "copy: the buffer values holds elements of " + std::string(each.told) + " each, but a buffer of " +
                  std::to_string(part.size()) + " bytes was given");
  }
}

TEST(Kernel, OneBufferMayBeGivenTwiceOnlyToBeRead) {
  const Kernel kernel{
      .name = "add", .buffers = {{"left"}, {"right"}, {"sum", Type::f32, Access::write}}, .source = "KERNEL {}"};
  const Nowhere one(4);
  const Nowhere other(4);
  EXPECT_TRUE(kernel.launch({1, 1, 1}, {&one, &one, &other}, {}));
  EXPECT_EQ(kernel.launch({1, 1, 1}, {&other, &one, &one}, {}).error().message(),
            "add: right and sum are the same buffer, which is allowed only if both are read-only");
  EXPECT_EQ(kernel.launch({1, 1, 1}, {&one, &one, &one}, {}).error().message(),
            "add: left and sum are the same buffer, which is allowed only if both are read-only");
}

TEST(Kernel, LanguagesHaveNames) {
  for (const Language language : languages) EXPECT_EQ(language_of(to_string(language)), language);
  EXPECT_EQ(language_of("hlsl"), std::nullopt);
}

}  // namespace
}  // namespace kiln
