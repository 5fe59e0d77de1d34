#include "cache/bundles.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "store/config_folders.hpp"
#include "store/embedded_bundles.hpp"
#include "store/settings.hpp"
#include "store/signatures.hpp"

namespace kiln::cache {
namespace {

/// The keys that are trusted, read with the first bundle that needs a signature.
class Trust {
 public:
  explicit Trust(const Log& log) : log_(log) {}
  const store::TrustList* operator()(Verification verify) {
    if (verify == Verification::off) return nullptr;
    if (!keys_) {
      auto read = store::TrustList::read(store::config_folders());
      if (!read) log_.warning(fmt::format("no key is trusted: {}", read.error().message()));
      keys_ = read ? std::move(*read) : store::TrustList();
    }
    return &*keys_;
  }

 private:
  const Log& log_;
  std::optional<store::TrustList> keys_;
};

}  // namespace

Bundles::Bundles(const CacheOptions& options, const store::Settings& settings, const Backend& backend)
    : compiles_(options.compile.value_or(settings.compile.value) != CompilePolicy::never &&
                !backend.identity().compiler.empty()) {
  // An empty list of the application: no bundle at all.
  if (options.bundles && options.bundles->empty()) return;
  Trust trust(options.log);
  std::vector<Bundle> bundles;
  if (options.bundles) {
    bundles = *options.bundles;
  } else {
    for (const auto& configured : settings.bundles.value) bundles.push_back(configured.value);
  }
  for (const Bundle& bundle : bundles)
    add(store::BundleFile::open(bundle.path, trust(bundle.verify)), bundle.verify, backend, options.log);
  for (store::EmbeddedBundle& part : store::find_embedded_bundles(options.log))
    add(store::BundleFile::open_part(std::move(part.file), part.name, part.offset, part.size), Verification::off,
        backend, options.log);
  std::ranges::stable_sort(accepted_, std::ranges::greater(), &Accepted::preference);
}

void Bundles::add(Result<std::shared_ptr<const store::BundleFile>> opened, Verification verified,
                  const Backend& backend, const Log& log) {
  if (!opened) {
    log.warning(fmt::format("a bundle is not used: {}", opened.error().message()));
    return;
  }
  std::size_t programs = 0;
  for (const store::BundledTarget& target : (*opened)->targets())
    if (const unsigned preference = backend.accepts(target.identity); preference > 0) {
      accepted_.push_back({files_.size(), &target, verified == Verification::required, preference});
      programs += target.count;
    }
  log.debug(
      fmt::format("the device accepts {} of {} programs of {}", programs, (*opened)->size(), (*opened)->name()));
  files_.push_back(std::move(*opened));
}

std::vector<Bundles::Found> Bundles::find(const Request& request) const {
  std::vector<Found> found;
  std::optional<Digest> without_toolkit;
  if (!compiles_ && !accepted_.empty()) without_toolkit = request.digest_without_toolkit();
  for (const Accepted& accepted : accepted_) {
    const store::BundleFile& file = *files_[accepted.file];
    auto program = file.find(*accepted.target, request.key().digest);
    const bool has_key = program.has_value();
    if (!program && without_toolkit) program = file.find_without_toolkit(*accepted.target, *without_toolkit);
    if (program)
      found.push_back({file, *accepted.target, *program, file.identities()[program->identity].compiler,
                       accepted.is_signed, has_key});
  }
  return found;
}

bool Bundles::has(const Digest& key) const {
  return std::ranges::any_of(accepted_, [&](const Accepted& accepted) {
    return files_[accepted.file]->find(*accepted.target, key).has_value();
  });
}

std::string Bundles::names() const {
  std::string names;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    std::size_t accepted = 0;
    for (const Accepted& target : accepted_)
      if (target.file == i) accepted += target.target->count;
    names += fmt::format("{}{} ({} of {} programs are for this device)", names.empty() ? "" : ", ",
                         files_[i]->name(), accepted, files_[i]->size());
  }
  return names.empty() ? "no bundle" : names;
}

}  // namespace kiln::cache
