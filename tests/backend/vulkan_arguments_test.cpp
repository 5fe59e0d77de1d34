#include <atomic>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include "backend/own_vulkan_device.hpp"
#include "backend/vulkan/device.hpp"
#include "backend/vulkan_fixture.hpp"
#include "backend/vulkan_modules.hpp"

namespace kiln {
namespace {

using fakes::vulkan_program;
using Constants = std::map<std::uint32_t, Constant>;

class VulkanArguments : public fakes::VulkanTest {
 protected:
  std::unique_ptr<Module> made(const Request& request) { return made(*device_, request); }
  static std::unique_ptr<Module> made(Device& device, const Request& request) {
    auto compiled = device.compile(request);
    EXPECT_TRUE(compiled) << compiled.error().describe();
    return compiled ? std::move(compiled->module) : nullptr;
  }
  /// The message of a launch or a compilation that is refused as invalid.
  std::string refused(Module& module, const Launch& launch) { return complaint(device_->launch(module, launch)); }
  template <class T>
  static std::string complaint(const Result<T>& result) {
    if (result) return "no error";
    EXPECT_EQ(result.error().code(), ErrorCode::invalid_request);
    return result.error().message();
  }
  template <class T>
  std::unique_ptr<Buffer> buffer_of(const std::vector<T>& numbers) {
    return upload(*device_, numbers).value();
  }
  template <class T = float>
  std::vector<T> numbers_of(const Buffer& buffer) {
    return download<T>(*device_, buffer).value();
  }
};

/// Writes to every item the values of its constants.
Request special(Constants constants) {
  return Request({.name = "special",
                  .source = R"(#version 450
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool flag = false;
layout(constant_id = 2) const int number = -5;
layout(constant_id = 3) const uint count = 5;
layout(constant_id = 4) const float factor = 0.5;
layout(constant_id = 5) const double exact = 0.25;
layout(constant_id = 6) const uint length = 16;
layout(binding = 0) buffer Data { float data[]; };
shared float tile[2 * length];
void main() {
  tile[gl_LocalInvocationID.x % length] = 1;
  barrier();
  data[gl_GlobalInvocationID.x] = float(flag) + 10 * float(number) + 1000 * float(count) + factor + float(exact) +
    (tile[0] - 1) + float(gl_WorkGroupSize.x) * 100000;
}
)",
                  .language = Language::vulkan_glsl,
                  .constants = std::move(constants)});
}

TEST_F(VulkanArguments, SpecialisationConstantsReachTheProgram) {
  const auto expect = [&](Module& module, std::uint32_t size, float value) {
    const auto data = buffer_of(std::vector<float>(128));
    device_->launch(module, {.groups = {128 / size}, .group_size = {size}, .arguments = {*data}}).value();
    EXPECT_EQ(numbers_of(*data), std::vector<float>(128, value + static_cast<float>(size) * 100000));
  };
  expect(*made(special({})), 1, -50 + 5000 + 0.75F);
  // An integer may have the other sign, if the value fits.
  expect(*made(special({{0, 64}})), 64, -50 + 5000 + 0.75F);
  const Constants all = {{0, 32U}, {1, true}, {2, 7}, {3, 2U}, {4, 0.125F}, {5, 0.5}};
  Compiled compiled = device_->compile(special(all)).value();
  expect(*compiled.module, 32, 1 + 70 + 2000 + 0.625F);
  expect(*device_->load(compiled.binary.value()).value(), 32, 1 + 70 + 2000 + 0.625F);
}

TEST_F(VulkanArguments, AGroupSizeThatContradictsTheConstantsIsRefused) {
  const auto data = buffer_of(std::vector<float>(128));
  EXPECT_EQ(refused(*made(special({{0, 64U}})), {.groups = {2}, .group_size = {32}, .arguments = {*data}}),
            "special declares groups of 64 x 1 x 1; the launch has 32 x 1 x 1");
  EXPECT_EQ(refused(*made(special({})), {.groups = {2}, .group_size = {64}, .arguments = {*data}}),
            "special declares groups of 1 x 1 x 1; the launch has 64 x 1 x 1");
}

TEST_F(VulkanArguments, ConstantsThatTheProgramDoesNotHaveAreNamed) {
  const auto message = [&](Constants constants) {
    return complaint(device_->compile(special(std::move(constants))));
  };
  EXPECT_EQ(message({{7, 1U}}),
            "special has no specialisation constant with the id 7; it has 0, 1 (flag), 2 (number), 3 (count), "
            "4 (factor), 5 (exact), 6 (length)");
  EXPECT_EQ(message({{4, 1.0}}),
            "the specialisation constant 4 (factor) of special has the type float; double 1 was given");
  EXPECT_EQ(message({{5, 1.0F}}),
            "the specialisation constant 5 (exact) of special has the type double; float 1 was given");
  EXPECT_EQ(message({{3, -1}}),
            "the specialisation constant 3 (count) of special has the type uint; int -1 was given");
  EXPECT_EQ(message({{2, 1U << 31}}),
            "the specialisation constant 2 (number) of special has the type int; uint 2147483648 was given");
  EXPECT_EQ(message({{1, 1}}),
            "the specialisation constant 1 (flag) of special has the type bool; int 1 was given");
  EXPECT_EQ(message({{0, true}}),
            "the specialisation constant 0 of special has the type uint; bool true was given");
  EXPECT_EQ(message({{0, std::int64_t{1}}}),
            "the specialisation constant 0 of special has the type uint; int64_t 1 was given");
}

TEST_F(VulkanArguments, ConstantsBeyondTheDevicesLimitsAreNamedWithBothNumbers) {
  const auto group = device_->compile(special({{0, 1U << 20}}));
  ASSERT_FALSE(group);
  EXPECT_TRUE(group.error().message().starts_with("special has work groups of 1048576 items in dimension 0"))
      << group.error().message();
  const auto shared = device_->compile(special({{6, 1U << 20}}));
  ASSERT_FALSE(shared);
  EXPECT_TRUE(shared.error().message().starts_with("special uses 8388608 bytes of shared memory"))
      << shared.error().message();
  EXPECT_FALSE(device_->compile(special({{0, 0U}})));
}

TEST_F(VulkanArguments, APointerAmongTheParametersHasEightBytes) {
  const Request request = vulkan_program("pointer",
                                         "#extension GL_EXT_buffer_reference : require\n"
                                         "layout(buffer_reference, std430) buffer Numbers { float n[]; };\n"
                                         "layout(push_constant) uniform P { Numbers numbers; float factor; };",
                                         "numbers.n[0] *= factor;");
  const auto module = vulkan::Shaderc::find().value()->compile(request).value();
  const vulkan::ShaderInterface& interface = module.entries[0].interface;
  EXPECT_EQ(interface.parameter_bytes, 12U);
  EXPECT_EQ(interface.members, (std::vector<backend::GlslMember>{{"numbers", 0, 8}, {"factor", 8, 4}}));
  const auto compiled = device_->compile(request);
  if (!compiled) GTEST_SKIP() << compiled.error().message();
  EXPECT_EQ(refused(*compiled->module, {}), "pointer declares 12 bytes of parameters; 0 were given");
}

TEST_F(VulkanArguments, SetsAreBoundByTheirNumbers) {
  const auto module = made(vulkan_program("sets",
                                          "layout(set = 0, binding = 1) buffer A { float a[]; };\n"
                                          "layout(set = 2, binding = 0) readonly buffer B { float b[]; };\n"
                                          "layout(set = 3, binding = 0) readonly buffer C { float c[]; };",
                                          "a[gl_GlobalInvocationID.x] = b[gl_GlobalInvocationID.x] - c[0];"));
  const auto a = buffer_of(std::vector<float>(4));
  const auto b = buffer_of(std::vector<float>{1, 2, 3, 4});
  const auto c = buffer_of(std::vector<float>{10});
  const Argument given_b = bound({.binding = 0, .set = 2}, *b);
  const Argument given_c = bound({.binding = 0, .set = 3}, *c);
  device_->launch(*module, {.groups = {4}, .arguments = {given_c, bound({.binding = 1}, *a), given_b}}).value();
  EXPECT_EQ(numbers_of(*a), (std::vector<float>{-9, -8, -7, -6}));
  device_->launch(*module, {.groups = {4}, .arguments = {named("B", *c), named("A", *a), named("C", *b)}}).value();
  // The buffer that stands at binding 0 of set 0 has none.
  device_->launch(*module, {.arguments = {*b, *a, given_b, given_c}}).value();
  EXPECT_EQ(numbers_of(*a)[0], -9);
  EXPECT_EQ(refused(*module, {.arguments = {*b, *a, given_c}}),
            "sets: nothing is bound to the storage buffer B (set 2, binding 0); give it by bound({.binding = 0, "
            ".set = 2}, …)");
  EXPECT_EQ(refused(*module, {.arguments = {*b, *a, given_b, given_c, bound({.binding = 1, .set = 2}, *a)}}),
            "sets: it declares nothing in set 2, binding 1");
  const auto& pipeline = dynamic_cast<vulkan::Module&>(*module);
  EXPECT_EQ(pipeline.buffers(), 2U);
  for (std::uint32_t set = 0; set < 4; ++set) EXPECT_NE(pipeline.set_layout(set), nullptr) << set;
  EXPECT_EQ(pipeline.set_layout(4), nullptr);
}

TEST_F(VulkanArguments, ElementsOfArraysAreBoundOneByOne) {
  const auto module = made(vulkan_program("many",
                                          "layout(binding = 0) buffer A { float a[]; };\n"
                                          "layout(binding = 2) readonly buffer B { float b[]; } parts[4];",
                                          "a[0] = parts[0].b[0] + 10 * parts[1].b[0] + 100 * parts[2].b[0] "
                                          "+ 1000 * parts[3].b[0];"));
  const auto a = buffer_of(std::vector<float>(1));
  std::vector<std::unique_ptr<Buffer>> parts;
  for (float i = 1; i < 5; ++i) parts.push_back(buffer_of(std::vector<float>{i}));
  Launch launch{.arguments = {*a}};
  for (std::uint32_t i = 0; i < 3; ++i) launch.arguments.push_back(bound({.binding = 2, .element = i}, *parts[i]));
  EXPECT_EQ(refused(*module, launch),
            "many: nothing is bound to the storage buffer B[3] (binding 2); give it by bound({.binding = 2, "
            ".element = 3}, …)");
  launch.arguments.push_back(named("B[3]", *parts[3]));
  device_->launch(*module, launch).value();
  EXPECT_EQ(numbers_of(*a)[0], 4321);
  launch.arguments.push_back(bound({.binding = 2, .element = 3}, *a));
  EXPECT_EQ(refused(*module, launch), "many: the storage buffer B[3] (binding 2) is given twice");
  launch.arguments.back() = bound({.binding = 2, .element = 4}, *a);
  EXPECT_EQ(refused(*module, launch), "many: it declares nothing at binding 2, element 4");
}

TEST_F(VulkanArguments, UniformBuffersAreBuffersOrValues) {
  struct Settings {
    std::array<float, 4> scale;
    float offset;
    std::array<float, 3> padding = {};
  };
  const auto module = made(vulkan_program("uniform",
                                          "layout(binding = 0) buffer A { float a[]; };\n"
                                          "layout(binding = 1) uniform Settings { vec4 scale; float offset; };\n"
                                          "layout(binding = 2) uniform Second { float second; };",
                                          "a[gl_GlobalInvocationID.x] = scale.y + offset + second;"));
  const auto a = buffer_of(std::vector<float>(2));
  const Settings settings{{1, 2, 3, 4}, 0.5F};
  const auto second = named("Second", 100.0F);
  device_->launch(*module, {.groups = {2}, .arguments = {*a, bound({.binding = 1}, settings), second}}).value();
  EXPECT_EQ(numbers_of(*a), (std::vector<float>{102.5F, 102.5F}));
  // The alignment that every device accepts.
  std::vector<Settings> some(9);
  some[8] = {{10, 20, 30, 40}, 0.25F};
  const auto buffer = upload(*device_, some).value();
  device_->launch(*module, {.groups = {2}, .arguments = {*a, named("Settings", Argument(*buffer, 256)), second}})
      .value();
  EXPECT_EQ(numbers_of(*a), (std::vector<float>{120.25F, 120.25F}));
  EXPECT_EQ(
      refused(*module, {.arguments = {*a, second}}),
      "uniform: nothing is bound to the uniform buffer Settings (binding 1); give it by bound({.binding = 1}, "
      "…)");
  EXPECT_EQ(refused(*module, {.arguments = {*a, bound({.binding = 1}, 1.0F), second}}),
            "uniform: the uniform buffer Settings (binding 1) takes 20 bytes; 4 were given");
  EXPECT_EQ(refused(*module, {.arguments = {*a, bound({.binding = 1}, *a), second}}),
            "uniform: the uniform buffer Settings (binding 1) needs 20 bytes; the buffer has 8");
  EXPECT_EQ(refused(*module, {.arguments = {bound({.binding = 0}, 1.0F), named("Settings", settings), second}}),
            "uniform: the storage buffer A (binding 0) takes no value of 4 bytes");
}

TEST_F(VulkanArguments, ManyUniformValuesInOneSubmissionAreAllSeen) {
  const auto module = made(vulkan_program("large",
                                          "layout(binding = 0) buffer A { float a[]; };\n"
                                          "layout(binding = 1) uniform U { vec4 u[1000]; };\n"
                                          "layout(push_constant) uniform P { uint place; };",
                                          "a[place] = u[place].x + u[999].w;"));
  const auto a = buffer_of(std::vector<float>(64));
  const auto slot = device_->open_slot().value();
  for (std::uint32_t round = 0; round < 2; ++round) {
    for (std::uint32_t i = 0; i < 64; ++i) {
      std::vector<float> values(4000, static_cast<float>(i + 1000 * round));
      slot->launch(*module,
                   {.arguments = {*a, bound({.binding = 1}, by_value(std::as_bytes(std::span(values)))), i}})
          .value();
    }
    slot->submit().value();
    slot->wait().value();
    const auto numbers = numbers_of(*a);
    for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(numbers[i], static_cast<float>(2 * (i + 1000 * round))) << i;
  }
}

TEST_F(VulkanArguments, ParametersAreGivenOneByOneOrAsABlock) {
  struct Block {
    std::uint32_t n;
    float padding = 0;
    std::array<float, 2> v;
    std::array<float, 3> w;
    float last;
  };
  const auto module =
      made(vulkan_program("parameters",
                          "layout(binding = 0) buffer A { float a[]; };\n"
                          "layout(push_constant) uniform P { uint n; vec2 v; vec3 w; float last; };",
                          "a[0] = float(n) + 10 * v.y + 100 * w.z + 1000 * last;"));
  const auto a = buffer_of(std::vector<float>(1));
  const std::array<float, 2> v = {0, 2};
  const std::array<float, 3> w = {0, 0, 3};
  const auto result = [&](std::vector<Argument> arguments) {
    arguments.emplace_back(*a);
    device_->launch(*module, {.arguments = std::move(arguments)}).value();
    return numbers_of(*a)[0];
  };
  EXPECT_EQ(result({1U, v, w, 4.0F}), 4321);
  EXPECT_EQ(result({Block{.n = 5, .v = v, .w = w, .last = 4}}), 4325);
  EXPECT_EQ(result({named("last", 7.0F), 1U, named("w", w), v}), 7321);
  EXPECT_EQ(refused(*module, {.arguments = {*a, 1U, v, w}}), "parameters: the parameter last has no value");
  EXPECT_EQ(refused(*module, {.arguments = {*a, 1U, v, w, 4.0}}),
            "parameters: the parameter last takes a value of 4 bytes; a value of 8 bytes was given");
  EXPECT_EQ(refused(*module, {.arguments = {*a, v, w, 4.0F, named("n", 2U), named("n", 3U)}}),
            "parameters: the parameter n is given twice");
  EXPECT_EQ(refused(*module, {.arguments = {*a, 1U, v, w, named("first", 4.0F)}}),
            "parameters: it has no uniform, block or parameter called first");
  EXPECT_EQ(refused(*module, {.arguments = {*a}}), "parameters declares 32 bytes of parameters; 0 were given");
}

TEST_F(VulkanArguments, OffsetsBeginWhereTheySay) {
  const auto module = made(vulkan_program("offset",
                                          "layout(binding = 0) buffer A { float a[]; };\n"
                                          "layout(binding = 1) readonly buffer B { vec4 head; float b[]; };",
                                          "a[gl_GlobalInvocationID.x] = head.x + float(b.length());"));
  std::vector<float> numbers(512);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  const auto a = buffer_of(std::vector<float>(128));
  const auto b = buffer_of(numbers);
  device_->launch(*module, {.groups = {2}, .arguments = {Argument(*a, 256), Argument(*b, 1024)}}).value();
  const auto results = numbers_of(*a);
  EXPECT_EQ(results[63], 0);
  EXPECT_EQ(results[64], 256 + 252);
  EXPECT_EQ(results[65], 256 + 252);
  EXPECT_EQ(refused(*module, {.arguments = {*a, Argument(*b, 2040)}}),
            "offset: the storage buffer B (binding 1) needs 16 bytes; the buffer has 8 from its offset on");
  EXPECT_EQ(refused(*module, {.arguments = {*a, Argument(*b, 4096)}}),
            "offset: the storage buffer B (binding 1) needs 16 bytes; the buffer has 0 from its offset on");
  EXPECT_EQ(refused(*module, {.arguments = {Argument(*a, 512), *b}}),
            "offset: the storage buffer A (binding 0) begins at the end of a buffer of 512 bytes");
  const std::string odd = refused(*module, {.arguments = {*a, Argument(*b, 2)}});
  EXPECT_TRUE(
      odd.starts_with("offset: the storage buffer B (binding 1) begins at byte 2; the device requires a "
                      "multiple of "))
      << odd;
}

TEST_F(VulkanArguments, ThatDoNotFitTheirResourceAreNamed) {
  const auto module =
      made(vulkan_program("kinds",
                          "layout(binding = 0) buffer A { float a[]; };\n"
                          "layout(binding = 1, r32f) uniform image2D target;\n"
                          "layout(binding = 2) uniform sampler2D picture;\n"
                          "layout(binding = 3) uniform texture2D plain;\n"
                          "layout(binding = 4) uniform sampler filter_;\n"
                          "layout(binding = 5) uniform samplerBuffer texels;\n"
                          "layout(binding = 6, r32f) uniform imageBuffer rows;",
                          "a[0] = imageLoad(target, ivec2(0)).x + texture(picture, vec2(0)).x + "
                          "texture(sampler2D(plain, filter_), vec2(0)).x + texelFetch(texels, 0).x + "
                          "imageLoad(rows, 0).x;"));
  const auto a = buffer_of(std::vector<float>(4));
  // None of these is used: every launch is refused.
  const auto view = reinterpret_cast<VkImageView>(std::uintptr_t{1});
  const auto sampler = reinterpret_cast<VkSampler>(std::uintptr_t{1});
  const auto texels = reinterpret_cast<VkBufferView>(std::uintptr_t{1});
  constexpr std::uint32_t general = VK_IMAGE_LAYOUT_GENERAL;
  const std::vector<Argument> all = {
      *a,
      bound({.binding = 1}, vulkan::image(view, general)),
      bound({.binding = 2}, vulkan::texture(view, sampler, general)),
      bound({.binding = 3}, vulkan::image(view, general)),
      bound({.binding = 4}, vulkan::sampler(sampler)),
      bound({.binding = 5}, vulkan::texel_buffer(texels)),
      bound({.binding = 6}, vulkan::texel_buffer(texels)),
  };
  const auto with = [&](std::size_t place, Argument argument) {
    Launch launch{.arguments = all};
    launch.arguments[place] = std::move(argument);
    return refused(*module, launch);
  };
  const char* names[] = {"storage buffer A",         "image target",    "texture picture",
                         "sampled image plain",      "sampler filter_", "uniform texel buffer texels",
                         "storage texel buffer rows"};
  for (std::uint32_t i = 0; i < std::size(names); ++i) {
    Launch launch{.arguments = all};
    launch.arguments.erase(launch.arguments.begin() + i);
    const std::string why = refused(*module, launch);
    EXPECT_TRUE(
        why.starts_with(fmt::format("kinds: nothing is bound to the {} (binding {}); give it ", names[i], i)))
        << why;
    if (i == 0) continue;
    EXPECT_EQ(with(i, bound({.binding = i}, *a)),
              fmt::format("kinds: the {} (binding {}) takes no buffer", names[i], i));
    EXPECT_EQ(with(i, bound({.binding = i}, 1)),
              fmt::format("kinds: the {} (binding {}) takes no value of 4 bytes", names[i], i));
  }
  EXPECT_EQ(with(2, bound({.binding = 2}, vulkan::image(view, general))),
            "kinds: the texture picture (binding 2) takes no image");
  EXPECT_EQ(with(1, bound({.binding = 1}, vulkan::image(nullptr, general))),
            "kinds: the image target (binding 1) has a null handle");
  EXPECT_EQ(with(2, bound({.binding = 2}, vulkan::texture(view, nullptr, general))),
            "kinds: the texture picture (binding 2) has a null handle");
  EXPECT_EQ(with(1, bound({.binding = 1}, vulkan::image(view, VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL))),
            "kinds: the image target (binding 1) has the layout 5; a program writes images only in "
            "VK_IMAGE_LAYOUT_GENERAL");
  EXPECT_EQ(with(1, bound({.binding = 1}, NativeObject{.kind = NativeObject::Kind::gl_image, .handle = 1})),
            "kinds: the image target (binding 1) is an image or a sampler of another API");
  EXPECT_EQ(with(1, vulkan::image(view, general)),
            "kinds: argument 1 is an image, which needs a place: use bound() or named()");
  EXPECT_EQ(with(0, Argument::Local{4}),
            "kinds: argument 0 is local memory; declare a shared array in the source "
            "instead");
}

TEST_F(VulkanArguments, OfSixteenThreadsDoNotMix) {
  const auto module = made(vulkan_program("threads",
                                          "layout(binding = 0) buffer A { float a[]; };\n"
                                          "layout(set = 1, binding = 3) readonly buffer B { float b[]; };\n"
                                          "layout(binding = 1) uniform U { float u; };\n"
                                          "layout(push_constant) uniform P { float p; float q; };",
                                          "a[gl_GlobalInvocationID.x] = b[0] + u + p - q;"));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      const auto value = static_cast<float>(t);
      const auto a = buffer_of(std::vector<float>(8));
      const auto b = buffer_of(std::vector<float>(65, value));
      const auto slot = device_->open_slot().value();
      for (int round = 0; round < 20; ++round) {
        const auto step = static_cast<float>(round);
        const Launch launch{
            .groups = {8},
            .arguments = {*a, bound({.binding = 3, .set = 1}, Argument(*b, round % 2 == 0 ? 0 : 256)),
                          named("U", 100 * value), step, -1000 * value}};
        if (round % 3 == 0) {
          device_->launch(*module, launch).value();
        } else {
          slot->launch(*module, launch).value();
          slot->submit().value();
          slot->wait().value();
        }
        if (numbers_of(*a) != std::vector<float>(8, 1101 * value + step)) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

/// Objects that an application makes on its own device, which Kiln adopts.
class VulkanObjects : public VulkanArguments {
 protected:
  void SetUp() override { device_ = vulkan::adopt(own_.handles(), book_.log()).value(); }
  void TearDown() override {
    device_.reset();
    for (auto undo = undo_.rbegin(); undo != undo_.rend(); ++undo) (*undo)();
  }

  VkDevice device() const { return own_.handles().device; }
  /// A function that Kiln does not use.
  template <class Function>
  Function function(const char* name) {
    const auto get = reinterpret_cast<PFN_vkGetDeviceProcAddr>(
        own_.handles().get_instance_proc_addr(own_.handles().instance, "vkGetDeviceProcAddr"));
    return reinterpret_cast<Function>(get(device(), name));
  }
  static void expect(VkResult result) { vulkan::check(result, "preparing a test").value(); }

  VkDeviceMemory allocate(const VkMemoryRequirements& needs) {
    VkMemoryAllocateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
    info.allocationSize = needs.size;
    while ((needs.memoryTypeBits >> info.memoryTypeIndex & 1) == 0) ++info.memoryTypeIndex;
    VkDeviceMemory memory = nullptr;
    expect(own_.vk().AllocateMemory(device(), &info, nullptr, &memory));
    undo_.emplace_back([this, memory] { own_.vk().FreeMemory(device(), memory, nullptr); });
    return memory;
  }

  /// An image of 4 x 4 floats in VK_IMAGE_LAYOUT_GENERAL.
  VkImageView image() {
    VkImageCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO;
    info.imageType = VK_IMAGE_TYPE_2D;
    info.format = VK_FORMAT_R32_SFLOAT;
    info.extent = {4, 4, 1};
    info.mipLevels = info.arrayLayers = 1;
    info.samples = VK_SAMPLE_COUNT_1_BIT;
    info.usage = VK_IMAGE_USAGE_STORAGE_BIT | VK_IMAGE_USAGE_SAMPLED_BIT;
    VkImage image = nullptr;
    expect(function<PFN_vkCreateImage>("vkCreateImage")(device(), &info, nullptr, &image));
    undo_.emplace_back([this, image] { function<PFN_vkDestroyImage>("vkDestroyImage")(device(), image, nullptr); });
    VkMemoryRequirements needs{};
    function<PFN_vkGetImageMemoryRequirements>("vkGetImageMemoryRequirements")(device(), image, &needs);
    expect(function<PFN_vkBindImageMemory>("vkBindImageMemory")(device(), image, allocate(needs), 0));
    make_general(image);
    VkImageViewCreateInfo viewed{};
    viewed.sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO;
    viewed.image = image;
    viewed.viewType = VK_IMAGE_VIEW_TYPE_2D;
    viewed.format = info.format;
    viewed.subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
    VkImageView view = nullptr;
    expect(function<PFN_vkCreateImageView>("vkCreateImageView")(device(), &viewed, nullptr, &view));
    undo_.emplace_back(
        [this, view] { function<PFN_vkDestroyImageView>("vkDestroyImageView")(device(), view, nullptr); });
    return view;
  }
  void make_general(VkImage image) {
    const auto& vk = own_.vk();
    VkCommandPoolCreateInfo pooled{};
    pooled.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
    pooled.queueFamilyIndex = own_.handles().queue_family;
    VkCommandPool pool = nullptr;
    expect(vk.CreateCommandPool(device(), &pooled, nullptr, &pool));
    VkCommandBufferAllocateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
    info.commandPool = pool;
    info.commandBufferCount = 1;
    VkCommandBuffer commands = nullptr;
    expect(vk.AllocateCommandBuffers(device(), &info, &commands));
    VkCommandBufferBeginInfo begin{};
    begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    expect(vk.BeginCommandBuffer(commands, &begin));
    VkImageMemoryBarrier barrier{};
    barrier.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER;
    barrier.newLayout = VK_IMAGE_LAYOUT_GENERAL;
    barrier.srcQueueFamilyIndex = barrier.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED;
    barrier.image = image;
    barrier.subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
    vk.CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0, 0,
                          nullptr, 0, nullptr, 1, &barrier);
    expect(vk.EndCommandBuffer(commands));
    VkSubmitInfo submit{};
    submit.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    submit.commandBufferCount = 1;
    submit.pCommandBuffers = &commands;
    expect(vk.QueueSubmit(own_.handles().queue, 1, &submit, nullptr));
    expect(vk.QueueWaitIdle(own_.handles().queue));
    vk.DestroyCommandPool(device(), pool, nullptr);
  }

  VkSampler sampler() {
    VkSamplerCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SAMPLER_CREATE_INFO;
    info.addressModeU = info.addressModeV = info.addressModeW = VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_EDGE;
    VkSampler sampler = nullptr;
    expect(function<PFN_vkCreateSampler>("vkCreateSampler")(device(), &info, nullptr, &sampler));
    undo_.emplace_back(
        [this, sampler] { function<PFN_vkDestroySampler>("vkDestroySampler")(device(), sampler, nullptr); });
    return sampler;
  }

  VkBufferView texels(const Buffer& buffer) {
    VkBufferViewCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO;
    info.buffer = vulkan::memory(buffer);
    info.format = VK_FORMAT_R32_SFLOAT;
    info.range = VK_WHOLE_SIZE;
    VkBufferView view = nullptr;
    expect(function<PFN_vkCreateBufferView>("vkCreateBufferView")(device(), &info, nullptr, &view));
    undo_.emplace_back(
        [this, view] { function<PFN_vkDestroyBufferView>("vkDestroyBufferView")(device(), view, nullptr); });
    return view;
  }

  VkBuffer buffer(std::size_t bytes) {
    VkBufferCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.size = bytes;
    info.usage =
        VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    VkBuffer made = nullptr;
    expect(own_.vk().CreateBuffer(device(), &info, nullptr, &made));
    undo_.emplace_back([this, made] { own_.vk().DestroyBuffer(device(), made, nullptr); });
    VkMemoryRequirements needs{};
    own_.vk().GetBufferMemoryRequirements(device(), made, &needs);
    expect(own_.vk().BindBufferMemory(device(), made, allocate(needs), 0));
    return made;
  }

  const fakes::OwnVulkanDevice own_{0};
  std::vector<std::function<void()>> undo_;
};

constexpr std::uint32_t general = VK_IMAGE_LAYOUT_GENERAL;

TEST_F(VulkanObjects, ImagesAndSamplersOfTheCallerAreWrittenAndRead) {
  const auto write = made(vulkan_program("write", "layout(binding = 0, r32f) uniform writeonly image2D target;",
                                         "ivec2 at = ivec2(gl_GlobalInvocationID.xy); "
                                         "imageStore(target, at, vec4(at.x + 10 * at.y));"));
  const auto read = made(vulkan_program("read",
                                        "layout(binding = 0) buffer A { float a[]; };\n"
                                        "layout(set = 1, binding = 0) uniform sampler2D picture[2];\n"
                                        "layout(set = 1, binding = 1) uniform texture2D plain;\n"
                                        "layout(set = 1, binding = 2) uniform sampler nearest;",
                                        "vec2 at = (vec2(gl_GlobalInvocationID.xy) + 0.5) / 4; "
                                        "a[gl_GlobalInvocationID.x + 4 * gl_GlobalInvocationID.y] = "
                                        "textureLod(picture[1], at, 0).x - textureLod(picture[0], at, 0).x + "
                                        "1000 * textureLod(sampler2D(plain, nearest), at, 0).x;"));
  const VkImageView empty = image();
  const VkImageView picture = image();
  const VkSampler nearest = sampler();
  device_->launch(*write, {.groups = {4, 4}, .arguments = {named("target", vulkan::image(picture, general))}})
      .value();
  const auto zero = made(vulkan_program("zero", "layout(binding = 0, r32f) uniform writeonly image2D target;",
                                        "imageStore(target, ivec2(gl_GlobalInvocationID.xy), vec4(0));"));
  device_->launch(*zero, {.groups = {4, 4}, .arguments = {named("target", vulkan::image(empty, general))}}).value();
  const auto a = buffer_of(std::vector<float>(16));
  const Launch launch{
      .groups = {4, 4},
      .arguments = {*a, named("picture[0]", vulkan::texture(empty, nearest, general)),
                    bound({.binding = 0, .set = 1, .element = 1}, vulkan::texture(picture, nearest, general)),
                    named("plain", vulkan::image(picture, general)), named("nearest", vulkan::sampler(nearest))}};
  device_->launch(*read, launch).value();
  const auto numbers = numbers_of(*a);
  for (std::size_t i = 0; i < 16; ++i)
    EXPECT_EQ(numbers[i], static_cast<float>(1001 * (i % 4 + 10 * (i / 4)))) << i;
}

TEST_F(VulkanObjects, TexelBuffersViewABuffer) {
  const auto module = made(vulkan_program("texels",
                                          "layout(binding = 0, r32f) uniform imageBuffer to;\n"
                                          "layout(binding = 1) uniform samplerBuffer from;\n"
                                          "layout(binding = 2) uniform textureBuffer factors;",
                                          "int i = int(gl_GlobalInvocationID.x); "
                                          "imageStore(to, i, texelFetch(from, i) * texelFetch(factors, 0));"));
  const auto to = buffer_of(std::vector<float>(3));
  const auto from = buffer_of(std::vector<float>{1, 2, 3});
  const auto factors = buffer_of(std::vector<float>{7});
  device_
      ->launch(*module, {.groups = {3},
                         .arguments = {named("to", vulkan::texel_buffer(texels(*to))),
                                       named("from", vulkan::texel_buffer(texels(*from))),
                                       bound({.binding = 2}, vulkan::texel_buffer(texels(*factors)))}})
      .value();
  EXPECT_EQ(numbers_of(*to), (std::vector<float>{7, 14, 21}));
}

TEST_F(VulkanObjects, ABufferOfTheCallerIsUsedInPlace) {
  const VkBuffer callers = buffer(4096);
  const auto whole = vulkan::wrap(*device_, callers, 4096).value();
  const auto part = vulkan::wrap(*device_, callers, 1024, 2048).value();
  EXPECT_EQ(part->size(), 1024U);
  EXPECT_EQ(vulkan::memory(*part), callers);
  std::vector<float> numbers(1024);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  device_->write(*whole, std::as_bytes(std::span(numbers)), 0).value();
  EXPECT_EQ(numbers_of(*part)[255], 767);
  const auto module = made(vulkan_program("part", "layout(binding = 0) buffer A { float a[]; };",
                                          "if (gl_GlobalInvocationID.x == 0) a[0] = a.length(); "
                                          "else a[gl_GlobalInvocationID.x] += 0.5;"));
  device_->launch(*module, {.groups = {256}, .arguments = {*part}}).value();
  EXPECT_EQ(numbers_of(*whole)[512], 256);
  EXPECT_EQ(numbers_of(*whole)[767], 767.5F);
  EXPECT_EQ(numbers_of(*whole)[768], 768);
  EXPECT_TRUE(passes_through(*device_->open_slot().value(), *device_));
  EXPECT_EQ(device_->write(*part, std::as_bytes(std::span(numbers)), 0).error().code(), ErrorCode::invalid_request);
  const auto odd = vulkan::wrap(*device_, callers, 1024, 2).value();
  EXPECT_TRUE(refused(*module, {.arguments = {*odd}})
                  .starts_with("part: the storage buffer A (binding 0) begins at byte 2; the device requires a "));
  EXPECT_EQ(vulkan::wrap(*device_, callers, std::size_t{1} << 40U).error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(vulkan::wrap(*device_, callers, 4, std::size_t{1} << 40U).error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(complaint(vulkan::wrap(*device_, nullptr, 4)), "a null buffer, or no bytes of one, cannot be wrapped");
  EXPECT_EQ(complaint(vulkan::wrap(*device_, callers, 0)), "a null buffer, or no bytes of one, cannot be wrapped");
}

}  // namespace
}  // namespace kiln
