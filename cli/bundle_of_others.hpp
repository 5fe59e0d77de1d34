#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/file.hpp"
#include "bundle.hpp"
#include "key/request_record.hpp"
#include "stop_request.hpp"

namespace kiln::cli {

/// A bundle that is made of programs of others. Ctrl-C ends its writing in order.
class BundleOfOthers {
 public:
  /// Adds a program; `bundle` is kept open.
  void add(const OpenBundle& bundle, const BundleRow& row, const std::optional<Digest>& without_toolkit);
  /// Adds the requests of a bundle that `is_wanted` returns true for. Complains about damaged ones and skips them.
  /// Throws Failure if they are not those of the bundle's index, which a signature may cover.
  void add_requests(Context& context, const store::BundleFile& bundle,
                    const std::function<bool(const Digest& key)>& is_wanted);
  /// Writes the bundle and reports it. Returns whether it was written: not after Ctrl-C. Throws Failure.
  bool write(Context& context, const std::string& path, const std::string& facts);

 private:
  struct RequestToWrite {
    const key::RequestRecord* record;
    const key::RequestRecord::Entry* entry;

    /// As `kiln bake` writes them: of several with one key, the one with the longest compile time comes first.
    auto order() const {
      return std::tuple(std::string_view(entry->api), entry->key.digest, -entry->compile_time.count(),
                        entry->item.checksum);
    }
  };

  /// Writes each request once to the record of the bundle. Returns how many there are.
  std::size_t write_requests(Context& context);

  const StopRequest stop_request_;
  store::BundleContents contents_;
  std::set<Digest> targets_;
  std::deque<key::RequestRecord> records_;
  /// They point into records_.
  std::vector<RequestToWrite> requests_;
  std::optional<base::ScratchFolder> scratch_;
};

/// Says that a bundle of others has none of their signatures, if they have any.
void remark_signatures(const Context& context, const std::vector<OpenBundle>& bundles);

/// The digest of a program; nothing if it has none.
std::optional<Digest> value_at(const std::map<std::size_t, Digest>& digests, std::size_t place);

}  // namespace kiln::cli
