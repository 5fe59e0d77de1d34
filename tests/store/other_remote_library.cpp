// Stands in for a libkiln_remote of the same version of Kiln that was built from another interface.

#include <cstdint>
#include <cstdlib>

extern "C" const char* kiln_remote_version() { return KILN_VERSION; }
extern "C" std::uint64_t kiln_remote_interface() { return 0; }
extern "C" void kiln_remote_open() { std::abort(); }
