#pragma once

#include <memory>

#include <kiln/result.hpp>

#include "store/registry.hpp"

namespace kiln::store {

/// Files up to this size are sent in one request, larger ones in parts of it.
inline constexpr std::uint64_t oci_part_bytes = 64 << 20;

/// A registry as the OCI distribution specification describes it. Fails with invalid_request if the certificates
/// cannot be used. Connects to nothing.
Result<std::unique_ptr<Registry>> make_oci_registry(const RegistryUrl& url,
                                                    std::uint64_t part_bytes = oci_part_bytes);

}  // namespace kiln::store
