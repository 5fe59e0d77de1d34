// An application with an OpenGL context of its own: Kiln adopts it, and only where the application compiled
// shaders, it now asks the cache.
#include <array>
#include <iostream>

#include <epoxy/egl.h>
#include <epoxy/gl.h>

#include <kiln/cache.hpp>
#include <kiln/opengl.hpp>

constexpr const char* squares = R"(#version 430
layout(local_size_x = 8) in;
layout(std430, binding = 0) writeonly buffer Data { uint data[]; };
void main() { data[gl_GlobalInvocationID.x] = gl_GlobalInvocationID.x * gl_GlobalInvocationID.x; }
)";

int main() try {
  EGLDisplay display = eglGetPlatformDisplayEXT(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, nullptr);
  if (eglInitialize(display, nullptr, nullptr) == EGL_FALSE) return 77;
  eglBindAPI(EGL_OPENGL_API);
  constexpr std::array<EGLint, 5> version = {EGL_CONTEXT_MAJOR_VERSION, 4, EGL_CONTEXT_MINOR_VERSION, 3, EGL_NONE};
  EGLContext context = eglCreateContext(display, EGL_NO_CONFIG_KHR, EGL_NO_CONTEXT, version.data());
  eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, context);

  kiln::Cache cache(kiln::opengl::adopt_current().value());
  kiln::Program program = cache.get(kiln::Request({.name = "squares", .source = squares})).value();
  GLuint buffer = 0;
  glGenBuffers(1, &buffer);
  glBindBufferBase(GL_SHADER_STORAGE_BUFFER, 0, buffer);
  std::array<GLuint, 8> numbers = {};
  glBufferData(GL_SHADER_STORAGE_BUFFER, sizeof numbers, nullptr, GL_STREAM_READ);
  glUseProgram(program.as<kiln::opengl::Module>().id());
  glDispatchCompute(1, 1, 1);
  glGetBufferSubData(GL_SHADER_STORAGE_BUFFER, 0, sizeof numbers, numbers.data());
  for (GLuint number : numbers) std::cout << number << ' ';
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
