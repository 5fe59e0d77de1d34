#pragma once

#include <string>

#include <kiln/request.hpp>
#include <kiln/result.hpp>

namespace kiln::backend {

/// The error of a compiler that refused the source and left `log`: unsupported where the program needs more shared
/// memory than the device has, compile_failed otherwise.
Error refusal(const Request& request, std::string log);

}  // namespace kiln::backend
