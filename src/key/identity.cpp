#include <kiln/identity.hpp>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "key/file_name.hpp"

namespace kiln {

Digest Identity::digest() const {
  base::ByteWriter writer;
  writer.text("kiln identity");
  writer.number(std::uint32_t{1});
  writer.text(api);
  writer.text(vendor);
  writer.text(device);
  writer.text(driver);
  writer.text(compiler);
  writer.number(static_cast<std::uint64_t>(formats.size()));
  for (const std::uint32_t format : formats) writer.number(format);
  return base::sha256(writer.bytes());
}

Digest Identity::target_digest() const {
  base::ByteWriter writer;
  writer.text("kiln target");
  writer.number(std::uint32_t{1});
  writer.text(api);
  writer.text(vendor);
  writer.text(device);
  writer.text(driver);
  writer.number(static_cast<std::uint64_t>(formats.size()));
  for (const std::uint32_t format : formats) writer.number(format);
  return base::sha256(writer.bytes());
}

std::string Identity::folder() const { return key::folder_name(*this, digest()); }

std::string key::folder_name(const Identity& identity, const Digest& digest) {
  const std::string readable = identity.vendor.empty() ? identity.device : identity.vendor + " " + identity.device;
  return file_name_part(readable, 80) + "-" + digest.hex(16);
}

}  // namespace kiln
