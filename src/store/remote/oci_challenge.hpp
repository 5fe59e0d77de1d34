#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::store {

/// One way to authenticate, from the header WWW-Authenticate.
struct OciChallenge {
  /// In lower case, as in "bearer".
  std::string scheme;
  /// The names are in lower case.
  std::map<std::string, std::string> parameters = {};

  friend bool operator==(const OciChallenge&, const OciChallenge&) = default;
};

/// The challenges in the order of the header, without those that have no valid form. Takes linear time.
std::vector<OciChallenge> parse_challenges(std::string_view header);

/// What to ask a server of tokens for, as in "repository:team/app:pull,push": what the challenge names, and what
/// the request needs. The challenge of a request that reads names no right to write, and some registries never name
/// one.
std::vector<std::string> token_scopes(const OciChallenge& challenge, const std::string& repository, bool writes);

}  // namespace kiln::store
