#pragma once

#include <filesystem>
#include <memory>

#include <kiln/result.hpp>

#include "store/object_store.hpp"

namespace kiln::store {

/// A store in a folder that machines share, for example over NFS: an object is the file "<root>/<path>". The first
/// put() creates the folder. Needs no locks, and takes a late view of the folder, stale handles and lost races of
/// two writers for misses or repeats its work. Files and folders get the permissions that the umask leaves.
///
/// A reader checks the bytes: a file that is changed or truncated meanwhile is returned as it was read. Files
/// longer than max_object_bytes, symbolic links and other special files are errors. Fails with invalid_request if
/// `root` is relative. Uses the file system that is current at its construction.
Result<std::unique_ptr<ObjectStore>> make_file_store(std::filesystem::path root);

/// Whether `root` is a folder that only this user and root can write to, as the folder of a cache must be. False if
/// it does not exist, because somebody else could create it first.
bool is_trusted_folder(const std::filesystem::path& root);

}  // namespace kiln::store
