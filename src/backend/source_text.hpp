#pragma once

#include <cstddef>
#include <string>

#include <kiln/request.hpp>
#include <kiln/result.hpp>

/// What the backends' compilers have in common.
namespace kiln::backend {

/// The number from which on #line counts the lines that Kiln itself writes into a source. They are told by it, and
/// not by a file of their own, which Mesa forgets; it leaves room in the 16 bits that some compilers count with.
inline constexpr std::size_t generated_lines = 60'000;

/// The text a compiler gets: the source with the request's defines before its first line, behind #version in GLSL.
std::string with_defines(const Request& request);

/// The sentence for a compiler's log, with the file and the line it complains of first, or what Kiln wrote there.
std::string compile_message(const Request& request, const std::string& log);

/// The error of a compiler that refused the source.
Error compile_error(const Request& request, std::string log);

/// An error where the request is in another language than `taken`, or names no kernel where one must be named.
Result<void> check_language(const Request& request, Language taken);

/// The error of a compiler that refused the source and left `log`: unsupported where the program needs more shared
/// memory than the device has, compile_failed otherwise.
Error refusal(const Request& request, std::string log);

}  // namespace kiln::backend
