#include "bundle_of_others.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "key/record_writer.hpp"
#include "quantity.hpp"

namespace kiln::cli {
namespace {

void skip(Context& context, const std::string& why) {
  complain(why);
  context.status = exit_status::failed;
}

}  // namespace

void BundleOfOthers::add(const OpenBundle& bundle, const BundleRow& row,
                         const std::optional<Digest>& without_toolkit) {
  const Identity& identity = bundle->identities()[row.program.identity];
  const auto known = std::ranges::find(contents_.identities, identity);
  const auto place = static_cast<std::size_t>(known - contents_.identities.begin());
  if (known == contents_.identities.end()) contents_.identities.push_back(identity);
  store::EntryToBundle entry;
  entry.identity = place;
  entry.key = row.program.key;
  entry.without_toolkit = without_toolkit;
  entry.read = [bundle, program = row.program] { return bundle->read(program); };
  contents_.entries.push_back(std::move(entry));
  targets_.insert(row.target->digest);
}

void BundleOfOthers::add_requests(Context& context, const store::BundleFile& bundle,
                                  const std::function<bool(const Digest& key)>& is_wanted) {
  if (!bundle.has_requests()) return;
  const auto& record = records_.emplace_back(bundle.checked_requests().value());
  if (record.damaged() > 0)
    skip(context, fmt::format("{}: skipped {} in its requests", bundle.name(),
                              human_count(record.damaged(), "damaged item")));
  for (const auto& entry : record.entries())
    if (is_wanted(entry.key.digest)) requests_.push_back({&record, &entry});
}

bool BundleOfOthers::write(Context& context, const std::string& path, const std::string& facts) {
  contents_.facts = facts;
  contents_.interrupted = stop_request_.descriptor();
  const std::size_t requests = write_requests(context);
  const auto bytes = store::write_bundle(path, contents_);
  if (!bytes && stop_request_.happened()) {
    context.status = exit_status::interrupted;
    complain("interrupted; run the same command again");
    return false;
  }
  if (!bytes) throw Failure(bytes.error());
  if (context.json)
    print_json({{"file", path},
                {"programs", contents_.entries.size()},
                {"targets", targets_.size()},
                {"requests", requests},
                {"bytes", *bytes}});
  else
    print(fmt::format("wrote {} for {} and {} to {}, {}\n", human_count(contents_.entries.size(), "program"),
                      human_count(targets_.size(), "target"), human_count(requests, "request"), printable(path),
                      human_size(*bytes)));
  return true;
}

std::size_t BundleOfOthers::write_requests(Context& context) {
  if (requests_.empty()) return 0;
  scratch_.emplace(base::ScratchFolder::create().value());
  key::RecordWriter writer(scratch_->path() / "merged.kilnreq");
  std::ranges::sort(requests_, {}, &RequestToWrite::order);
  std::size_t written = 0;
  for (const auto& [record, entry] : requests_) {
    if (stop_request_.happened()) break;
    const auto added = writer.add(*record, *entry);
    if (!added && added.error().code() != ErrorCode::damaged) throw Failure(added.error());
    if (!added)
      skip(context, fmt::format("{}: {}", entry->key.name, added.error().message()));
    else
      written += *added ? 1 : 0;
  }
  if (written > 0) contents_.record = writer.path();
  return written;
}

void remark_signatures(const Context& context, const std::vector<OpenBundle>& bundles) {
  if (std::ranges::any_of(bundles, [](const OpenBundle& bundle) { return !bundle->signatures().empty(); }))
    remark(context,
           "The signatures are left out, because they cover another index; sign the new bundle with `kiln "
           "bundle sign`.");
}

std::optional<Digest> value_at(const std::map<std::size_t, Digest>& digests, std::size_t place) {
  const auto found = digests.find(place);
  return found != digests.end() ? std::optional(found->second) : std::nullopt;
}

}  // namespace kiln::cli
