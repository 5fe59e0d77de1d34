#include "store/object_store.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "base/try.hpp"

namespace kiln::store {

std::vector<Result<std::vector<std::string>>> list_at_once(
    std::span<const std::string> folders, std::size_t streams,
    const std::function<Result<std::vector<std::string>>(const std::string& folder)>& list) {
  std::vector<Result<std::vector<std::string>>> listed(folders.size(), std::vector<std::string>());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < folders.size(); i = next++) try {
        listed[i] = list(folders[i]);
      } catch (const std::exception&) {
        listed[i] = Error(ErrorCode::io, "there is no memory left");
      }
  };
  std::vector<std::jthread> others;
  try {
    for (std::size_t i = 1; i < std::min(streams, folders.size()); ++i) others.emplace_back(work);
  } catch (const std::system_error&) {
    // There are no more threads; those that run do the work.
  }
  work();
  others.clear();
  return listed;
}

Result<std::vector<std::string>> ObjectStore::list_all(const std::string& folder, const CallLimit& limit) {
  std::vector<std::string> objects;
  std::vector<std::string> folders = {folder};
  while (!folders.empty()) {
    // All folders of one level, at once.
    auto listed =
        list_at_once(folders, useful_streams(), [&](const std::string& each) { return list(each, limit); });
    std::vector<std::string> below;
    for (std::size_t i = 0; i < folders.size(); ++i)
      for (const std::string& name : KILN_TRY(std::move(listed[i]))) {
        // Objects have the name of a file with a suffix, or of a key, and identities are folders with such a name.
        const bool is_key = name.size() == 2 * sizeof(Digest) && folders[i] != folder;
        (is_key || name.find('.') != std::string::npos ? objects : below).push_back(folders[i] + "/" + name);
      }
    if (objects.size() + below.size() > max_listed_names)
      return Error(ErrorCode::io, "the store lists more than 2,000,000 objects below " + folder);
    folders = std::move(below);
  }
  return objects;
}

void ObjectStore::get_many(std::span<const std::string> paths, const CallLimit& limit, const Receive& receive) {
  for (std::size_t i = 0; i < paths.size(); ++i) receive(i, get(paths[i], limit.of_part()));
}

Result<LeaseAnswer> ObjectStore::take_lease(const Lease& /*lease*/, bool /*only_ask*/, const CallLimit& /*limit*/) {
  return Error(ErrorCode::unsupported, "the store has no leases");
}

Result<void> ObjectStore::release_lease(const Lease& /*lease*/, const CallLimit& /*limit*/) {
  return Error(ErrorCode::unsupported, "the store has no leases");
}

}  // namespace kiln::store
