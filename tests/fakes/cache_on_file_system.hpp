#pragma once

#include <memory>
#include <utility>

#include <kiln/cache.hpp>

#include "base/file_system.hpp"

namespace kiln::fakes {

/// A cache whose disk level is on a file system of the test's own, which must outlive it.
inline std::unique_ptr<Cache> cache_on(const base::FileSystem& system, std::shared_ptr<Backend> backend,
                                       CacheOptions options) {
  const base::ScopedFileSystem in_use(system);
  return std::make_unique<Cache>(std::move(backend), std::move(options));
}

}  // namespace kiln::fakes
