#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>

/// Bundles in registries of container images (OCI distribution).
namespace kiln::store {

/// The artifactType of a bundle's manifest, and the mediaType of its only layer.
inline constexpr const char* bundle_media_type = "application/vnd.kiln.bundle.v1";

/// The address of a bundle in a registry, as in "oci://registry.example:5000/team/app:v1". A value without secrets.
struct RegistryUrl {
  /// With the port, if there is one.
  std::string registry = {};
  std::string repository = {};
  std::string tag = "latest";
  /// Of a manifest, in place of the tag.
  std::optional<Digest> digest = {};
  bool is_plain_http = false;
  /// A file of certificates; empty: those of the system.
  std::string ca = {};
  /// The longest time in which a transfer may make no progress.
  std::chrono::milliseconds timeout{60'000};

  /// The URL without options.
  std::string display() const;
  /// The tag or the digest, as in paths of the registry.
  std::string reference() const;
};

/// Whether the text begins like the URL of a registry.
bool is_registry_url(std::string_view text);

/// Parses "oci://REGISTRY[:PORT]/REPOSITORY[:TAG|@sha256:DIGEST][?ca=PATH&timeout=TIME]". Registries on this
/// machine use plain HTTP, and others with "oci+http://". Fails with invalid_request.
Result<RegistryUrl> parse_registry_url(std::string_view text);

/// A bundle that a registry has.
struct RegistryBundle {
  Digest manifest = {};
  /// SHA-256 of the file.
  Digest digest = {};
  std::uint64_t size = 0;
};

/// A file to push. It must not change meanwhile.
struct BundleToPush {
  /// SHA-256 of the file.
  Digest digest = {};
  std::uint64_t size = 0;
  /// The name of the file.
  std::string title = {};
  /// Reads bytes at an offset; at least one.
  std::function<Result<std::size_t>(std::uint64_t offset, std::span<std::byte> to)> read = {};
};

struct PushedBundle {
  Digest manifest = {};
  /// Whether the file was sent; the registry may have it.
  bool was_sent = false;
};

/// Takes the bytes of a bundle as they arrive.
class BundleSink {
 public:
  BundleSink() = default;
  BundleSink(const BundleSink&) = delete;
  BundleSink& operator=(const BundleSink&) = delete;
  virtual ~BundleSink() = default;

  /// How many bytes it has.
  virtual std::uint64_t received() const = 0;
  /// Forgets all bytes.
  virtual Result<void> restart() = 0;
  virtual Result<void> write(std::span<const std::byte> bytes) = 0;
};

/// Called with how many bytes of the file are there.
using BundleProgress = std::function<void(std::uint64_t done)>;

/// One repository of a registry. Calls end with cancelled once the descriptor `interrupted` becomes readable, and
/// are repeated if the registry fails. For one thread at a time.
///
/// Errors: denied without permission or with wrong credentials; unsupported if there is no such bundle, if it is
/// something else, if the registry cannot store it, or if it does what the protocol does not permit; damaged if the
/// registry sends other bytes than it announced; io and timed_out. Messages name the registry and the repository,
/// and never contain credentials.
class Registry {
 public:
  Registry() = default;
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;
  virtual ~Registry() = default;

  /// Sends what the registry does not have, and then lets the tag name the bundle.
  virtual Result<PushedBundle> push(const BundleToPush& bundle, int interrupted,
                                    const BundleProgress& progress) = 0;
  /// The bundle that the tag or the digest names.
  virtual Result<RegistryBundle> find(int interrupted) = 0;
  /// Gets the bytes that the sink does not have. Does not compare their digest. An error of the sink is returned.
  virtual Result<void> download(const RegistryBundle& bundle, BundleSink& sink, int interrupted) = 0;
};

}  // namespace kiln::store
