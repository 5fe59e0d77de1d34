// opengl_before.cpp with Kiln: the program keeps its context, buffers and shader source. Kiln replaces the compiler
// calls, glUniform, glBindBufferBase and glDispatchCompute.
#include <iostream>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/opengl.hpp>

#include "opengl_context.hpp"

const char* source = R"(#version 430
layout(local_size_x = 64) in;
uniform int n;
uniform float a;
layout(std430, binding = 0) readonly buffer X { float x[]; };
layout(std430, binding = 1) buffer Y { float y[]; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i < n) y[i] += a * x[i];
}
)";

GLuint buffer_of(const std::vector<float>& numbers) {
  GLuint buffer = 0;
  glGenBuffers(1, &buffer);
  glBindBuffer(GL_SHADER_STORAGE_BUFFER, buffer);
  glBufferData(GL_SHADER_STORAGE_BUFFER, static_cast<GLsizeiptr>(numbers.size() * sizeof(float)), numbers.data(),
               GL_DYNAMIC_COPY);
  return buffer;
}

int main() try {
  const Context context;
  if (!context.is_current()) return 77;

  const int n = 1000;
  const GLuint x = buffer_of(std::vector<float>(n, 2.0F));
  const GLuint y = buffer_of(std::vector<float>(n, 1.0F));
  std::vector<float> result(n);
  {
    auto device = kiln::opengl::adopt_current().value();
    kiln::Cache cache(device);
    // Links once; later processes load the program binary. Errors have the compiler's log.
    kiln::Program program = cache.get(kiln::Request({.name = "saxpy", .source = source})).value();

    // A launch without all uniforms and buffers is an error. The bindings of the context are restored after it.
    auto stream = kiln::opengl::stream(*device).value();
    auto wrapped_x = kiln::opengl::wrap(*device, x).value();
    auto wrapped_y = kiln::opengl::wrap(*device, y).value();
    program["main"](*stream, {16}, wrapped_x, wrapped_y, kiln::named("n", n), kiln::named("a", 3.0F)).value();

    glBindBuffer(GL_SHADER_STORAGE_BUFFER, y);
    glGetBufferSubData(GL_SHADER_STORAGE_BUFFER, 0, n * sizeof(float), result.data());
    std::cout << result[0] << ' ' << result[n - 1] << '\n';
  }
  glDeleteBuffers(1, &x);
  glDeleteBuffers(1, &y);
  return result[0] == 7 && result[n - 1] == 7 ? 0 : 1;
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
