// A driver that crashes when it is loaded.

#include <csignal>

namespace {
[[gnu::constructor]] void crash() { raise(SIGSEGV); }
}  // namespace
