#include "store/remote/curl.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <curl/curl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/process.hpp"

namespace kiln::store {

Result<void> start_curl() {
  const CURLcode ready = base::once_per_process<CURLcode>(
      [] { return std::make_unique<CURLcode>(curl_global_init(CURL_GLOBAL_DEFAULT)); });
  if (ready == CURLE_OK) return {};
  return Error(ErrorCode::unsupported, fmt::format("libcurl cannot be used: {}", curl_easy_strerror(ready)));
}

Result<void> check_certificates(const std::string& path) {
  if (path.empty() || access(path.c_str(), R_OK) == 0) return {};
  return Error(ErrorCode::invalid_request,
               fmt::format("cannot use the certificates in {}: {}", path, std::strerror(errno)));
}

std::string printable_text(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace kiln::store
