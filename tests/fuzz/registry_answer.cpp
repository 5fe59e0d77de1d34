#include <algorithm>

#include "base/sha256.hpp"
#include "fuzz/input.hpp"
#include "store/registry.hpp"
#include "store/remote/docker_config.hpp"
#include "store/remote/http_connection.hpp"
#include "store/remote/oci_challenge.hpp"
#include "store/remote/oci_manifest.hpp"
#include "store/remote/oci_refusal.hpp"

/// What a registry sends, the configuration of Docker, and the URL.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  const std::string_view text = fuzz::Input(data, size).rest();
  const auto url = store::parse_registry_url("oci://127.0.0.1:5000/team/app:v1").value();
  const auto is_printable = [](const std::string& message) {
    return std::ranges::all_of(message, [](char c) { return c >= ' ' && c <= '~'; });
  };

  const auto manifest = store::parse_bundle_manifest(text);
  fuzz::expect(!manifest || (manifest->size > 0 && text.find(manifest->digest.hex()) != std::string_view::npos),
               "the digest is in the manifest");
  fuzz::expect(manifest.ok() || is_printable(manifest.error().message()), "a message has no control characters");

  std::size_t bytes = 0;
  for (const auto& challenge : store::parse_challenges(text)) {
    fuzz::expect(!challenge.scheme.empty(), "a challenge has a scheme");
    bytes += challenge.scheme.size();
    for (const auto& [name, value] : challenge.parameters) bytes += name.size() + value.size();
  }
  fuzz::expect(bytes <= text.size(), "challenges are parts of the header");

  const auto credentials = store::find_registry_credentials(text, url);
  if (credentials) {
    const std::string all = credentials->user + credentials->password + credentials->identity_token;
    fuzz::expect(all.find('\n') == std::string::npos && all.find('\r') == std::string::npos,
                 "a credential is one line");
  }

  store::HttpAnswer answer;
  answer.status = 404;
  answer.other_body = std::string(text.substr(0, 64 << 10));
  const auto refusal = store::oci_refusal(answer, store::OciPurpose::to_pull("tag v1"), url, "log in");
  fuzz::expect(is_printable(refusal.message()), "a message has no control characters");

  if (const auto parsed = store::parse_registry_url(text)) {
    fuzz::expect(is_printable(parsed->display()), "a URL has no control characters");
    const auto again = store::parse_registry_url(parsed->display());
    fuzz::expect(again && again->repository == parsed->repository && again->reference() == parsed->reference() &&
                     again->registry == parsed->registry &&
                     (again->is_plain_http == parsed->is_plain_http || !parsed->ca.empty()),
                 "the URL that is shown means the same");
  }
  if (const auto address =
          store::HttpAddress::parse("http://127.0.0.1:5000/v2/").value().resolve(std::string(text)))
    fuzz::expect(is_printable(address->origin) || !address->origin.empty(), "an address has an origin");
  return 0;
}
