#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/sha256.hpp"
#include "base/try.hpp"
#include "store/bundle.hpp"
#include "store/bundle_layout.hpp"
#include "store/unfinished_bundle.hpp"

namespace kiln::store {

Result<void> sign_bundle(const BundleFile& bundle, std::span<const SigningKey> keys, int interrupted) {
  const auto refused = [&bundle](ErrorCode code, std::string_view why) {
    return Error(code, fmt::format("the bundle {} is not signed: {}", bundle.name(), why));
  };
  // A link keeps leading to the bundle.
  std::error_code error;
  const auto path = std::filesystem::canonical(bundle.name(), error);
  if (error) return refused(ErrorCode::io, error.message());
  constexpr mode_t permissions = 0777;
  auto copy = KILN_TRY(UnfinishedBundle::create(path, bundle.status().st_mode & permissions, interrupted));
  const BundleHeader& header = bundle.header();
  // The header and the index are those in memory, so what is signed is what the caller checked.
  KILN_TRY(copy.add(header.to_bytes()));
  KILN_TRY(bundle.read_contents([&copy](std::span<const std::byte> piece) { return copy.add(piece); }));
  if (base::sha256(bundle.index()) != header.index_digest)
    return refused(ErrorCode::damaged, "its index does not have the SHA-256 of its header");
  KILN_TRY(copy.add(bundle.index()));
  KILN_TRY(copy.sign(bundle.signatures(), keys, header.index_digest));
  copy.set_mode(bundle.status().st_mode & permissions);
  if (!KILN_TRY(copy.replaces(bundle.status())))
    return refused(ErrorCode::io, "the file was replaced after it was opened; sign it again");
  return copy.finish(header);
}

}  // namespace kiln::store
