#pragma once

#include <string>

#include <kiln/result.hpp>

#include "store/remote/http_connection.hpp"

namespace kiln::store {

/// What a message about a refused request of S3 names. A value.
struct S3RequestContext {
  HttpMethod method = HttpMethod::get;
  std::string bucket = {};
  std::string region = {};
  /// As in "https://s3.example:9000".
  std::string server = {};
  /// AwsCredentialSource::origin().
  std::string credentials = {};
};

/// Whether the answer says that the object is absent, and not the bucket.
bool is_absent_object(const HttpAnswer& answer);

/// The error for an answer that is neither success nor absence: denied if the credentials are good and lack a
/// permission, unsupported if the object is too large or archived, timed_out if the answer was cut by the deadline
/// before it says why, else io. The message is a reason without a subject, and quotes only the code of the server:
/// its texts may contain the headers of the request.
Error s3_refusal(const HttpAnswer& answer, const S3RequestContext& context);

}  // namespace kiln::store
