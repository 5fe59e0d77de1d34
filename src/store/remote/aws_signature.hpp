#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln::store {

struct AwsCredentials {
  std::string access_key = {};
  std::string secret_key = {};
  /// Of temporary credentials; else empty.
  std::string session_token = {};

  friend bool operator==(const AwsCredentials&, const AwsCredentials&) = default;
};

/// A request as it is signed and sent. A value.
struct AwsRequest {
  using Fields = std::vector<std::pair<std::string, std::string>>;

  std::string method = {};
  /// With the port, unless it is the default one.
  std::string host = {};
  /// Without escapes.
  std::string path = "/";
  /// Names and values without escapes, in any order.
  Fields query = {};
  /// More headers to sign, in any order. The caller sends them.
  Fields headers = {};
  /// The SHA-256 of the body, as hexadecimal text.
  std::string payload_hash = {};

  /// The path and the query with escapes, exactly as they must be sent.
  std::string target() const;
};

/// Escapes everything but letters, digits and "-_.~", and the characters in `also_plain`.
std::string uri_encode(std::string_view text, std::string_view also_plain = {});

/// The headers that authenticate the request by version 4 of AWS's signatures in the form of S3: host, x-amz-* and
/// authorization. Only the authorization is not itself signed.
AwsRequest::Fields sign_aws_request(const AwsRequest& request, const AwsCredentials& credentials,
                                    std::string_view region, std::string_view service,
                                    std::chrono::sys_seconds time);

}  // namespace kiln::store
