#pragma once

namespace kiln {

/// What a power failure, or a crash of the operating system, may do to a saved program. A process that is killed
/// loses and damages none. A lost or damaged program is compiled again; a damaged one never reaches a driver.
enum class Durability {
  none,    ///< it may be lost or damaged
  rename,  ///< it may be lost, not damaged: the file is synced before it gets its name
  fsync,   ///< nothing: a program is on disk once it is saved, at the latest when Cache::flush() returns
};

}  // namespace kiln
