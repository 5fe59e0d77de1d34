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

}  // namespace kiln::store
