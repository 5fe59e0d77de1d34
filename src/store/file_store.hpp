#pragma once

#include <filesystem>
#include <memory>

#include <kiln/result.hpp>

#include "store/object_store.hpp"

namespace kiln::store {

/// Who may write to the folder of a store.
enum class FolderAccess {
  open,          ///< anyone; files and folders get the permissions that the umask leaves
  private_only,  ///< this user and root; new files and folders get no write permission for others
};

/// A store in a folder that machines share, for example over NFS: an object is the file "<root>/<path>". The first
/// put() creates the folder. Needs no locks, and takes a late view of the folder, stale handles and lost races of
/// two writers for misses or repeats its work.
///
/// With `private_only`, each call fails with untrusted if the root, a folder below it or the file that it reads
/// belongs to another user than this one and root, or if others can write to it. That is checked on the handles in
/// use, so a folder that is mounted, renamed or replaced later is checked too.
///
/// A reader checks the bytes: a file that is changed or truncated meanwhile is returned as it was read. Files
/// longer than max_object_bytes, symbolic links and other special files are errors. Links are never followed,
/// except at the root. Fails with invalid_request if `root` is relative. Uses the file system that is current at
/// its construction.
Result<std::unique_ptr<ObjectStore>> make_file_store(std::filesystem::path root,
                                                     FolderAccess access = FolderAccess::open);

/// Whether `root` is a folder that only this user and root can write to, as the folder of a cache must be. False if
/// it does not exist, because somebody else could create it first.
bool is_trusted_folder(const std::filesystem::path& root);

}  // namespace kiln::store
