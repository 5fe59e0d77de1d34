#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <kiln/result.hpp>

#include "store/remote/aws_signature.hpp"
#include "store/remote/reread.hpp"
#include "store/store_url.hpp"

namespace kiln::store {

/// The settings of one profile, by names in lower case. A value.
using AwsProfile = std::map<std::string, std::string>;

/// In the file `config`, a section is named "profile NAME", except for "default".
enum class AwsFile { credentials, config };

/// A profile of one of the two files of AWS; nothing if the file does not have it. Lines that are no settings, and
/// nested settings, are ignored.
std::optional<AwsProfile> find_aws_profile(std::string_view text, AwsFile file, std::string_view profile);

/// What applies to a URL of S3: its options come first, then the environment, then AWS's file `config`. A value.
struct AwsSettings {
  std::string profile = {};
  std::string region = {};
  /// The URL of the server; empty for AWS itself.
  std::string endpoint = {};
  /// Whether the credentials of the environment come first: the URL names no profile.
  bool may_use_variables = true;
  /// Those of the environment, if they are used.
  std::optional<AwsCredentials> credentials = {};
  /// Empty if the home folder is unknown.
  std::string credentials_file = {};

  /// Reads the file `config` if something is left to it. Fails if it cannot be used, or if neither file has the
  /// profile that the URL or the environment names: requests must not go to another server than the user set. The
  /// message is a reason without a subject.
  static Result<AwsSettings> read(const StoreUrl& url);
};

/// Credentials, which may change while the process runs if they are in a file. Thread-safe.
class AwsCredentialSource {
 public:
  explicit AwsCredentialSource(AwsSettings settings);

  /// The message of an error is a reason without a subject, and lists where credentials were searched for.
  Result<AwsCredentials> read() { return credentials_.read(); }
  /// Where they come from, for messages: "AWS_ACCESS_KEY_ID" or "the profile default of /home/me/.aws/credentials".
  const std::string& origin() const noexcept { return origin_; }

 private:
  const std::string origin_;
  Reread<AwsCredentials> credentials_;
};

}  // namespace kiln::store
