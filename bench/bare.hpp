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
  /// The program of a binary. `module` is any program of the same device with the same arguments, whose native
  /// objects (context, layout) are used.
  static std::unique_ptr<Bare> make(const std::string& api, std::shared_ptr<Module> module, const Binary& binary);

  virtual ~Bare() = default;
  Bare(const Bare&) = delete;
  Bare& operator=(const Bare&) = delete;

  /// What an application would keep in a file.
  std::span<const std::byte> image() const noexcept { return image_; }
  /// Loads what image() gave, up to where it can be launched; false where the driver refuses.
  virtual bool load(std::span<const std::byte> image) = 0;
  /// Drops what load() loaded.
  virtual void unload() = 0;

 protected:
  Bare(std::shared_ptr<Module> module, std::vector<std::byte> image);
  const std::shared_ptr<Module> module_;

 private:
  const std::vector<std::byte> image_;
};

/// Looks up what a launch looks up first, where the API leaves that to the first launch.
void prepare_launch(Module& module);

/// The whole file, in one read; nothing where it cannot be read.
std::vector<std::byte> read_whole(const std::filesystem::path& path);

}  // namespace kiln::bench
