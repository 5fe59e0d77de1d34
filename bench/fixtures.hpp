#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <vector>

#include <kiln/backend.hpp>
#include <kiln/request.hpp>
#include <kiln/store.hpp>

namespace kiln::bench {

/// A folder of one's own among the temporary files, removed with all it holds.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

/// Has OpenGL drivers keep the shader cache of their own in `folder`, which is made; before the driver is opened.
void use_driver_cache(const std::filesystem::path& folder);

/// A backend without a driver, whose programs are empty: what is left is Kiln's own cost.
class EmptyBackend final : public Backend {
 public:
  EmptyBackend();

  const Identity& identity() const noexcept override { return identity_; }
  Result<Compiled> compile(const Request& request) override;
  Result<std::unique_ptr<Module>> load(const Binary& binary) override;

 private:
  Identity identity_;
};

/// The binary that a store keeps for a program.
Binary stored_binary(Store& store, const Identity& identity, const Key& key);

/// `count` requests that differ.
std::vector<Request> made_up_requests(std::size_t count);

}  // namespace kiln::bench
