#include "key/identity.hpp"

#include "base/bytes.hpp"
#include "base/sha256.hpp"

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

std::string key::file_name_part(std::string_view text, std::size_t max) {
  std::string part;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       (c == '.' && !part.empty());
    if (plain) {
      part += c;
    } else if (c == '_' || (!part.empty() && part.back() != '_')) {
      part += '_';
    }
    if (part.size() == max) break;
  }
  while (part.size() > 1 && part.back() == '_') part.pop_back();
  return part.empty() ? "program" : part;
}

std::string key::folder_name(const Identity& identity, const Digest& digest) {
  const std::string readable = identity.vendor.empty() ? identity.device : identity.vendor + " " + identity.device;
  return file_name_part(readable, 80) + "-" + digest.hex(16);
}

}  // namespace kiln
