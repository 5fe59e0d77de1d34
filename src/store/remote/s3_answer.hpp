#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::store {

/// Whether the text may be the name of a region: lower-case letters, digits and '-'.
bool is_region(std::string_view text);

/// Why S3 refused a request. A value.
struct S3Refusal {
  /// Letters and digits only, as in "NoSuchKey".
  std::string code = {};
  /// Empty if the answer names none.
  std::string region = {};
};

/// Nothing if the text is not such an answer.
std::optional<S3Refusal> parse_s3_refusal(std::string_view text);

/// A page of ListObjectsV2. A value.
struct S3Listing {
  std::vector<std::string> keys = {};
  /// With a slash at their ends.
  std::vector<std::string> folders = {};
  /// Of the next page; empty if this is the last one.
  std::string next = {};
};

/// Nothing if the text is not such an answer.
std::optional<S3Listing> parse_s3_listing(std::string_view text);

}  // namespace kiln::store
