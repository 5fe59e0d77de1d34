#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <epoxy/gl.h>

#include "backend/glsl_arguments.hpp"

/// The inputs of program objects, as the driver lists them. All functions require that a context that has the
/// program is current.
namespace kiln::opengl {

/// How OpenGL takes a resource.
struct Port {
  /// The binding point or unit of the first element. It is the resource's binding, unless several resources of the
  /// program have that one: each then gets its own.
  std::uint32_t unit = 0;
  /// The GLSL type of an image or a texture, as in GL_SAMPLER_2D.
  GLenum type = 0;

  bool operator==(const Port&) const = default;
};

/// A plain uniform, without its name.
struct PlainUniform {
  GLenum type = 0;
  GLint location = 0;
  /// The length of an array; 1 for others.
  GLsizei count = 1;
};

/// Everything that a program takes, and how to give it.
struct ProgramInterface {
  backend::GlslInterface takes = {};
  /// For each of takes.resources.
  std::vector<Port> ports = {};
  /// For each of takes.uniforms.
  std::vector<PlainUniform> uniforms = {};

  /// State of a program object that launches depend on and that the application could change: the units of images
  /// and textures by location, and the binding points of blocks that share theirs with another block.
  struct Unit {
    GLint location = 0;
    GLint unit = 0;
  };
  struct BlockUnit {
    GLenum interface = 0;
    GLuint index = 0;
    GLuint unit = 0;
  };
  std::vector<Unit> units = {};
  std::vector<BlockUnit> block_units = {};

  /// Why the program cannot be launched, as in "the uniform x is …"; empty if it can.
  std::string problem = {};

  /// Whether launches set state of the program object, so that each needs a program object of its own.
  bool sets_state() const noexcept { return !uniforms.empty() || !units.empty() || !block_units.empty(); }
  bool has_inputs() const noexcept {
    return !takes.resources.empty() || takes.parameter_bytes > 0 || !takes.uniforms.empty() || !problem.empty();
  }
  const Port& port_of(const backend::GlslResource& resource) const noexcept {
    static constexpr Port parameters = {};
    if (&resource == &takes.parameters) return parameters;
    return ports[static_cast<std::size_t>(&resource - takes.resources.data())];
  }
};

ProgramInterface read_interface(GLuint program);

/// Sets the units and binding points of a program object that was made from the same binary or shader.
void set_units(GLuint program, const ProgramInterface& interface);
/// Sets a plain uniform to a value of as many elements as it has, or more.
void set_uniform(GLuint program, const PlainUniform& uniform, std::span<const std::byte> value);

/// A texture target, and the query of the texture that a unit has there.
struct TextureTarget {
  GLenum target = 0;
  GLenum binding = 0;
};
/// The target of a sampler or image type; 0 if it is none.
TextureTarget target_of(GLenum type) noexcept;
/// The query for a target; target 0 if there is no such target.
TextureTarget find_target(GLenum target) noexcept;

}  // namespace kiln::opengl
