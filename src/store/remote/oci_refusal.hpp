#pragma once

#include <string>
#include <utility>

#include <kiln/result.hpp>

#include "store/registry.hpp"
#include "store/remote/http_connection.hpp"

namespace kiln::store {

/// What a request to a registry was for. A value.
struct OciPurpose {
  HttpMethod method = HttpMethod::get;
  /// As in "blob 0123…", or "tag v1".
  std::string subject = {};
  bool writes = false;

  static OciPurpose to_pull(std::string subject) { return {HttpMethod::get, std::move(subject), false}; }
  /// Of a request that needs the right to push.
  static OciPurpose to_push(HttpMethod method, std::string subject) { return {method, std::move(subject), true}; }
};

/// The error for an answer that is not expected. The message is a reason without a subject, and contains nothing
/// that the registry sent but the code of its error. `advice` says what to do about credentials.
Error oci_refusal(const HttpAnswer& answer, const OciPurpose& purpose, const RegistryUrl& url,
                  const std::string& advice);

/// Adds to an error of the connection what to do if TLS failed.
Error with_tls_advice(const Error& error, const RegistryUrl& url);

}  // namespace kiln::store
