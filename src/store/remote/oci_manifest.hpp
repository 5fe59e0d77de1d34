#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>

#include "store/registry.hpp"

/// Manifests of OCI artifacts that are bundles.
namespace kiln::store {

inline constexpr const char* oci_manifest_type = "application/vnd.oci.image.manifest.v1+json";
/// The types that a registry may answer with, for Accept.
inline constexpr const char* oci_accepted_types =
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, "
    "application/vnd.docker.distribution.manifest.v2+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json";
/// The empty configuration.
inline constexpr std::string_view oci_empty_config = "{}";
inline constexpr std::uint64_t max_manifest_bytes = 4 << 20;

/// The manifest of a bundle. Equal bundles and titles have equal manifests.
std::string make_bundle_manifest(const BundleToPush& bundle);

/// What a manifest or an index says.
struct OciAnswer {
  /// Whether it is an index, which has the digest and the size of the manifest to read.
  bool is_index = false;
  /// Of the file, or of the manifest.
  Digest digest = {};
  std::uint64_t size = 0;
};

/// Parses a manifest, or an index with one bundle. Fails with unsupported if it is for something else, and with
/// damaged. The message is a reason without a subject.
Result<OciAnswer> parse_bundle_manifest(std::string_view text);

}  // namespace kiln::store
