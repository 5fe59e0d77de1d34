#pragma once

#include <memory>
#include <utility>

#include <kiln/cache.hpp>

#include "base/file_system.hpp"

namespace kiln {

/// Makes caches whose disk level is on a file system of one's own, which must outlive them.
class CacheOnFileSystem {
 public:
  static std::unique_ptr<Cache> make(std::shared_ptr<Backend> backend, CacheOptions options,
                                     const base::FileSystem& system) {
    return std::unique_ptr<Cache>(new Cache(std::move(backend), std::move(options), system));
  }
};

}  // namespace kiln
