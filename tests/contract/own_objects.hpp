#pragma once

#include <memory>

#include <kiln/device.hpp>
#include <kiln/stream.hpp>

namespace kiln::contract {

/// Native objects as an application makes them for itself, without Kiln. For the thread that made them: what an API
/// has current on a thread, they are there. The destructor destroys them, and expects that nothing else holds them.
class OwnObjects {
 public:
  OwnObjects() = default;
  virtual ~OwnObjects() = default;
  OwnObjects(const OwnObjects&) = delete;
  OwnObjects& operator=(const OwnObjects&) = delete;

  virtual Result<std::shared_ptr<Device>> adopt(const Log& log) const = 0;
  /// Whether calls of the application's own succeed, and find what is current and bound as it left it.
  virtual bool work() const = 0;

  /// A stream of the application's own for a device that was adopted. It must be destroyed before this.
  virtual std::unique_ptr<Stream> stream(Device& device) = 0;
  /// Starts what such a stream has not started, and waits for its end.
  virtual void finish(Stream& stream) const = 0;
};

/// Objects of its API on the device that open_device() opened as `opened`; throws Failure where the driver refuses.
std::unique_ptr<OwnObjects> own_objects(const DeviceInfo& opened);

}  // namespace kiln::contract
