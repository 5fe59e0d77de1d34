#pragma once

namespace kiln {

/// What a loss of power, or a crash of the whole system, may do to a program that was saved. The end of a process,
/// however sudden, does none of this; and a program that is lost or damaged is only compiled again: no damaged one
/// ever reaches a driver.
enum class Durability {
  none,    ///< it may be lost, or found damaged and replaced
  rename,  ///< it may be lost; what is found is whole: a file is on disk before it gets its name
  fsync,   ///< nothing: a program that was saved, as after Cache::flush(), is there
};

}  // namespace kiln
