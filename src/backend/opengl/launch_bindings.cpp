#include "backend/opengl/launch_bindings.hpp"

#include <algorithm>

namespace kiln::opengl {
namespace {

/// The queries of a buffer target: without an index, with one, and of its range.
struct Queries {
  GLenum target = 0;
  GLenum binding = 0;
  GLenum start = 0;
  GLenum size = 0;
};

constexpr Queries queries[] = {
    {GL_SHADER_STORAGE_BUFFER, GL_SHADER_STORAGE_BUFFER_BINDING, GL_SHADER_STORAGE_BUFFER_START,
     GL_SHADER_STORAGE_BUFFER_SIZE},
    {GL_UNIFORM_BUFFER, GL_UNIFORM_BUFFER_BINDING, GL_UNIFORM_BUFFER_START, GL_UNIFORM_BUFFER_SIZE},
    {GL_ATOMIC_COUNTER_BUFFER, GL_ATOMIC_COUNTER_BUFFER_BINDING, GL_ATOMIC_COUNTER_BUFFER_START,
     GL_ATOMIC_COUNTER_BUFFER_SIZE},
};

}  // namespace

LaunchBindings::LaunchBindings(Context context) : context_(context) {
  if (is_callers()) glGetIntegerv(GL_CURRENT_PROGRAM, &program_);
}

void LaunchBindings::save_buffer(GLenum target, GLuint index) {
  Range range{target, index};
  if (is_callers()) {
    const Queries& query = *std::ranges::find(queries, target, &Queries::target);
    if (std::ranges::find(targets_, target, &Target::target) == targets_.end()) {
      targets_.push_back({target});
      glGetIntegerv(query.binding, &targets_.back().buffer);
    }
    glGetIntegeri_v(query.binding, index, &range.buffer);
    glGetInteger64i_v(query.start, index, &range.start);
    glGetInteger64i_v(query.size, index, &range.size);
  }
  ranges_.push_back(range);
}

void LaunchBindings::save_image(GLuint unit) {
  Image image{unit};
  if (is_callers()) {
    glGetIntegeri_v(GL_IMAGE_BINDING_NAME, unit, &image.texture);
    glGetIntegeri_v(GL_IMAGE_BINDING_LEVEL, unit, &image.level);
    glGetIntegeri_v(GL_IMAGE_BINDING_LAYERED, unit, &image.layered);
    glGetIntegeri_v(GL_IMAGE_BINDING_LAYER, unit, &image.layer);
    glGetIntegeri_v(GL_IMAGE_BINDING_ACCESS, unit, &image.access);
    glGetIntegeri_v(GL_IMAGE_BINDING_FORMAT, unit, &image.format);
  }
  images_.push_back(image);
}

void LaunchBindings::save_texture(GLuint unit, TextureTarget target) {
  if (is_callers() && textures_.empty()) glGetIntegerv(GL_ACTIVE_TEXTURE, &active_unit_);
  glActiveTexture(GL_TEXTURE0 + unit);
  Texture texture{unit, target.target};
  if (is_callers()) {
    glGetIntegerv(target.binding, &texture.texture);
    glGetIntegerv(GL_SAMPLER_BINDING, &texture.sampler);
  }
  textures_.push_back(texture);
}

LaunchBindings::~LaunchBindings() {
  glUseProgram(static_cast<GLuint>(program_));
  for (const Range& range : ranges_) {
    if (range.size != 0)
      glBindBufferRange(range.target, range.index, static_cast<GLuint>(range.buffer),
                        static_cast<GLintptr>(range.start), static_cast<GLsizeiptr>(range.size));
    else
      glBindBufferBase(range.target, range.index, static_cast<GLuint>(range.buffer));
  }
  for (const Target& target : targets_) glBindBuffer(target.target, static_cast<GLuint>(target.buffer));
  for (const Image& image : images_)
    glBindImageTexture(image.unit, static_cast<GLuint>(image.texture), image.level,
                       image.layered != 0 ? GL_TRUE : GL_FALSE, image.layer, static_cast<GLenum>(image.access),
                       static_cast<GLenum>(image.format));
  for (const Texture& texture : textures_) {
    glActiveTexture(GL_TEXTURE0 + texture.unit);
    glBindTexture(texture.target, static_cast<GLuint>(texture.texture));
    glBindSampler(texture.unit, static_cast<GLuint>(texture.sampler));
  }
  if (!textures_.empty()) glActiveTexture(static_cast<GLenum>(active_unit_));
}

}  // namespace kiln::opengl
