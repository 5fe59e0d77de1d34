#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/input.hpp"
#include "store/signatures.hpp"

namespace kiln::fuzz {
namespace {

using store::PublicKey;

void parse(std::string_view text) {
  const auto keys = store::parse_keys(text);
  if (!keys) {
    const std::string& why = keys.error().message();
    expect(keys.error().code() == ErrorCode::invalid_request, "a text that is no list of keys is invalid");
    expect(why.size() < 300, "an error quotes nothing of the text");
    return;
  }
  std::string lines;
  for (const PublicKey& key : *keys) {
    expect(store::is_key_name(key.name), "every key has a valid name");
    lines += store::to_line(key) + '\n';
  }
  const auto again = store::parse_keys(lines);
  expect(again && *again == *keys, "keys are read as they were written");
  const store::TrustList trust(*keys, {});
  expect(trust.keys().size() <= keys->size(), "a list has no more keys than its files");
  expect(store::TrustList(*keys, *keys).keys().empty(), "a revoked key is never trusted");
}

/// An entry with these bytes as its signatures.
void verify(std::span<const std::byte> block) {
  static const std::vector<std::byte> unsigned_entry = store::seal_entry({}, {});
  constexpr std::size_t signature_bytes_at = 56;
  static const store::TrustList trust({store::SigningKey::generate("a").value().public_key(),
                                       store::SigningKey::generate("b").value().public_key()},
                                      {});
  std::vector<std::byte> sealed = unsigned_entry;
  const auto size = static_cast<std::uint32_t>(block.size());
  std::memcpy(sealed.data() + signature_bytes_at, &size, sizeof size);
  sealed.insert(sealed.end(), block.begin(), block.end());
  const auto examined = store::examine_entry(sealed);
  if (!examined) {
    expect(examined.error().code() == ErrorCode::damaged, "malformed signatures are damage");
    return;
  }
  const auto signer = trust.verify(*examined);
  expect(!signer && signer.error().code() == ErrorCode::untrusted, "no signature is valid without its private key");
  expect(signer.error().message().size() < 500, "an error names few signers");
  const auto again = store::with_signatures(sealed, examined->signatures);
  if (again) expect(store::open_entry(*again).ok(), "signatures that were written can be read");
}

}  // namespace
}  // namespace kiln::fuzz

// The first byte says what the rest is: the signatures of an entry if it is a NUL; else it belongs to a text of
// keys.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln::fuzz;
  Input input(data, size);
  if (size > 0 && data[0] == 0) {
    input.number<std::uint8_t>();
    verify(input.rest_bytes());
  } else {
    parse(input.rest());
  }
  return 0;
}
