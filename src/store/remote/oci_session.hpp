#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kiln/result.hpp>

#include "store/object_store.hpp"
#include "store/registry.hpp"
#include "store/remote/docker_config.hpp"
#include "store/remote/http_pool.hpp"
#include "store/remote/oci_challenge.hpp"
#include "store/remote/oci_refusal.hpp"

namespace kiln::store {

/// A request to a registry. Names what the caller owns until the answer is there.
struct OciRequest {
  OciPurpose purpose = {};
  HttpAddress address = {};
  std::span<const std::byte> body = {};
  const HttpSource* source = nullptr;
  const char* content_type = put_content_type;
  std::span<const std::string> headers = {};
  std::uint64_t max_answer_bytes = max_manifest_answer;
  HttpSink* sink = nullptr;

  static constexpr std::uint64_t max_manifest_answer = 4 << 20;
};

/// Requests to one repository. Authenticates when the registry asks for it: with the credentials of the user's
/// configuration, or as nobody. For one thread at a time.
class OciSession {
 public:
  /// The origin of the registry.
  OciSession(RegistryUrl url, HttpAddress registry);

  const RegistryUrl& url() const noexcept { return url_; }
  /// An address below the repository, as in "manifests/v1".
  HttpAddress address(const std::string& path) const;
  /// Reads Location, which may be relative to the address of the request. Fails with unsupported if it is on
  /// another server.
  Result<HttpAddress> location(const HttpAnswer& answer, const HttpAddress& from) const;

  /// The answer, whose status may be any but 401. Follows redirects of GET and HEAD; other servers get no
  /// credentials. The messages of errors are reasons without a subject.
  Result<HttpAnswer> exchange(const OciRequest& request, const CallLimit& limit);
  /// The error for an answer that is not expected.
  Error refusal(const HttpAnswer& answer, const OciPurpose& purpose) const;

 private:
  /// As the registry names it.
  std::string repository() const;
  Result<HttpAnswer> follow(const OciRequest& request, const CallLimit& limit);
  Result<void> authenticate(const HttpAnswer& answer, bool writes, const CallLimit& limit);
  Result<std::string> get_token(const OciChallenge& challenge, bool writes, const CallLimit& limit);
  Result<void> read_credentials();
  std::string credentials_advice() const;

  const RegistryUrl url_;
  const HttpAddress registry_;
  HttpPool pool_;
  std::optional<FoundCredentials> found_ = {};
  /// Empty until the registry asks for authentication.
  HttpAccess access_ = {};
  /// Whether access_ is for writing, too.
  bool may_write_ = false;
};

}  // namespace kiln::store
