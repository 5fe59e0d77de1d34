#include <array>
#include <atomic>
#include <numeric>
#include <thread>

#include <epoxy/gl.h>

#include "backend/gl_fixture.hpp"
#include "backend/vulkan_modules.hpp"

namespace kiln {
namespace {

using Floats = std::vector<float>;

/// A texture of the application's own: one level of 4 numbers.
class Texture {
 public:
  explicit Texture(Device& device, const std::array<float, 4>& numbers = {}, GLenum target = GL_TEXTURE_2D)
      : current_(opengl::make_current(device).value()), target_(target) {
    glGenTextures(1, &id_);
    glBindTexture(target, id_);
    if (target == GL_TEXTURE_2D)
      glTexStorage2D(target, 1, GL_R32F, 4, 1);
    else
      glTexStorage3D(target, 1, GL_R32F, 4, 1, 1);
    if (target == GL_TEXTURE_2D) glTexSubImage2D(target, 0, 0, 0, 4, 1, GL_RED, GL_FLOAT, numbers.data());
    glBindTexture(target, 0);
    glFinish();
  }
  ~Texture() { glDeleteTextures(1, &id_); }
  Texture(const Texture&) = delete;
  Texture& operator=(const Texture&) = delete;

  GLuint id() const { return id_; }
  std::array<float, 4> numbers() const {
    std::array<float, 4> read = {};
    glBindTexture(target_, id_);
    glGetTexImage(target_, 0, GL_RED, GL_FLOAT, read.data());
    glBindTexture(target_, 0);
    return read;
  }

 private:
  opengl::Current current_;
  GLenum target_;
  GLuint id_ = 0;
};

class OpenGlArguments : public fakes::GlTest {
 protected:
  /// A program that writes `expression`, computed for each `i`, to storage buffer 0.
  Module& program(const std::string& declarations, const std::string& expression) {
    return source("#version 430\nlayout(local_size_x = 4) in;\n" + declarations +
                  "\nlayout(std430, binding = 0) buffer Out { float result[]; };\n"
                  "void main() { int i = int(gl_GlobalInvocationID.x); result[i] = " +
                  expression + "; }\n");
  }
  Module& source(const std::string& text) {
    compiled_.push_back(device_->compile(Request({.name = "kernel", .source = text})).value());
    return *compiled_.back().module;
  }

  /// The numbers that a launch of one group writes to its first argument, which this function adds.
  Result<Floats> run(Module& module, std::vector<Argument> arguments) {
    const auto out = device_->allocate(16).value();
    arguments.insert(arguments.begin(), out.get());
    if (auto ran = device_->launch(module, {.arguments = std::move(arguments)}); !ran) return ran.error();
    return download<float>(*device_, *out);
  }
  std::string why_not(Module& module, std::vector<Argument> arguments) {
    const auto result = run(module, std::move(arguments));
    EXPECT_FALSE(result);
    if (result) return "";
    EXPECT_EQ(result.error().code(), ErrorCode::invalid_request) << result.error().message();
    return result.error().message();
  }
  std::unique_ptr<Buffer> filled(const Floats& numbers) { return upload(*device_, numbers).value(); }

  std::vector<Compiled> compiled_;
};

TEST_F(OpenGlArguments, PlainUniformsMustBeGivenAndReachTheProgram) {
  Module& module = program("uniform float factor; uniform int shift;", "factor * float(i + shift)");
  EXPECT_EQ(why_not(module, {}), "kernel: the uniform factor has no value; give it by named(\"factor\", …)");
  EXPECT_EQ(why_not(module, {named("factor", 2.0F)}),
            "kernel: the uniform shift has no value; give it by named(\"shift\", …)");
  EXPECT_EQ(run(module, {named("factor", 2.0F), named("shift", 1)}).value(), (Floats{2, 4, 6, 8}));
  EXPECT_EQ(run(module, {named("shift", -1), named("factor", 3.0F)}).value(), (Floats{-3, 0, 3, 6}));
}

TEST_F(OpenGlArguments, UniformsOfEveryKindOfTypeAreSet) {
  Module& module = program(
      "uniform vec3 v; uniform uvec2 u; uniform bool b; uniform mat2x3 m; uniform float w[3]; uniform double d;\n"
      "struct Light { float power; vec2 at; }; uniform Light lights[2];",
      "v.z + float(u.y) + (b ? 100.0 : 0.0) + m[1][2] + w[i % 3] + float(d) + lights[1].power + lights[0].at.y + "
      "lights[1].at.x + lights[0].power");
  const auto result = run(
      module, {named("v", std::array{0.0F, 0.0F, 1.0F}), named("u", std::array{0U, 20U}), named("b", 1),
               named("m", std::array{0.F, 0.F, 0.F, 0.F, 0.F, 3000.F}), named("w", std::array{0.25F, 0.5F, 0.75F}),
               named("d", 10000.0), named("lights[0].power", 0.0F), named("lights[1].power", 100000.0F),
               named("lights[0].at", std::array{0.0F, 0.0F}), named("lights[1].at", std::array{0.0F, 0.0F})});
  EXPECT_EQ(result.value(), (Floats{113121.25F, 113121.5F, 113121.75F, 113121.25F}));
}

TEST_F(OpenGlArguments, AnArrayThatTheDriverShortensMayBeGivenWhole) {
  Module& module = program("uniform float w[9];", "w[0] + w[1]");
  std::array<float, 9> w = {1, 2};
  EXPECT_EQ(run(module, {named("w", w)}).value(), Floats(4, 3));
  EXPECT_NE(why_not(module, {named("w", 1.0F)}).find("the uniform w takes a value of "), std::string::npos);
}

TEST_F(OpenGlArguments, WrongSizesKindsAndNamesAreNamed) {
  Module& module = program("uniform float factor; layout(r32f, binding = 1) uniform readonly image2D from;",
                           "factor * imageLoad(from, ivec2(i, 0)).x");
  const Texture texture(*device_);
  const auto image = named("from", opengl::image(texture.id(), GL_R32F, GL_READ_ONLY));
  EXPECT_EQ(why_not(module, {image, named("factor", 2.0)}),
            "kernel: the uniform factor takes a value of 4 bytes; a value of 8 bytes was given");
  EXPECT_EQ(why_not(module, {image, named("factor", 2.0F), named("factor", 2.0F)}),
            "kernel: the uniform factor is given twice");
  EXPECT_EQ(why_not(module, {image, named("fcator", 2.0F)}),
            "kernel: it has no uniform, block or parameter called fcator");
  EXPECT_EQ(why_not(module, {named("factor", 2.0F), named("from", 3.0F)}),
            "kernel: the image from (binding 1) takes no value of 4 bytes");
  EXPECT_EQ(why_not(module, {named("factor", 2.0F), named("from", opengl::texture(texture.id(), GL_TEXTURE_2D))}),
            "kernel: the image from (binding 1) takes no texture");
  EXPECT_NE(why_not(module, {named("factor", 2.0F), opengl::image(texture.id(), GL_R32F, GL_READ_ONLY)})
                .find("needs a place: use bound() or named()"),
            std::string::npos);
  EXPECT_TRUE(run(module, {image, named("factor", 2.0F)}));
}

TEST_F(OpenGlArguments, AGroupSizeThatContradictsTheSourceIsAnError) {
  Module& module = program("", "1.0");
  const auto out = device_->allocate(16).value();
  EXPECT_TRUE(device_->launch(module, {.group_size = {4}, .arguments = {*out}}));
  const auto wrong = device_->launch(module, {.group_size = {8}, .arguments = {*out}});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message(), "kernel declares groups of 4 x 1 x 1; the launch has 8 x 1 x 1");
}

TEST_F(OpenGlArguments, AUniformBlockAtAnotherBindingMustBeGiven) {
  Module& module =
      program("layout(std140, binding = 3) uniform Scale { vec4 scale; float add; };", "scale[i] + add");
  EXPECT_EQ(
      why_not(module, {}),
      "kernel: nothing is bound to the uniform buffer Scale (binding 3); give it by bound({.binding = 3}, …)");
  const std::array<float, 8> numbers = {1, 2, 3, 4, 10};
  const auto buffer = device_->allocate(sizeof numbers).value();
  ASSERT_TRUE(device_->write(*buffer, std::as_bytes(std::span(numbers))));
  const Floats right = {11, 12, 13, 14};
  EXPECT_EQ(run(module, {bound({3}, numbers)}).value(), right);
  EXPECT_EQ(run(module, {bound({3}, *buffer)}).value(), right);
  EXPECT_EQ(run(module, {named("Scale", std::array<float, 5>{1, 2, 3, 4, 10})}).value(), right);
  EXPECT_EQ(why_not(module, {bound({3}, 1.0F)}),
            "kernel: the uniform buffer Scale (binding 3) takes 32 bytes; 4 were given");
  const auto small = device_->allocate(16).value();
  EXPECT_EQ(why_not(module, {bound({3}, *small)}),
            "kernel: the uniform buffer Scale (binding 3) needs 32 bytes; the buffer has 16");
}

TEST_F(OpenGlArguments, UniformBlock0IsGivenByMembersWholeOrAsABuffer) {
  Module& module = program(
      "layout(std140, binding = 0) uniform Parameters { float a; vec2 unused; mat2 m; float w[2]; int n; } p;",
      "p.a + p.m[1][1] + p.w[1] + float(p.n)");
  const std::array<float, 2> unused = {};
  const std::array<float, 8> m = {0, 0, 0, 0, 0, 20};
  const std::array<float, 8> w = {0, 0, 0, 0, 300};
  EXPECT_EQ(run(module, {1.0F, unused, m, w, 4000}).value(), Floats(4, 4321));
  EXPECT_EQ(run(module, {named("n", 4000), 1.0F, unused, m, named("w", w)}).value(), Floats(4, 4321));
  EXPECT_EQ(why_not(module, {1.0F, unused, m, w}), "kernel: the parameter n has no value");
  EXPECT_EQ(why_not(module, {1.0F, unused, m, w, 4000, 1}),
            "kernel declares 96 bytes of parameters; 84 were given");
  std::array<float, 24> whole = {1};
  whole[9] = 20;
  whole[16] = 300;
  const int n = 4000;
  std::memcpy(&whole[20], &n, sizeof n);
  EXPECT_EQ(run(module, {whole}).value(), Floats(4, 4321));
  EXPECT_EQ(run(module, {named("Parameters", whole)}).value(), Floats(4, 4321));
  const auto buffer = device_->allocate(sizeof whole).value();
  ASSERT_TRUE(device_->write(*buffer, std::as_bytes(std::span(whole))));
  EXPECT_EQ(run(module, {named("Parameters", *buffer)}).value(), Floats(4, 4321));
  EXPECT_NE(why_not(module, {named("Parameters", *buffer), 1.0F}).find("given twice"), std::string::npos);
  const auto small = device_->allocate(16).value();
  EXPECT_NE(why_not(module, {named("Parameters", *small)}).find("needs 96 bytes"), std::string::npos);
}

TEST_F(OpenGlArguments, UniformBlock0IsBoundByBindingIfNothingElseIsThere) {
  Module& module = source(R"(#version 430
layout(local_size_x = 4) in;
layout(std140, binding = 0) uniform Parameters { vec4 numbers; };
layout(std430, binding = 1) buffer Out { float result[]; };
void main() { result[gl_LocalInvocationIndex] = numbers[gl_LocalInvocationIndex]; }
)");
  const auto buffer = filled({1, 2, 3, 4});
  const auto out = device_->allocate(16).value();
  ASSERT_TRUE(device_->launch(module, {.arguments = {bound({0}, *buffer), bound({1}, *out)}}));
  EXPECT_EQ(download<float>(*device_, *out).value(), (Floats{1, 2, 3, 4}));
}

TEST_F(OpenGlArguments, AnImageMustBeGivenAndExist) {
  Module& module = program(
      "layout(r32f, binding = 2) uniform readonly image2D from; layout(r32f, binding = 5) uniform writeonly "
      "image2D to;",
      "imageLoad(from, ivec2(i, 0)).x; imageStore(to, ivec2(i, 0), vec4(10 * i))");
  EXPECT_EQ(why_not(module, {}),
            "kernel: nothing is bound to the image from (binding 2); give it by bound({.binding = 2}, …)");
  const Texture from(*device_, {5, 6, 7, 8});
  const Texture to(*device_);
  const Argument good = bound({2}, opengl::image(from.id(), GL_R32F, GL_READ_ONLY));
  const Argument target = named("to", opengl::image(to.id(), GL_R32F, GL_WRITE_ONLY));
  EXPECT_EQ(run(module, {good, target}).value(), (Floats{5, 6, 7, 8}));
  EXPECT_EQ(to.numbers(), (std::array<float, 4>{0, 10, 20, 30}));
  const auto why = [&](const Argument& image) { return why_not(module, {Argument(image).at(Binding{2}), target}); };
  EXPECT_EQ(why(opengl::image(12345, GL_R32F, GL_READ_ONLY)),
            "kernel: the image from (binding 2) is given 12345, which is no texture");
  EXPECT_EQ(why(opengl::image(from.id(), GL_R32F, GL_READ_ONLY, 3)),
            "kernel: the image from (binding 2) is given level 3, which the texture does not have");
  EXPECT_EQ(why(opengl::image(from.id(), GL_DEPTH_COMPONENT24, GL_READ_ONLY)),
            "kernel: the driver refuses an argument (OpenGL error 0x501)");
  const Texture layers(*device_, {}, GL_TEXTURE_2D_ARRAY);
  EXPECT_TRUE(run(module, {bound({2}, opengl::image(layers.id(), GL_R32F, GL_READ_ONLY)), target}));
  EXPECT_NE(why(opengl::image(layers.id(), GL_R32F, GL_READ_ONLY, 0, true)).find("has the target 0xde1"),
            std::string::npos);
}

TEST_F(OpenGlArguments, ATextureMustBeGivenAndFitItsSampler) {
  Module& module = program("layout(binding = 4) uniform sampler2D from;", "texelFetch(from, ivec2(i, 0), 0).x");
  EXPECT_EQ(why_not(module, {}),
            "kernel: nothing is bound to the texture from (binding 4); give it by bound({.binding = 4}, …)");
  const Texture from(*device_, {5, 6, 7, 8});
  GLuint sampler = 0;
  glGenSamplers(1, &sampler);
  glBindSampler(0, sampler);
  glBindSampler(0, 0);
  glFinish();
  EXPECT_EQ(run(module, {bound({4}, opengl::texture(from.id(), GL_TEXTURE_2D))}).value(), (Floats{5, 6, 7, 8}));
  EXPECT_EQ(run(module, {named("from", opengl::texture(from.id(), GL_TEXTURE_2D, sampler))}).value(),
            (Floats{5, 6, 7, 8}));
  EXPECT_EQ(why_not(module, {bound({4}, opengl::texture(from.id(), GL_TEXTURE_3D))}),
            "kernel: the texture from (binding 4) has the target 0xde1; a texture of the target 0x806f was given");
  EXPECT_EQ(why_not(module, {bound({4}, opengl::texture(from.id(), GL_TEXTURE_2D, 777))}),
            "kernel: the texture from (binding 4) is given the sampler 777, which does not exist");
  const Texture layers(*device_, {}, GL_TEXTURE_2D_ARRAY);
  EXPECT_EQ(why_not(module, {bound({4}, opengl::texture(layers.id(), GL_TEXTURE_2D))}),
            "kernel: the driver refuses an argument (OpenGL error 0x502)");
  glDeleteSamplers(1, &sampler);
}

TEST_F(OpenGlArguments, SamplersWithoutABindingAreGivenByName) {
  Module& module = program("uniform sampler2D a; uniform sampler2D b[2];",
                           "texelFetch(a, ivec2(i, 0), 0).x + 10.0 * texelFetch(b[0], ivec2(i, 0), 0).x + 100.0 * "
                           "texelFetch(b[1], ivec2(i, 0), 0).x");
  const Texture one(*device_, {1, 1, 1, 1});
  const Texture two(*device_, {2, 2, 2, 2});
  const Texture three(*device_, {3, 3, 3, 3});
  const auto give = [](const Texture& texture) { return opengl::texture(texture.id(), GL_TEXTURE_2D); };
  EXPECT_EQ(run(module, {named("b[1]", give(three)), named("a", give(one)), named("b[0]", give(two))}).value(),
            Floats(4, 321));
  EXPECT_EQ(run(module, {bound({0}, give(two))}).value(), Floats(4, 222)) << "all of them are at binding 0";
}

TEST_F(OpenGlArguments, AtomicCountersMustBeGiven) {
  Module& module = program("layout(binding = 1, offset = 4) uniform atomic_uint hits;",
                           "float(i); atomicCounterIncrement(hits)");
  const bool is_mesa = device_->identity().driver.find("Mesa") != std::string::npos;
  EXPECT_TRUE(why_not(module, {}).starts_with("kernel: nothing is bound to the buffer of atomic counters"));
  const auto counters = upload(*device_, std::vector<std::uint32_t>{7, 8}).value();
  EXPECT_TRUE(run(module, {bound({1}, *counters)}));
  // NVIDIA's driver does not report the names of counters.
  EXPECT_TRUE(run(module, {is_mesa ? named("hits", *counters) : bound({1}, *counters)}));
  EXPECT_EQ(download<std::uint32_t>(*device_, *counters).value(), (std::vector<std::uint32_t>{7, 16}));
  const auto small = device_->allocate(4).value();
  EXPECT_NE(why_not(module, {bound({1}, *small)}).find("needs 8 bytes; the buffer has 4"), std::string::npos);
}

TEST_F(OpenGlArguments, BuffersAreTakenFromAnOffsetOn) {
  Module& module = program(
      "layout(std430, binding = 1) buffer In { float from[]; }; layout(binding = 2) uniform Add { vec4 add; };",
      "from[i] + add[i]");
  Floats numbers(128);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  const auto buffer = filled(numbers);
  EXPECT_EQ(run(module, {Argument(*buffer, 256), bound({2}, Argument(*buffer, 0))}).value(),
            (Floats{64, 66, 68, 70}));
  EXPECT_EQ(run(module, {*buffer, bound({2}, Argument(*buffer, 256))}).value(), (Floats{64, 66, 68, 70}));
  EXPECT_NE(why_not(module, {Argument(*buffer, 4), bound({2}, *buffer)})
                .find("kernel: argument 1 begins at byte 4 of its buffer; opengl:0 requires a multiple of "),
            std::string::npos);
  EXPECT_NE(why_not(module, {*buffer, bound({2}, Argument(*buffer, 4))})
                .find("kernel: the uniform buffer Add (binding 2) begins at byte 4 of its buffer"),
            std::string::npos);
  EXPECT_EQ(why_not(module, {Argument(*buffer, 512), bound({2}, *buffer)}),
            "kernel: argument 1 begins at the end of its buffer");
  EXPECT_FALSE(run(module, {Argument(*buffer, 1024), bound({2}, *buffer)}));
}

TEST_F(OpenGlArguments, BlocksAndArraysOfBlocksAreGivenByNameAndByBinding) {
  Module& module = program("layout(std430, binding = 5) buffer Parts { float part[]; } parts[3];",
                           "parts[0].part[i] + parts[1].part[i] + parts[2].part[i]");
  const auto one = filled({1, 1, 1, 1});
  const auto two = filled({20, 20, 20, 20});
  const auto three = filled({300, 300, 300, 300});
  EXPECT_EQ(run(module, {bound({5}, *one), bound({6}, *two), bound({7}, *three)}).value(), Floats(4, 321));
  EXPECT_EQ(
      run(module, {named("Parts[2]", *three), named("Parts[0]", *one), bound({.binding = 5, .element = 1}, *two)})
          .value(),
      Floats(4, 321));
  EXPECT_NE(why_not(module, {bound({5}, *one), bound({7}, *three)})
                .find("nothing is bound to the storage buffer "
                      "Parts[1]"),
            std::string::npos);
}

TEST_F(OpenGlArguments, BlocksWithoutABindingAreGivenByName) {
  Module& module = source(R"(#version 430
layout(local_size_x = 4) in;
layout(std430) buffer A { float a[]; };
layout(std430) buffer B { float b[]; };
layout(std140) uniform C { vec4 c; };
layout(std140) uniform D { vec4 d; };
void main() { uint i = gl_LocalInvocationIndex; b[i] = a[i] + c[i] + 10.0 * d[i]; }
)");
  const auto a = filled({100, 200, 300, 400});
  const auto b = filled({0, 0, 0, 0});
  const std::array<float, 4> c = {1, 2, 3, 4};
  const std::array<float, 4> d = {1, 1, 1, 1};
  ASSERT_TRUE(
      device_->launch(module, {.arguments = {named("B", *b), named("A", *a), named("D", d), named("C", c)}}));
  EXPECT_EQ(download<float>(*device_, *b).value(), (Floats{111, 212, 313, 414}));
}

TEST_F(OpenGlArguments, BlocksThatShareABindingTakeOneBuffer) {
  Module& module = source(R"(#version 430
layout(local_size_x = 4) in;
layout(std430, binding = 0) buffer A { float scalars[]; };
layout(std430, binding = 0) buffer B { vec4 vectors[]; };
layout(std430, binding = 1) buffer Out { float result[]; };
void main() { uint i = gl_LocalInvocationIndex; result[i] = scalars[i] + vectors[0][i]; }
)");
  const auto in = filled({1, 2, 3, 4});
  const auto out = device_->allocate(16).value();
  ASSERT_TRUE(device_->launch(module, {.arguments = {*in, *out}}));
  EXPECT_EQ(download<float>(*device_, *out).value(), (Floats{2, 4, 6, 8}));
}

TEST_F(OpenGlArguments, TheSizeOfAStorageBlockIsThatOfItsMembers) {
  Module& module = source(R"(#version 430
layout(local_size_x = 1) in;
layout(std430, binding = 0) buffer Sum { float sum; };
layout(std430, binding = 1) buffer Data { int n; float pairs[2][3]; float rest[]; };
void main() { sum = pairs[1][2] + rest[0] + float(n); }
)");
  const auto sum = device_->allocate(4).value();
  const auto data = device_->allocate(28).value();
  const auto small = device_->allocate(27).value();
  EXPECT_TRUE(device_->launch(module, {.arguments = {*sum, *data}}));
  const auto result = device_->launch(module, {.arguments = {*sum, *small}});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(),
            "kernel: the storage buffer Data (binding 1) needs 28 bytes; the buffer has 27");
}

TEST_F(OpenGlArguments, NumbersOf64BitsHaveTheirSize) {
  const auto with = [&](const std::string& declarations, const std::string& sum) {
    return device_->compile(Request({.name = "kernel",
                                     .source = "#version 430\n#extension GL_ARB_gpu_shader_int64 : require\n"
                                               "layout(local_size_x = 1) in;\n"
                                               "layout(std430, binding = 0) buffer Sum { float sum; };\n" +
                                               declarations + "\nvoid main() { sum = float(" + sum + "); }\n"}));
  };
  auto stored =
      with("layout(std430, binding = 1) buffer Data { int64_t a; u64vec2 pairs[2]; };", "a + int64_t(pairs[1].y)");
  if (!stored) GTEST_SKIP() << stored.error().message();
  const auto sum = device_->allocate(4).value();
  const auto data = upload(*device_, std::vector<std::int64_t>{40, 0, 0, 0, 0, 2}).value();
  const auto small = device_->allocate(47).value();
  ASSERT_TRUE(device_->launch(*stored->module, {.arguments = {*sum, *data}}));
  EXPECT_EQ(download<float>(*device_, *sum).value(), Floats{42});
  const auto result = device_->launch(*stored->module, {.arguments = {*sum, *small}});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(),
            "kernel: the storage buffer Data (binding 1) needs 48 bytes; the buffer has 47");

  auto uniform = with("uniform int64_t big; uniform u64vec2 pair;", "big + int64_t(pair.y)");
  ASSERT_TRUE(uniform) << uniform.error().message();
  ASSERT_TRUE(device_->launch(
      *uniform->module,
      {.arguments = {*sum, named("big", std::int64_t{-40}), named("pair", std::array<std::uint64_t, 2>{0, 50})}}));
  EXPECT_EQ(download<float>(*device_, *sum).value(), Floats{10});
}

TEST_F(OpenGlArguments, WhatKilnCannotSetIsRefused) {
  Module& module = source(R"(#version 430
layout(local_size_x = 1) in;
subroutine float Choice();
subroutine(Choice) float one() { return 1.0; }
subroutine(Choice) float two() { return 2.0; }
subroutine uniform Choice choice;
layout(std430, binding = 0) buffer Out { float result[]; };
void main() { result[0] = choice(); }
)");
  const auto result = run(module, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::unsupported);
  EXPECT_EQ(result.error().message(), "kernel: it has subroutine uniforms, which Kiln cannot set");
}

TEST_F(OpenGlArguments, ALoadedProgramTakesTheSame) {
  static_cast<void>(program("uniform float factor; layout(binding = 1) uniform sampler2D from;",
                            "factor * texelFetch(from, ivec2(i, 0), 0).x"));
  const auto loaded = device_->load(compiled_.back().binary.value()).value();
  const Texture from(*device_, {5, 6, 7, 8});
  const Argument texture = named("from", opengl::texture(from.id(), GL_TEXTURE_2D));
  EXPECT_NE(why_not(*loaded, {texture}).find("the uniform factor has no value"), std::string::npos);
  EXPECT_EQ(run(*loaded, {named("factor", 2.0F), texture}).value(), (Floats{10, 12, 14, 16}));
}

TEST_F(OpenGlArguments, UniformsThatTheApplicationSetsDoNotMatter) {
  Module& module = program("uniform float factor; layout(binding = 1) uniform sampler2D from;",
                           "factor * texelFetch(from, ivec2(i, 0), 0).x");
  const Texture from(*device_, {5, 6, 7, 8});
  const GLuint id = dynamic_cast<opengl::Module&>(module).id();
  glProgramUniform1f(id, glGetUniformLocation(id, "factor"), 9);
  EXPECT_EQ(run(module, {named("factor", 2.0F), bound({1}, opengl::texture(from.id(), GL_TEXTURE_2D))}).value(),
            (Floats{10, 12, 14, 16}));
  GLfloat factor = 0;
  glGetUniformfv(id, glGetUniformLocation(id, "factor"), &factor);
  EXPECT_EQ(factor, 9);
}

TEST_F(OpenGlArguments, SixteenThreadsLaunchAProgramWithUniformsOfTheirOwn) {
  Module& module = program("uniform float factor;", "factor * float(i)");
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      const auto factor = static_cast<float>(t + 1);
      for (int round = 0; round < 10; ++round)
        if (run(module, {named("factor", factor)}).value() != Floats{0, factor, 2 * factor, 3 * factor}) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(OpenGlArguments, SlotsOfSixteenThreadsLaunchAProgramWithUniformsOfTheirOwn) {
  Module& module =
      program("uniform float factor; layout(binding = 1) uniform Add { vec4 add; };", "factor * float(i) + add[i]");
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      const auto slot = device_->open_slot().value();
      const auto staged = slot->staging(16).value();
      // Launches of one submission differ too.
      std::vector<std::unique_ptr<Buffer>> outs;
      for (int i = 0; i < 4; ++i) outs.push_back(device_->allocate(16).value());
      for (int round = 0; round < 5; ++round) {
        for (int i = 0; i < 4; ++i)
          slot->launch(module,
                       {.arguments = {outs[static_cast<std::size_t>(i)].get(),
                                      named("factor", static_cast<float>(t + 100 * i)),
                                      named("Add", std::array{float(i), float(i), float(i), float(round)})}})
              .value();
        slot->submit().value();
        slot->wait().value();
        for (int i = 0; i < 4; ++i) {
          const auto factor = static_cast<float>(t + 100 * i);
          const auto add = static_cast<float>(i);
          slot->download(*outs[static_cast<std::size_t>(i)], 0, 0, 16).value();
          slot->submit().value();
          slot->wait().value();
          std::array<float, 4> now = {};
          std::memcpy(now.data(), staged.data(), sizeof now);
          if (now != std::array{add, factor + add, 2 * factor + add, 3 * factor + static_cast<float>(round)})
            ++wrong;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(OpenGlArguments, ProgramsWithUniformsAreDestroyedWhileOthersAreLaunched) {
  Module& kept = program("uniform float factor;", "factor * float(i)");
  std::thread other([&] {
    for (int round = 0; round < 10; ++round) {
      const Compiled compiled = device_
                                    ->compile(Request({.name = "other",
                                                       .source = R"(#version 430
layout(local_size_x = 4) in;
uniform float add;
layout(std430, binding = 0) buffer Out { float result[]; };
void main() { result[gl_LocalInvocationIndex] = add + ROUND; }
)",
                                                       .defines = {{"ROUND", std::to_string(round) + ".0"}}}))
                                    .value();
      EXPECT_EQ(run(*compiled.module, {named("add", 0.5F)}).value(), Floats(4, static_cast<float>(round) + 0.5F));
    }
  });
  for (int round = 0; round < 50; ++round)
    EXPECT_EQ(run(kept, {named("factor", 2.0F)}).value(), (Floats{0, 2, 4, 6}));
  other.join();
}

TEST_F(OpenGlArguments, ASlotMayOutliveAProgramWithUniforms) {
  Module& module = program("uniform float factor;", "factor * float(i)");
  const auto out = device_->allocate(16).value();
  auto slot = device_->open_slot().value();
  slot->launch(module, {.arguments = {*out, named("factor", 2.0F)}}).value();
  slot->submit().value();
  // The end of the work is known from elsewhere.
  EXPECT_EQ(download<float>(*device_, *out).value(), (Floats{0, 2, 4, 6}));
  compiled_.clear();
  slot.reset();
}

TEST_F(OpenGlArguments, AWrappedBufferIsUsedAndStaysTheCallers) {
  Module& module = program("layout(std430, binding = 1) buffer In { float from[4]; };", "from[i]");
  const auto current = opengl::make_current(*device_).value();
  const std::array<float, 4> numbers = {1, 2, 3, 4};
  GLuint names[2];
  glGenBuffers(2, names);
  EXPECT_EQ(opengl::wrap(*device_, names[0]).error().code(), ErrorCode::invalid_request) << "not bound yet";
  EXPECT_EQ(opengl::wrap(*device_, 0).error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(opengl::wrap(*device_, 54321).error().code(), ErrorCode::invalid_request);
  for (const GLuint name : names) {
    glBindBuffer(GL_COPY_READ_BUFFER, name);
    glBufferData(GL_COPY_READ_BUFFER, name == names[0] ? 16 : 12, name == names[0] ? numbers.data() : nullptr,
                 GL_DYNAMIC_COPY);
  }
  glFinish();
  auto wrapped = opengl::wrap(*device_, names[0]).value();
  EXPECT_EQ(wrapped->size(), 16U);
  EXPECT_EQ(opengl::memory(*wrapped), names[0]);
  EXPECT_EQ(run(module, {*wrapped}).value(), (Floats{1, 2, 3, 4}));
  const auto small = opengl::wrap(*device_, names[1]).value();
  EXPECT_NE(why_not(module, {*small}).find("needs 16 bytes; the buffer has 12"), std::string::npos);
  glBufferData(GL_COPY_READ_BUFFER, 4, nullptr, GL_DYNAMIC_COPY);
  std::array<std::byte, 12> bytes = {};
  EXPECT_NE(device_->read(*small, bytes).error().message().find("has 4 bytes now, and had 12"), std::string::npos);
  auto slot = device_->open_slot().value();
  slot->staging(12).value();
  EXPECT_EQ(slot->upload(*small, 0, 0, 12).error().code(), ErrorCode::invalid_request);
  const auto again = opengl::wrap(*device_, names[0]).value();
  wrapped.reset();
  EXPECT_EQ(glIsBuffer(names[0]), GL_TRUE);
  glDeleteBuffers(2, names);
  // NVIDIA's driver keeps a deleted buffer as long as another context has used it.
  if (device_->identity().driver.find("Mesa") == std::string::npos) return;
  EXPECT_NE(why_not(module, {*again}).find("has been deleted"), std::string::npos);
  EXPECT_EQ(device_->write(*again, bytes).error().code(), ErrorCode::invalid_request);
}

TEST_F(OpenGlArguments, SpirvInputsBeyondTheLimitsAreRefused) {
  using Input = fakes::DoublingModule::Input;
  const auto message = [&](const fakes::DoublingModule& module) {
    const auto result =
        device_->compile(Request({.name = "double", .source = module.bytes(), .language = Language::spirv}));
    EXPECT_FALSE(result);
    if (result) return std::string();
    EXPECT_EQ(result.error().code(), ErrorCode::unsupported) << result.error().message();
    return result.error().message();
  };
  const auto starts = [](const std::string& text, std::string_view with) {
    EXPECT_TRUE(text.starts_with(with)) << text;
  };
  starts(message({.other = Input::uniform_block, .other_binding = 5000}),
         "double declares a uniform buffer with binding 5000; the device allows bindings below ");
  starts(message({.other = Input::sampler, .other_binding = 0x7ffffff}),
         "double declares a texture with binding 134217727; the device allows bindings below ");
  starts(message({.other = Input::image, .other_binding = 5000}), "double declares an image with binding 5000");
  starts(message({.other = Input::sampler, .other_length = 5000}), "double declares a texture with binding 4999");
  starts(message({.capabilities = {spv::Capability::Shader, spv::Capability::AtomicStorage},
                  .other = Input::counters,
                  .other_binding = 5000}),
         "double declares a buffer of atomic counters with binding 5000");
}

}  // namespace
}  // namespace kiln
