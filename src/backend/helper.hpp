#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kiln::backend {

/// The line, with its newline, that a kiln-helper of this version writes before it loads a driver.
std::string_view helper_greeting() noexcept;

/// The kiln-helper that this process starts; nothing if there is none. In this order: `KILN_HELPER`, beside the
/// file that holds Kiln's code (the program, or a shared library), the libexec folder of the prefix that this file
/// is in, the libexec folder that Kiln was configured with. A program that has more rights than its caller takes
/// the last one only.
///
/// Needs no lock of the dynamic loader's, so it answers while another thread is inside dlopen().
std::optional<std::string> find_helper();

}  // namespace kiln::backend
