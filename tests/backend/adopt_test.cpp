#include <thread>

#include <epoxy/egl.h>
#include <epoxy/gl.h>

#include "backend/gl_fixture.hpp"
#include "backend/opengl/egl.hpp"

namespace kiln {
namespace {

using fakes::scale;

/// A context of the caller's own, made without Kiln.
class AdoptTest : public fakes::GlTest {
 protected:
  void SetUp() override {
    GlTest::SetUp();
    display_ = opengl::list_displays().value().front().display;
    eglBindAPI(EGL_OPENGL_API);
    const EGLint attributes[] = {EGL_CONTEXT_MAJOR_VERSION, 4, EGL_CONTEXT_MINOR_VERSION, 3, EGL_NONE};
    context_ = eglCreateContext(display_, nullptr, EGL_NO_CONTEXT, attributes);
    ASSERT_NE(context_, EGL_NO_CONTEXT);
    make_mine_current();
  }
  void TearDown() override {
    release();
    eglDestroyContext(display_, context_);
  }
  void make_mine_current() { ASSERT_TRUE(eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, context_)); }
  void release() { eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT); }

  EGLDisplay display_ = EGL_NO_DISPLAY;
  EGLContext context_ = EGL_NO_CONTEXT;
};

TEST_F(AdoptTest, WithoutAContextItSaysWhatToDo) {
  release();
  const auto result = opengl::adopt_current(book_.log());
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message().find("make yours current"), std::string::npos);
}

TEST_F(AdoptTest, ProgramsCanBeUsedInTheCallersContext) {
  const auto device = opengl::adopt_current(book_.log()).value();
  Cache cache(device, options());
  const Program program = cache.get(scale(4)).value();
  const GLuint id = program.as<opengl::Module>().id();
  EXPECT_EQ(glIsProgram(id), GL_TRUE);
  glUseProgram(id);
  EXPECT_EQ(glGetError(), static_cast<GLenum>(GL_NO_ERROR));
  EXPECT_EQ(eglGetCurrentContext(), context_);
}

TEST_F(AdoptTest, OtherThreadsJoinTheShareGroup) {
  const auto device = opengl::adopt_current(book_.log()).value();
  EXPECT_TRUE(device->usable_from_any_thread());
  Cache cache(device, options());
  Program program;
  std::thread([&] {
    program = cache.get(scale(4)).value();
    EXPECT_TRUE(scales(*device, program.module(), 4, 1));
  }).join();
  EXPECT_EQ(glIsProgram(program.as<opengl::Module>().id()), GL_TRUE);
  EXPECT_TRUE(scales(*device, program.module(), 4, 2));
}

TEST_F(AdoptTest, BuffersCanBeUsedInTheCallersContext) {
  const auto device = opengl::adopt_current(book_.log()).value();
  const auto buffer = upload(*device, std::vector<std::uint32_t>{7}).value();
  glBindBuffer(GL_COPY_READ_BUFFER, opengl::memory(*buffer));
  std::uint32_t value = 0;
  glGetBufferSubData(GL_COPY_READ_BUFFER, 0, sizeof value, &value);
  EXPECT_EQ(value, 7U);
  glBindBuffer(GL_COPY_READ_BUFFER, 0);
}

TEST_F(AdoptTest, LaunchesLeaveTheCallersBindingsAsTheyWere) {
  const auto device = opengl::adopt_current(book_.log()).value();
  const Compiled mine = device->compile(scale(1)).value();
  const Compiled compiled = device->compile(scale(4)).value();
  const GLuint id = dynamic_cast<opengl::Module&>(*mine.module).id();
  GLuint buffers[2];
  glGenBuffers(2, buffers);
  glBindBufferBase(GL_SHADER_STORAGE_BUFFER, 0, buffers[0]);
  glBindBufferBase(GL_UNIFORM_BUFFER, 0, buffers[1]);
  glUseProgram(id);
  EXPECT_TRUE(scales(*device, *compiled.module, 4, 2));
  GLint now = 0;
  glGetIntegerv(GL_CURRENT_PROGRAM, &now);
  EXPECT_EQ(static_cast<GLuint>(now), id);
  glGetIntegeri_v(GL_SHADER_STORAGE_BUFFER_BINDING, 0, &now);
  EXPECT_EQ(static_cast<GLuint>(now), buffers[0]);
  glGetIntegeri_v(GL_UNIFORM_BUFFER_BINDING, 0, &now);
  EXPECT_EQ(static_cast<GLuint>(now), buffers[1]);
  glUseProgram(0);
  glDeleteBuffers(2, buffers);
}

TEST_F(AdoptTest, LaunchesLeaveTheCallersImagesTexturesAndCountersAsTheyWere) {
  const auto device = opengl::adopt_current(book_.log()).value();
  const Compiled compiled = device
                                ->compile(Request({.name = "all", .source = R"(#version 430
layout(local_size_x = 1) in;
layout(r32f, binding = 1) uniform readonly image2D image;
layout(binding = 2) uniform sampler2D sampled;
layout(binding = 3) uniform atomic_uint counter;
layout(std140, binding = 4) uniform Block { vec4 numbers; };
uniform float plain;
layout(std430, binding = 5) buffer Out { float result[]; };
void main() {
  atomicCounterIncrement(counter);
  result[0] = imageLoad(image, ivec2(0)).x + texelFetch(sampled, ivec2(0), 0).x + numbers.x + plain;
}
)"}))
                                .value();
  GLuint buffers[3];
  glGenBuffers(3, buffers);
  for (const GLuint buffer : buffers) {
    glBindBuffer(GL_COPY_READ_BUFFER, buffer);
    glBufferData(GL_COPY_READ_BUFFER, 1024, nullptr, GL_DYNAMIC_COPY);
  }
  GLuint textures[2];
  glGenTextures(2, textures);
  const float number = 2;
  for (const GLuint texture : textures) {
    glBindTexture(GL_TEXTURE_2D, texture);
    glTexStorage2D(GL_TEXTURE_2D, 1, GL_R32F, 1, 1);
    glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, 1, 1, GL_RED, GL_FLOAT, &number);
  }
  GLuint samplers[2];
  glGenSamplers(2, samplers);
  glBindBufferRange(GL_ATOMIC_COUNTER_BUFFER, 3, buffers[0], 256, 128);
  glBindBufferRange(GL_UNIFORM_BUFFER, 4, buffers[1], 256, 128);
  glBindBufferRange(GL_SHADER_STORAGE_BUFFER, 5, buffers[2], 256, 128);
  glBindBuffer(GL_ATOMIC_COUNTER_BUFFER, buffers[1]);
  glBindImageTexture(1, textures[0], 0, GL_FALSE, 0, GL_WRITE_ONLY, GL_R32UI);
  glActiveTexture(GL_TEXTURE2);
  glBindTexture(GL_TEXTURE_2D, textures[0]);
  glBindSampler(2, samplers[0]);
  glActiveTexture(GL_TEXTURE7);
  const auto state = [] {
    std::vector<GLint> values;
    const auto add = [&](GLenum name) { glGetIntegerv(name, &values.emplace_back()); };
    const auto add_at = [&](GLenum name, GLuint index) { glGetIntegeri_v(name, index, &values.emplace_back()); };
    for (const GLenum name : {GL_CURRENT_PROGRAM, GL_ACTIVE_TEXTURE, GL_ATOMIC_COUNTER_BUFFER_BINDING,
                              GL_UNIFORM_BUFFER_BINDING, GL_SHADER_STORAGE_BUFFER_BINDING})
      add(name);
    for (const GLenum name :
         {GL_ATOMIC_COUNTER_BUFFER_BINDING, GL_ATOMIC_COUNTER_BUFFER_START, GL_ATOMIC_COUNTER_BUFFER_SIZE})
      add_at(name, 3);
    for (const GLenum name : {GL_UNIFORM_BUFFER_BINDING, GL_UNIFORM_BUFFER_START, GL_UNIFORM_BUFFER_SIZE})
      add_at(name, 4);
    for (const GLenum name :
         {GL_SHADER_STORAGE_BUFFER_BINDING, GL_SHADER_STORAGE_BUFFER_START, GL_SHADER_STORAGE_BUFFER_SIZE})
      add_at(name, 5);
    for (const GLenum name : {GL_IMAGE_BINDING_NAME, GL_IMAGE_BINDING_LEVEL, GL_IMAGE_BINDING_LAYERED,
                              GL_IMAGE_BINDING_ACCESS, GL_IMAGE_BINDING_FORMAT})
      add_at(name, 1);
    glActiveTexture(GL_TEXTURE2);
    add(GL_TEXTURE_BINDING_2D);
    add(GL_SAMPLER_BINDING);
    glActiveTexture(GL_TEXTURE7);
    return values;
  };
  const std::vector<GLint> before = state();
  const auto out = device->allocate(4).value();
  const auto counter = opengl::wrap(*device, buffers[0]).value();
  const Launch launch{.arguments = {bound({5}, *out),
                                    named("image", opengl::image(textures[1], GL_R32F, GL_READ_ONLY)),
                                    named("sampled", opengl::texture(textures[1], GL_TEXTURE_2D, samplers[1])),
                                    named("counter", *counter), named("Block", std::array{30.0F, 0.0F, 0.0F, 0.0F}),
                                    named("plain", 100.0F)}};
  ASSERT_TRUE(device->launch(*compiled.module, launch));
  EXPECT_EQ(state(), before);
  EXPECT_EQ(download<float>(*device, *out).value()[0], 134);
  auto slot = device->open_slot().value();
  slot->launch(*compiled.module, launch).value();
  slot->submit().value();
  slot->wait().value();
  EXPECT_EQ(state(), before);
  EXPECT_EQ(glGetError(), static_cast<GLenum>(GL_NO_ERROR));
  glDeleteSamplers(2, samplers);
  glDeleteTextures(2, textures);
  glDeleteBuffers(3, buffers);
}

TEST_F(AdoptTest, DeletingAProgramLeavesTheCallersProgramInUse) {
  const auto device = opengl::adopt_current(book_.log()).value();
  const Compiled mine = device->compile(scale(1)).value();
  Compiled compiled = device->compile(scale(4)).value();
  EXPECT_TRUE(scales(*device, *compiled.module, 4, 2));
  const GLuint id = dynamic_cast<opengl::Module&>(*mine.module).id();
  glUseProgram(id);
  compiled.module.reset();
  GLint now = 0;
  glGetIntegerv(GL_CURRENT_PROGRAM, &now);
  EXPECT_EQ(static_cast<GLuint>(now), id);
  glUseProgram(0);
}

TEST_F(AdoptTest, TheCallerDispatchesWhileOtherProgramsAreDestroyed) {
  const auto device = opengl::adopt_current(book_.log()).value();
  dispatch_while_others_are_destroyed(*device);
}

TEST_F(AdoptTest, NothingOfKilnsStaysInTheCallersContext) {
  for (const bool share : {true, false}) {
    auto device = opengl::adopt_current(book_.log(), share).value();
    Compiled first = device->compile(scale(4)).value();
    Compiled second = device->compile(scale(5)).value();
    EXPECT_TRUE(scales(*device, *first.module, 4, 2));
    first.module.reset();
    EXPECT_TRUE(scales(*device, *second.module, 5, 2));
    // This context holds on to it, or is the only one.
    std::thread([&] { second.module.reset(); }).join();
    device.reset();
    for (GLuint id = 1; id < 100; ++id) EXPECT_EQ(glIsProgram(id), GL_FALSE) << id;
  }
}

TEST_F(AdoptTest, AnUnsharedContextServesOnlyTheThreadsThatHaveIt) {
  const auto device = opengl::adopt_current(book_.log(), false).value();
  EXPECT_FALSE(device->usable_from_any_thread());
  Cache cache(device, options());
  Program program = cache.get(scale(4)).value();
  EXPECT_TRUE(scales(*device, program.module(), 4, 0));
  EXPECT_TRUE(cache.get_async(scale(5)).get()) << "done on this thread instead";
  const GLuint id = program.as<opengl::Module>().id();
  std::thread([&] {
    const auto result = cache.get(scale(6));
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message().find("not current"), std::string::npos);
    // Destroyed where the context is not: deleted when it is next used.
    program = {};
    cache.trim();
  }).join();
  EXPECT_EQ(glIsProgram(id), GL_TRUE);
  EXPECT_TRUE(device->allocate(4));
  EXPECT_EQ(glIsProgram(id), GL_FALSE);
}

TEST_F(AdoptTest, AContextThatIsToldOfResetsIsJoinedLikeAnyOther) {
  const EGLint attributes[] = {EGL_CONTEXT_MAJOR_VERSION,
                               4,
                               EGL_CONTEXT_MINOR_VERSION,
                               3,
                               EGL_CONTEXT_OPENGL_RESET_NOTIFICATION_STRATEGY,
                               EGL_LOSE_CONTEXT_ON_RESET,
                               EGL_NONE};
  const EGLContext told = eglCreateContext(display_, nullptr, EGL_NO_CONTEXT, attributes);
  if (told == EGL_NO_CONTEXT) GTEST_SKIP() << "the driver tells of no resets";
  ASSERT_TRUE(eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, told));
  {
    const auto device = opengl::adopt_current(book_.log()).value();
    const Compiled compiled = device->compile(scale(4)).value();
    std::thread([&] { EXPECT_TRUE(scales(*device, *compiled.module, 4, 1)); }).join();
  }
  release();
  eglDestroyContext(display_, told);
}

TEST_F(AdoptTest, AnotherContextThatWasCurrentIsSoAgainAfterEveryCall) {
  const Compiled compiled = device_->compile(scale(4)).value();
  EXPECT_TRUE(scales(*device_, *compiled.module, 4, 2));
  EXPECT_EQ(eglGetCurrentContext(), context_);
  {
    const auto current = opengl::make_current(*device_).value();
    EXPECT_NE(eglGetCurrentContext(), context_);
    const EGLContext lent = eglGetCurrentContext();
    EXPECT_TRUE(scales(*device_, *compiled.module, 4, 2));
    EXPECT_EQ(eglGetCurrentContext(), lent);
  }
  EXPECT_EQ(eglGetCurrentContext(), context_);
}

TEST_F(AdoptTest, SlotsLeaveAnotherContextThatIsCurrentToItsOwner) {
  const Compiled compiled = device_->compile(scale(4)).value();
  auto first = device_->open_slot().value();
  auto second = device_->open_slot().value();
  EXPECT_EQ(eglGetCurrentContext(), context_);
  EXPECT_TRUE(scales_in(*first, *device_, *compiled.module, 4, 1));
  EXPECT_TRUE(scales_in(*second, *device_, *compiled.module, 4, 2));
  first.reset();
  EXPECT_TRUE(scales_in(*second, *device_, *compiled.module, 4, 3));
  EXPECT_EQ(eglGetCurrentContext(), context_);
  release();
  EXPECT_TRUE(scales_in(*second, *device_, *compiled.module, 4, 4));
  make_mine_current();
  second.reset();
  EXPECT_EQ(eglGetCurrentContext(), context_);
}

TEST_F(AdoptTest, ASlotThatOutlastsTheCallersWishForNoContextLeavesTheNextOne) {
  release();
  const Compiled compiled = device_->compile(scale(4)).value();
  auto slot = device_->open_slot().value();
  make_mine_current();
  EXPECT_TRUE(scales_in(*slot, *device_, *compiled.module, 4, 1));
  EXPECT_EQ(eglGetCurrentContext(), context_);
  slot.reset();
  EXPECT_EQ(eglGetCurrentContext(), context_);
  std::thread([&] { EXPECT_TRUE(device_->allocate(16)); }).join();
}

TEST_F(AdoptTest, SlotsWorkInTheCallersContextAndLeaveItsBindings) {
  for (const bool share : {true, false}) {
    const auto device = opengl::adopt_current(book_.log(), share).value();
    const Compiled compiled = device->compile(scale(4)).value();
    GLuint buffers[4];
    glGenBuffers(4, buffers);
    glBindBufferBase(GL_SHADER_STORAGE_BUFFER, 0, buffers[0]);
    glBindBufferBase(GL_UNIFORM_BUFFER, 0, buffers[1]);
    glBindBuffer(GL_COPY_READ_BUFFER, buffers[2]);
    glBindBuffer(GL_COPY_WRITE_BUFFER, buffers[3]);
    auto slot = device->open_slot().value();
    EXPECT_TRUE(scales_in(*slot, *device, *compiled.module, 4, 1));
    GLint now = 0;
    glGetIntegeri_v(GL_SHADER_STORAGE_BUFFER_BINDING, 0, &now);
    EXPECT_EQ(static_cast<GLuint>(now), buffers[0]);
    glGetIntegeri_v(GL_UNIFORM_BUFFER_BINDING, 0, &now);
    EXPECT_EQ(static_cast<GLuint>(now), buffers[1]);
    glGetIntegerv(GL_COPY_READ_BUFFER_BINDING, &now);
    EXPECT_EQ(static_cast<GLuint>(now), buffers[2]);
    glGetIntegerv(GL_COPY_WRITE_BUFFER_BINDING, &now);
    EXPECT_EQ(static_cast<GLuint>(now), buffers[3]);
    EXPECT_EQ(eglGetCurrentContext(), context_);
    slot.reset();
    EXPECT_EQ(eglGetCurrentContext(), context_);
    std::thread([&] { EXPECT_EQ(static_cast<bool>(device->open_slot()), share); }).join();
    glDeleteBuffers(4, buffers);
  }
}

TEST_F(AdoptTest, ASlotInAContextThatIsNotCurrentSaysSo) {
  const auto device = opengl::adopt_current(book_.log(), false).value();
  auto slot = device->open_slot().value();
  release();
  const auto result = slot->staging(16);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message().find("not current"), std::string::npos) << result.error().message();
  make_mine_current();
  EXPECT_TRUE(slot->staging(16));
}

TEST_F(AdoptTest, ALentContextIsTakenBackWhereTheCallersSurfaceIsGone) {
  const EGLint wanted[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT, EGL_NONE};
  EGLConfig config = nullptr;
  EGLint count = 0;
  if (eglChooseConfig(display_, wanted, &config, 1, &count) != EGL_TRUE || count == 0)
    GTEST_SKIP() << "the display has no surfaces";
  const EGLint size[] = {EGL_WIDTH, 1, EGL_HEIGHT, 1, EGL_NONE};
  const EGLSurface surface = eglCreatePbufferSurface(display_, config, size);
  ASSERT_TRUE(eglMakeCurrent(display_, surface, surface, context_));
  EGLContext lent = EGL_NO_CONTEXT;
  {
    const auto current = opengl::make_current(*device_).value();
    lent = eglGetCurrentContext();
    eglDestroySurface(display_, surface);
  }
  EXPECT_NE(eglGetCurrentContext(), lent);
  std::thread([&] { EXPECT_TRUE(device_->allocate(16)); }).join();
}

}  // namespace
}  // namespace kiln
