#pragma once

namespace kiln::base {

/// To be called when a driver has been loaded: whatever is destroyed after the driver's own exit handlers have run
/// will be told that the process ends.
void expect_process_end();

/// Whether the process is ending, and drivers with it: exit() is about to run their handlers, or has, and then
/// destroys static variables older than they are. Nothing is asked of a driver any more; the system takes back what
/// it held.
bool process_ends() noexcept;

}  // namespace kiln::base
