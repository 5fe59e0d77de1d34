#pragma once

#include <memory>

namespace kiln::exec {

/// Keeps something until the process ends: what a device that does not answer may be at work on. To destroy it
/// would wait for the device, or take memory away from under it.
void abandon(std::shared_ptr<const void> thing);

}  // namespace kiln::exec
