#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <kiln/kernels/kernels.hpp>

namespace kiln::bench {

/// A conv2d of the library's, with a batch of images that are uploaded and results that are downloaded.
struct Convolution {
  std::int64_t images = 1;
  std::int64_t channels = 1;
  std::int64_t size = 1;
  std::int64_t filters = 1;
  int extent = 3;

  /// As in "4x16x128_16x3".
  std::string name() const;
  Shape input() const { return {images, channels, size, size}; }
  Shape output() const { return {images, filters, size, size}; }
  std::size_t input_count() const { return static_cast<std::size_t>(count_of(input())); }
  std::size_t output_count() const { return static_cast<std::size_t>(count_of(output())); }

  /// The one step of it, on memory 0 (the images), 1 (the filters) and 2 (the results), and the filters.
  struct Work {
    Step step;
    std::shared_ptr<Buffer> filters;
  };
  Work work(const std::shared_ptr<Device>& device) const;
};

}  // namespace kiln::bench
