// A program that uses OpenGL alone. opengl_after.cpp is the same program with Kiln.
#include <iostream>
#include <string>
#include <vector>

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

int main() {
  const Context context;
  if (!context.is_current()) return 77;

  // Compiles and links in every process.
  const GLuint shader = glCreateShader(GL_COMPUTE_SHADER);
  glShaderSource(shader, 1, &source, nullptr);
  glCompileShader(shader);
  const GLuint program = glCreateProgram();
  glAttachShader(program, shader);
  glLinkProgram(program);
  GLint linked = 0;
  glGetProgramiv(program, GL_LINK_STATUS, &linked);
  if (linked != GL_TRUE) {
    std::string log(10000, '\0');
    glGetShaderInfoLog(shader, 10000, nullptr, log.data());
    std::cerr << log;
    return 1;
  }
  glDeleteShader(shader);

  const int n = 1000;
  const GLuint x = buffer_of(std::vector<float>(n, 2.0F));
  const GLuint y = buffer_of(std::vector<float>(n, 1.0F));

  // A uniform or a buffer that is forgotten here gives wrong results without an error.
  glUseProgram(program);
  glUniform1i(glGetUniformLocation(program, "n"), n);
  glUniform1f(glGetUniformLocation(program, "a"), 3.0F);
  glBindBufferBase(GL_SHADER_STORAGE_BUFFER, 0, x);
  glBindBufferBase(GL_SHADER_STORAGE_BUFFER, 1, y);
  glDispatchCompute(16, 1, 1);
  glMemoryBarrier(GL_BUFFER_UPDATE_BARRIER_BIT);

  std::vector<float> result(n);
  glBindBuffer(GL_SHADER_STORAGE_BUFFER, y);
  glGetBufferSubData(GL_SHADER_STORAGE_BUFFER, 0, n * sizeof(float), result.data());
  std::cout << result[0] << ' ' << result[n - 1] << '\n';

  glDeleteBuffers(1, &x);
  glDeleteBuffers(1, &y);
  glDeleteProgram(program);
  return result[0] == 7 && result[n - 1] == 7 ? 0 : 1;
}
