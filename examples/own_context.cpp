// A program with an OpenGL context of its own: Kiln adopts the context, and the program goes on using OpenGL as it
// always did. Only where it compiled shaders, it now asks the cache.
#include <array>
#include <iostream>
#include <stdexcept>

#include <epoxy/egl.h>
#include <epoxy/gl.h>

#include <kiln/cache.hpp>
#include <kiln/opengl.hpp>

constexpr const char* squares = R"(#version 430
layout(local_size_x = 8) in;
layout(std430, binding = 0) writeonly buffer Data { uint data[]; };
void main() { data[gl_GlobalInvocationID.x] = gl_GlobalInvocationID.x * gl_GlobalInvocationID.x; }
)";

class OwnContext {
 public:
  OwnContext() {
    display_ = eglGetPlatformDisplayEXT(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, nullptr);
    if (eglInitialize(display_, nullptr, nullptr) == EGL_FALSE) throw std::runtime_error("no EGL display");
    eglBindAPI(EGL_OPENGL_API);
    constexpr std::array<EGLint, 5> version = {EGL_CONTEXT_MAJOR_VERSION, 4, EGL_CONTEXT_MINOR_VERSION, 3,
                                               EGL_NONE};
    context_ = eglCreateContext(display_, EGL_NO_CONFIG_KHR, EGL_NO_CONTEXT, version.data());
    if (eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, context_) == EGL_FALSE)
      throw std::runtime_error("no OpenGL 4.3");
  }
  ~OwnContext() {
    eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
    eglDestroyContext(display_, context_);
    eglTerminate(display_);
  }
  OwnContext(const OwnContext&) = delete;
  OwnContext& operator=(const OwnContext&) = delete;

 private:
  EGLDisplay display_ = EGL_NO_DISPLAY;
  EGLContext context_ = EGL_NO_CONTEXT;
};

int main() try {
  const OwnContext context;

  auto device = kiln::opengl::adopt_current().value();
  kiln::Cache cache(device);
  kiln::Program program = cache.get(kiln::Request({.name = "squares", .source = squares})).value();

  GLuint buffer = 0;
  glGenBuffers(1, &buffer);
  glBindBufferBase(GL_SHADER_STORAGE_BUFFER, 0, buffer);
  std::array<GLuint, 8> numbers = {};
  glBufferData(GL_SHADER_STORAGE_BUFFER, sizeof numbers, nullptr, GL_STREAM_READ);
  glUseProgram(program.as<kiln::opengl::Module>().id());
  glDispatchCompute(1, 1, 1);
  glMemoryBarrier(GL_BUFFER_UPDATE_BARRIER_BIT);
  glGetBufferSubData(GL_SHADER_STORAGE_BUFFER, 0, sizeof numbers, numbers.data());
  glDeleteBuffers(1, &buffer);

  for (GLuint number : numbers) std::cout << number << ' ';
  cache.flush();
  std::cout << '\n' << cache.stats().to_line() << '\n';
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
