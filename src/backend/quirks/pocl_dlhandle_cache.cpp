#include "backend/quirks/pocl_dlhandle_cache.hpp"

#include <algorithm>

namespace kiln::backend::quirks {

bool PoclDlhandleCache::affects(std::string_view device_version, std::string_view driver_version) {
  const auto major = opencl::pocl_major_version(device_version, driver_version);
  return major && *major < 7;
}

bool PoclDlhandleCache::affects(const opencl::Library& cl, cl_device_id device) {
  return affects(cl.text(device, CL_DEVICE_VERSION), cl.text(device, CL_DRIVER_VERSION));
}

std::shared_ptr<PoclDlhandleCache> PoclDlhandleCache::of(const std::string& kernel) {
  struct All {
    std::mutex mutex;
    std::map<std::string, std::weak_ptr<PoclDlhandleCache>> launches;
  };
  // Never destroyed: PoCL's threads may outlive static variables.
  static All& all = *new All;
  const std::lock_guard lock(all.mutex);
  if (auto found = all.launches[kernel].lock()) return found;
  std::erase_if(all.launches, [](const auto& one) { return one.second.expired(); });
  auto made = std::make_shared<PoclDlhandleCache>();
  all.launches[kernel] = made;
  return made;
}

bool PoclDlhandleCache::begin(Widest& widest, const Sizes& global, const Sizes& local) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !wider_; });
  Sizes& so_far = widest[local];
  bool wider = false;
  for (std::size_t i = 0; i < global.size(); ++i) {
    wider = wider || global[i] > so_far[i];
    so_far[i] = std::max(so_far[i], global[i]);
  }
  if (wider) {
    wider_ = true;
    changed_.wait(lock, [&] { return running_ == 0; });
  }
  ++running_;
  return wider;
}

void PoclDlhandleCache::forget(Widest& widest, const Sizes& local) {
  const std::lock_guard lock(mutex_);
  widest.erase(local);
}

void PoclDlhandleCache::end(bool wider) {
  const std::lock_guard lock(mutex_);
  --running_;
  if (wider) wider_ = false;
  changed_.notify_all();
}

void PoclDlhandleCache::end_with(const opencl::Library& cl, cl_event event, bool wider) {
  struct Running {
    std::shared_ptr<PoclDlhandleCache> launches;
    bool wider;
  };
  auto running = std::make_unique<Running>(Running{shared_from_this(), wider});
  const cl_int error = cl.clSetEventCallback(
      event, CL_COMPLETE,
      [](cl_event, cl_int, void* data) {
        const std::unique_ptr<Running> ended(static_cast<Running*>(data));
        ended->launches->end(ended->wider);
      },
      running.get());
  if (error == CL_SUCCESS) {
    running.release();
    return;
  }
  cl.clWaitForEvents(1, &event);
  end(wider);
}

}  // namespace kiln::backend::quirks
