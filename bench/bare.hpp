#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <kiln/backend.hpp>

namespace kiln::bench {

/// A program as its driver gave it out, and the driver's own calls to take it back: what loading costs without
/// Kiln.
class Bare {
 public:
  /// A program that was compiled with that API, and the binary of it.
  static std::unique_ptr<Bare> make(const std::string& api, std::unique_ptr<Module> module, const Binary& binary);

  virtual ~Bare() = default;
  Bare(const Bare&) = delete;
  Bare& operator=(const Bare&) = delete;

  /// What an application would keep in a file.
  std::span<const std::byte> image() const noexcept { return image_; }
  /// Loads what image() gave; false where the driver refuses.
  virtual bool load(std::span<const std::byte> image) = 0;
  /// Drops what load() loaded.
  virtual void unload() = 0;

 protected:
  Bare(std::unique_ptr<Module> module, std::vector<std::byte> image);
  /// Kept for the driver's objects that loading needs.
  const std::unique_ptr<Module> module_;

 private:
  const std::vector<std::byte> image_;
};

/// The whole file, in one read; nothing where it cannot be read.
std::vector<std::byte> read_whole(const std::filesystem::path& path);

}  // namespace kiln::bench
