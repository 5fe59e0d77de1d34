#pragma once

#include <cstdlib>

#include <sys/auxv.h>

namespace kiln::base {

/// Whether the program runs with rights that its caller has not: set-uid, set-gid or with capabilities.
inline bool has_more_rights_than_its_caller() noexcept { return ::getauxval(AT_SECURE) != 0; }

/// The value of a variable of the environment; null where it is not set, and where the program has more rights than
/// its caller, whose words are not to be trusted then.
inline const char* environment(const char* name) noexcept { return ::secure_getenv(name); }

}  // namespace kiln::base
