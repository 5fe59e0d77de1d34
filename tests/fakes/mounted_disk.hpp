#pragma once

#include <filesystem>
#include <string>

#include <sys/mount.h>

namespace kiln::fakes {

/// A small file system of its own at a folder, taken away on destruction. Needs root.
class MountedDisk {
 public:
  /// The size as mount takes it, as in "64k", and further settings, as in "64k,nr_inodes=20".
  MountedDisk(std::filesystem::path folder, const std::string& size, bool read_only) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
    const std::string settings = "mode=0700,size=" + size;
    mounted_ = mount("tmpfs", folder_.c_str(), "tmpfs", read_only ? MS_RDONLY : 0, settings.c_str()) == 0;
  }
  ~MountedDisk() {
    if (mounted_) umount2(folder_.c_str(), MNT_DETACH);
  }
  MountedDisk(const MountedDisk&) = delete;
  MountedDisk& operator=(const MountedDisk&) = delete;

  bool mounted() const noexcept { return mounted_; }

 private:
  std::filesystem::path folder_;
  bool mounted_ = false;
};

/// A folder mounted over itself so that nothing in it can be changed, until destruction. Needs root.
class ReadOnlyMount {
 public:
  explicit ReadOnlyMount(std::filesystem::path folder) : folder_(std::move(folder)) {
    bound_ = mount(folder_.c_str(), folder_.c_str(), nullptr, MS_BIND, nullptr) == 0;
    mounted_ = bound_ && mount(nullptr, folder_.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0;
  }
  ~ReadOnlyMount() {
    if (bound_) umount2(folder_.c_str(), MNT_DETACH);
  }
  ReadOnlyMount(const ReadOnlyMount&) = delete;
  ReadOnlyMount& operator=(const ReadOnlyMount&) = delete;

  bool mounted() const noexcept { return mounted_; }

 private:
  std::filesystem::path folder_;
  bool bound_ = false;
  bool mounted_ = false;
};

}  // namespace kiln::fakes
