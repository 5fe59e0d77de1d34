#include "backend/opengl/staging.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "backend/opengl/egl.hpp"
#include "base/try.hpp"

namespace kiln::opengl {
namespace {

void copy(GLuint from, std::size_t from_offset, GLuint to, std::size_t to_offset, std::size_t bytes) {
  const BufferBinding source(GL_COPY_READ_BUFFER, GL_COPY_READ_BUFFER_BINDING);
  const BufferBinding target(GL_COPY_WRITE_BUFFER, GL_COPY_WRITE_BUFFER_BINDING);
  source.bind(from);
  target.bind(to);
  glCopyBufferSubData(GL_COPY_READ_BUFFER, GL_COPY_WRITE_BUFFER, static_cast<GLintptr>(from_offset),
                      static_cast<GLintptr>(to_offset), static_cast<GLsizeiptr>(bytes));
}

}  // namespace

std::optional<std::size_t> size_of_buffer(GLuint id) {
  if (glIsBuffer(id) != GL_TRUE) return std::nullopt;
  const BufferBinding binding(GL_COPY_WRITE_BUFFER, GL_COPY_WRITE_BUFFER_BINDING);
  binding.bind(id);
  GLint64 size = 0;
  glGetBufferParameteri64v(GL_COPY_WRITE_BUFFER, GL_BUFFER_SIZE, &size);
  return static_cast<std::size_t>(std::max<GLint64>(size, 0));
}

Result<void> GlBuffer::check() const {
  if (owner_ == Owner::kiln) return {};
  const auto size = size_of_buffer(id_);
  if (!size) return Error(ErrorCode::invalid_request, fmt::format("the wrapped buffer {} has been deleted", id_));
  if (*size != size_)
    return Error(
        ErrorCode::invalid_request,
        fmt::format("the wrapped buffer {} has {} bytes now, and had {}; wrap it again", id_, *size, size_));
  return {};
}

Staging::Kind Staging::best() {
  return epoxy_gl_version() >= 44 || epoxy_has_gl_extension("GL_ARB_buffer_storage") ? Kind::mapped : Kind::copied;
}

void Staging::free() noexcept {
  // Deletion also unmaps the buffer.
  if (id_ != 0) group_->delete_buffer(std::exchange(id_, 0));
  bytes_ = {};
}

Result<void> Staging::allocate(std::size_t bytes) {
  const std::string doing = fmt::format("allocating {} bytes of staging memory", bytes);
  free();
  if (bytes > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()))
    return Error(ErrorCode::out_of_memory,
                 fmt::format("cannot allocate {} bytes of staging memory: no device has that much", bytes));
  const auto size = static_cast<GLsizeiptr>(backend::allocated_bytes(bytes));
  const BufferBinding binding(GL_COPY_WRITE_BUFFER, GL_COPY_WRITE_BUFFER_BINDING);
  glGenBuffers(1, &id_);
  binding.bind(id_);
  if (kind_ == Kind::mapped) {
    constexpr GLbitfield access = GL_MAP_READ_BIT | GL_MAP_WRITE_BIT | GL_MAP_PERSISTENT_BIT | GL_MAP_COHERENT_BIT;
    // Prefer host memory: the host accesses every byte, the device copies it once.
    glBufferStorage(GL_COPY_WRITE_BUFFER, size, nullptr, access | GL_CLIENT_STORAGE_BIT);
    KILN_TRY(check_gl(doing));
    auto* address = static_cast<std::byte*>(glMapBufferRange(GL_COPY_WRITE_BUFFER, 0, size, access));
    KILN_TRY(check_gl(doing));
    if (address == nullptr) return gl_error(GL_OUT_OF_MEMORY, doing);
    bytes_ = {address, bytes};
    return {};
  }
  glBufferData(GL_COPY_WRITE_BUFFER, size, nullptr, GL_STREAM_READ);
  KILN_TRY(check_gl(doing));
  copied_.resize(bytes);
  bytes_ = copied_;
  return {};
}

void Staging::upload(GLuint to, std::size_t offset, std::size_t staged, std::size_t bytes) {
  if (kind_ == Kind::copied) {
    const bool newer = std::any_of(downloaded_.begin(), downloaded_.end(), [&](const Range& range) {
      return range.begin < staged + bytes && staged < range.end;
    });
    if (newer) collect();
    const BufferBinding binding(GL_COPY_WRITE_BUFFER, GL_COPY_WRITE_BUFFER_BINDING);
    binding.bind(id_);
    glBufferSubData(GL_COPY_WRITE_BUFFER, static_cast<GLintptr>(staged), static_cast<GLsizeiptr>(bytes),
                    bytes_.data() + staged);
  }
  copy(id_, staged, to, offset, bytes);
}

void Staging::download(GLuint from, std::size_t offset, std::size_t staged, std::size_t bytes) {
  copy(from, offset, id_, staged, bytes);
  if (kind_ == Kind::copied) downloaded_.push_back({staged, staged + bytes});
}

void Staging::collect() {
  if (downloaded_.empty()) return;
  const BufferBinding binding(GL_COPY_WRITE_BUFFER, GL_COPY_WRITE_BUFFER_BINDING);
  binding.bind(id_);
  for (const Range& range : std::exchange(downloaded_, {}))
    glGetBufferSubData(GL_COPY_WRITE_BUFFER, static_cast<GLintptr>(range.begin),
                       static_cast<GLsizeiptr>(range.end - range.begin), bytes_.data() + range.begin);
}

}  // namespace kiln::opengl
