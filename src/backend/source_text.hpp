#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/device.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>

/// Source preparation and error messages for the compilers of all backends.
namespace kiln::backend {

/// The #line number of the first line that Kiln inserts into a source. Error messages recognise inserted lines by
/// their number: a separate file number does not work, because Mesa loses it. The value leaves room below the
/// 16-bit limit of some compilers.
inline constexpr std::size_t generated_lines = 60'000;

/// The text for the compiler: the source, preceded by the request's defines. In GLSL, the defines follow #version.
std::string with_defines(const Request& request);

/// Summarises a compiler's log in one sentence, with the location of the first error. If the error is in a line
/// that Kiln inserted, the sentence quotes the line.
std::string compile_message(const Request& request, const std::string& log);

/// A compile_failed error with the summary and the log.
Error compile_error(const Request& request, std::string log);

/// Fails with the request's own error if it is invalid, and if its language is not one of `taken`, or if its entry
/// point does not fit the language: GLSL requires main. Every compile() calls it before it uses the source.
Result<void> check_language(const Request& request, const std::vector<Language>& taken);

/// The errors for a CUDA or HIP source that lacks a kernel of the request, and for one that has several of its
/// name.
Error missing_kernel(const Request& request, std::string_view entry, std::string log);
Error ambiguous_kernel(const Request& request, std::string_view entry, std::string log);

/// The error for a source on a device without a compiler.
Error no_compiler(const Request& request, const DeviceInfo& device);

/// The error for a source that the compiler rejected: include_not_found if it lacks a file that the request did not
/// find either, unsupported if the log says that the program needs more shared memory than the device has,
/// compile_failed otherwise.
Error refusal(const Request& request, std::string log);

}  // namespace kiln::backend
