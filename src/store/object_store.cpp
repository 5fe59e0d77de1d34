#include "store/object_store.hpp"

#include <utility>

#include "base/try.hpp"

namespace kiln::store {

Result<std::vector<std::string>> ObjectStore::list_all(const std::string& folder, const CallLimit& limit) {
  std::vector<std::string> objects;
  std::vector<std::string> folders = {folder};
  while (!folders.empty()) {
    const std::string path = std::move(folders.back());
    folders.pop_back();
    for (const std::string& name : KILN_TRY(list(path, limit))) {
      // Objects have the name of a file with a suffix, or of a key, and identities are folders with such a name.
      const bool is_key = name.size() == 2 * sizeof(Digest) && path != folder;
      (is_key || name.find('.') != std::string::npos ? objects : folders).push_back(path + "/" + name);
    }
  }
  return objects;
}

void ObjectStore::get_many(std::span<const std::string> paths, const CallLimit& limit, const Receive& receive) {
  for (std::size_t i = 0; i < paths.size(); ++i) receive(i, get(paths[i], limit));
}

Result<LeaseAnswer> ObjectStore::take_lease(const Lease& /*lease*/, bool /*only_ask*/, const CallLimit& /*limit*/) {
  return Error(ErrorCode::unsupported, "the store has no leases");
}

Result<void> ObjectStore::release_lease(const Lease& /*lease*/, const CallLimit& /*limit*/) {
  return Error(ErrorCode::unsupported, "the store has no leases");
}

}  // namespace kiln::store
