#pragma once

#include <string>

#include <kiln/result.hpp>

#include "store/remote/aws_settings.hpp"
#include "store/store_url.hpp"

namespace kiln::store {

/// Where a bucket is. A value.
struct S3Bucket {
  std::string name;
  std::string region;
  /// "http" or "https".
  std::string scheme;
  /// With the port.
  std::string host;
  /// Of the bucket: "/BUCKET", or nothing if its name is part of the host.
  std::string root;
};

/// Fails with invalid_request; the message is a reason without a subject.
Result<S3Bucket> find_bucket(const StoreUrl& url, const AwsSettings& settings);

}  // namespace kiln::store
