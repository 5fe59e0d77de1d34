#pragma once

#include <string>
#include <vector>

#include <kiln/device.hpp>

namespace kiln::backend {

/// What a driver says of its devices, asked in a child process, so that a driver that crashes or hangs when it is
/// loaded takes nobody with it: the answer then is one device of `api` with that problem.
///
/// The child is a fork, and may meet a lock that another thread held: then it hangs, and is killed after a while.
std::vector<DeviceInfo> list_in_child(std::string_view api, std::vector<DeviceInfo> (*list)(const Log& log));

}  // namespace kiln::backend
