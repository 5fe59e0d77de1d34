#pragma once

#include <memory>
#include <utility>

#include <kiln/cache.hpp>

#include "base/file_system.hpp"

namespace kiln::fakes {

/// A cache that uses the given file system for its disk level. The file system must outlive the cache.
inline std::unique_ptr<Cache> cache_on(const base::FileSystem& system, std::shared_ptr<Backend> backend,
                                       CacheOptions options) {
  const base::ScopedFileSystem in_use(system);
  return std::make_unique<Cache>(std::move(backend), std::move(options));
}

}  // namespace kiln::fakes
