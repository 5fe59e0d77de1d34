#include "backend/opengl/stamps.hpp"

namespace kiln::opengl {

void Stamps::write() {
  if (count_ == queries_.size()) {
    queries_.push_back(0);
    glGenQueries(1, &queries_.back());
  }
  glQueryCounter(queries_[count_++], GL_TIMESTAMP);
}

std::vector<std::uint64_t> Stamps::read() const {
  std::vector<std::uint64_t> stamps(count_);
  for (std::size_t i = 0; i < count_; ++i) {
    GLuint64 stamp = 0;
    glGetQueryObjectui64v(queries_[i], GL_QUERY_RESULT, &stamp);
    stamps[i] = stamp;
  }
  return stamps;
}

void Stamps::clear() {
  glDeleteQueries(static_cast<GLsizei>(queries_.size()), queries_.data());
  queries_.clear();
  count_ = 0;
}

}  // namespace kiln::opengl
