#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/opengl/share_group.hpp"

namespace kiln::opengl {

/// Memory of the host that the device copies from and to. All but the destructor with a context of the group
/// current.
class Staging {
 public:
  /// Whether the device copies it itself; where OpenGL is too old for that, the driver does on the caller's thread.
  enum class Kind { mapped, copied };
  /// The better of what the context that is current can do.
  static Kind best();

  Staging(std::shared_ptr<ShareGroup> group, Kind kind) noexcept : group_(std::move(group)), kind_(kind) {}
  ~Staging() { free(); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Makes it another one, of so many bytes. The device uses it no more.
  Result<void> allocate(std::size_t bytes);
  std::span<std::byte> bytes() const noexcept { return bytes_; }

  /// Each has the device copy between `staged` and a buffer, in the order of its other work; both have the bytes.
  void upload(GLuint to, std::size_t offset, std::size_t staged, std::size_t bytes);
  void download(GLuint from, std::size_t offset, std::size_t staged, std::size_t bytes);
  /// Lets the host see what was downloaded; the work has ended, or is waited for.
  void collect();

 private:
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  void free() noexcept;

  const std::shared_ptr<ShareGroup> group_;
  const Kind kind_;
  GLuint id_ = 0;
  std::span<std::byte> bytes_;
  // The memory where it is not mapped, and what of it the buffer knows better.
  std::vector<std::byte> copied_;
  std::vector<Range> downloaded_;
};

}  // namespace kiln::opengl
