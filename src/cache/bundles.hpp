#pragma once

#include <memory>
#include <string>
#include <vector>

#include <kiln/backend.hpp>
#include <kiln/cache.hpp>
#include <kiln/request.hpp>

#include "store/bundle.hpp"
#include "store/settings.hpp"

namespace kiln::cache {

/// The bundles of a cache. Immutable, so safe from any thread.
class Bundles {
 public:
  /// Opens the bundles of the options, else those of the settings, and those that are embedded in the application.
  /// Logs those that cannot be used.
  Bundles(const CacheOptions& options, const store::Settings& settings, const Backend& backend);

  bool is_empty() const noexcept { return files_.empty(); }

  /// A program of a bundle that the device accepts. Refers to the bundle.
  struct Found {
    const store::BundleFile& file;
    const store::BundledTarget& target;
    store::BundledProgram program;
    /// What compiled it.
    const std::string& compiler;
    /// Whether the bundle was opened because of a trusted signature.
    bool is_signed = false;
    /// Whether it has the request's key. Otherwise the headers of the toolkit are others.
    bool has_key = true;
  };
  /// The programs of all bundles for this request, those that suit the device best first, and those of an earlier
  /// bundle before others that suit it as well. If nothing is compiled here, the headers of the toolkit need not be
  /// those that the program was compiled with, because the machine need not have them.
  std::vector<Found> find(const Request& request) const;
  /// Whether a bundle has a program of this key for the device.
  bool has(const Digest& key) const;

  /// All bundles that are used.
  const std::vector<std::shared_ptr<const store::BundleFile>>& files() const noexcept { return files_; }
  /// Their names, for messages; "no bundle" if there is none.
  std::string names() const;

 private:
  void add(Result<std::shared_ptr<const store::BundleFile>> opened, Verification verified, const Backend& backend,
           const Log& log);

  /// A target that the device accepts.
  struct Accepted {
    std::size_t file = 0;
    const store::BundledTarget* target = nullptr;
    bool is_signed = false;
    unsigned preference = 0;
  };

  /// Whether the device has a compiler, and the policy permits to use it.
  const bool compiles_;
  std::vector<std::shared_ptr<const store::BundleFile>> files_;
  /// The best first.
  std::vector<Accepted> accepted_;
};

}  // namespace kiln::cache
