#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>

#include "store/registry.hpp"
#include "store/store_url.hpp"

/// Moves whole bundles between files and registries or shared stores.
namespace kiln::store {

/// The folder of bundles in a shared store.
inline constexpr const char* bundles_folder = "bundles";

/// Where a bundle is kept. A value. Contains secrets: use display() in messages.
struct BundlePlace {
  std::variant<RegistryUrl, StoreUrl> url = {};
  /// Of the object in a shared store; empty for a registry.
  std::string name = {};

  /// Parses the URL of a registry or of a shared store. `name` is that of the object, for stores. Fails with
  /// invalid_request.
  static Result<BundlePlace> parse(std::string_view url, const std::string& name);

  bool is_registry() const noexcept { return std::holds_alternative<RegistryUrl>(url); }
  std::string object_path() const { return std::string(bundles_folder) + "/" + name; }
  /// Without user, password and options.
  std::string display() const;
};

struct TransferredBundle {
  /// SHA-256 of the file.
  Digest digest = {};
  std::uint64_t size = 0;
  /// Of the manifest in a registry.
  std::optional<Digest> manifest = {};
  /// How many of its bytes were transferred; the rest was there.
  std::uint64_t transferred = 0;
};

/// How a transfer runs.
struct BundleTransfer {
  /// A transfer ends with cancelled once this descriptor becomes readable.
  int interrupted = -1;
  /// Called with how many of the bytes are there.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
};

/// Copies a bundle to its place. Fails with damaged if the file is no undamaged bundle.
Result<TransferredBundle> push_bundle(const std::filesystem::path& file, const BundlePlace& place,
                                      const BundleTransfer& transfer);

/// Copies a bundle from its place to a file beside `file`, with ".part" behind its name, and renames it once it is
/// complete, checked and synced. If the transfer from a registry ends early, the unfinished file stays, and the
/// next pull goes on with it. Signatures are checked when the bundle is used, not here.
Result<TransferredBundle> pull_bundle(const BundlePlace& place, const std::filesystem::path& file,
                                      const BundleTransfer& transfer);

}  // namespace kiln::store
