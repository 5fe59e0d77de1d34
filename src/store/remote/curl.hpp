#pragma once

#include <string>

#include <kiln/result.hpp>

/// What all stores that use libcurl share.
namespace kiln::store {

/// Initialises libcurl with the first call of the process; its functions are thread-safe afterwards. A fork during
/// that call may leave the child with locks that nobody holds, so open_remote_store() delays forks.
Result<void> start_curl();

/// Whether the file of certificates of `ca=` can be read, unless the path is empty. The message of the error is a
/// reason without a subject.
Result<void> check_certificates(const std::string& path);

/// A text of libcurl or of a server, fit for a log: without control characters, and with ASCII only.
std::string printable_text(std::string text);

}  // namespace kiln::store
