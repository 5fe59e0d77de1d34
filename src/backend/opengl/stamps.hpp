#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <epoxy/gl.h>

namespace kiln::opengl {

/// Timestamps that the device writes among its work, in query objects that grow in number and are kept. Used, but
/// not destroyed, in one context.
class Stamps {
 public:
  /// Begins anew; the device writes none of them any more.
  void reset() noexcept { count_ = 0; }
  /// Has the device write down when all the work before has ended.
  void write();
  std::size_t count() const noexcept { return count_; }
  /// All of them, after the work has ended.
  std::vector<std::uint64_t> read() const;
  /// Deletes the query objects.
  void clear();

 private:
  std::vector<GLuint> queries_;
  std::size_t count_ = 0;
};

}  // namespace kiln::opengl
