#pragma once

#include <vector>

#include <epoxy/gl.h>

#include "backend/opengl/reflection.hpp"

namespace kiln::opengl {

/// The bindings that a launch changes in the current context. The destructor restores those of the caller's
/// context, and unbinds everything in other contexts: an object that is bound in an idle context would survive its
/// deletion.
class LaunchBindings {
 public:
  enum class Context { callers, own };

  explicit LaunchBindings(Context context);
  ~LaunchBindings();
  LaunchBindings(const LaunchBindings&) = delete;
  LaunchBindings& operator=(const LaunchBindings&) = delete;

  /// Each of these is called before the binding changes. `target` is that of a buffer, as in
  /// GL_SHADER_STORAGE_BUFFER.
  void save_buffer(GLenum target, GLuint index);
  void save_image(GLuint unit);
  /// Makes the unit active too.
  void save_texture(GLuint unit, TextureTarget target);

 private:
  struct Range {
    GLenum target = 0;
    GLuint index = 0;
    GLint buffer = 0;
    GLint64 start = 0;
    GLint64 size = 0;
  };
  struct Image {
    GLuint unit = 0;
    GLint texture = 0;
    GLint level = 0;
    GLint layered = GL_FALSE;
    GLint layer = 0;
    GLint access = GL_READ_ONLY;
    GLint format = GL_R32UI;
  };
  struct Texture {
    GLuint unit = 0;
    GLenum target = 0;
    GLint texture = 0;
    GLint sampler = 0;
  };
  /// The targets of buffers that have a binding without an index, which changes with the others.
  struct Target {
    GLenum target = 0;
    GLint buffer = 0;
  };

  bool is_callers() const noexcept { return context_ == Context::callers; }

  const Context context_;
  GLint program_ = 0;
  GLint active_unit_ = GL_TEXTURE0;
  std::vector<Target> targets_;
  std::vector<Range> ranges_;
  std::vector<Image> images_;
  std::vector<Texture> textures_;
};

}  // namespace kiln::opengl
