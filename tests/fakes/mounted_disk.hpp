#pragma once

#include <filesystem>
#include <string>

#include <sys/mount.h>

namespace kiln::fakes {

/// A small tmpfs mounted at a folder; unmounted on destruction. Needs root.
class MountedDisk {
 public:
  /// `size` is a mount option, for example "64k", optionally followed by others, for example "64k,nr_inodes=20".
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

/// A read-only bind mount of a folder onto itself; unmounted on destruction. Needs root.
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
