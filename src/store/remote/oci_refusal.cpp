#include "store/remote/oci_refusal.hpp"

#include <string_view>

#include <fmt/format.h>

#include "store/json_text.hpp"

namespace kiln::store {
namespace {

/// The code of the first error in the body, as in "MANIFEST_UNKNOWN"; empty if it has none.
std::string code_of(const HttpAnswer& answer) {
  const auto json = parse_json(answer.other_body);
  if (!json || !json->contains("errors")) return {};
  const auto& errors = json->at("errors");
  if (!errors.is_array() || errors.empty() || !errors.front().is_object()) return {};
  const auto code = errors.front().find("code");
  if (code == errors.front().end() || !code->is_string()) return {};
  auto text = code->get<std::string>();
  constexpr std::size_t max_size = 40;
  const bool is_word =
      text.size() <= max_size && text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == std::string::npos;
  return is_word ? text : std::string();
}

}  // namespace

Error oci_refusal(const HttpAnswer& answer, const OciPurpose& purpose, const RegistryUrl& url,
                  const std::string& advice) {
  const std::string code = code_of(answer);
  const auto error = [&](ErrorCode kind, std::string_view why) {
    return Error(kind, fmt::format("{} (status {}{}{})", why, answer.status, code.empty() ? "" : ", ", code));
  };
  switch (answer.status) {
    case 401:
      return error(ErrorCode::denied,
                   fmt::format("the registry {} requires credentials; {}", url.registry, advice));
    case 403:
      return error(ErrorCode::denied,
                   fmt::format("the registry {} permits no {} {}; {}", url.registry,
                               purpose.writes ? "push to" : "pull from", url.repository, advice));
    case 404:
      if (purpose.writes)
        return error(
            ErrorCode::unsupported,
            fmt::format("the registry {} does not accept the repository {}; create it there, or correct its name",
                        url.registry, url.repository));
      if (code == "NAME_UNKNOWN")
        return error(ErrorCode::unsupported,
                     fmt::format("the registry {} has no repository {}", url.registry, url.repository));
      return error(ErrorCode::unsupported,
                   fmt::format("the repository {} of {} has no {}", url.repository, url.registry, purpose.subject));
    case 405: return error(ErrorCode::unsupported, fmt::format("the registry {} permits no pushing", url.registry));
    case 413:
      return error(
          ErrorCode::unsupported,
          fmt::format("the registry {}, or a proxy before it, permits no bundle of this size", url.registry));
    case 429:
    case 503:
      return error(ErrorCode::io, fmt::format("the registry {} is overloaded, or limits requests; {}", url.registry,
                                              answer.retry_after.count() > 0
                                                  ? fmt::format("try again in {} s", answer.retry_after.count())
                                                  : "try again later"));
    case 507: return error(ErrorCode::io, fmt::format("the registry {} is full", url.registry));
    default: break;
  }
  if (code == "DIGEST_INVALID")
    return error(ErrorCode::damaged, "the registry received other bytes than the file had when the push began");
  if (answer.status >= 300 && answer.status < 400)
    return error(ErrorCode::io,
                 fmt::format("the registry {} redirects in a way that this request does not follow", url.registry));
  if ((answer.status >= 400 && answer.status < 500) || answer.status == 501)
    return error(ErrorCode::unsupported, fmt::format("the registry {} does not accept the {} of the {}",
                                                     url.registry, name_of(purpose.method), purpose.subject));
  return error(ErrorCode::io, fmt::format("the registry {} failed, or is no registry", url.registry));
}

Error with_tls_advice(const Error& error, const RegistryUrl& url) {
  const bool is_tls =
      error.message().find("SSL") != std::string::npos || error.message().find("TLS") != std::string::npos;
  if (error.code() != ErrorCode::io || url.is_plain_http || !is_tls) return error;
  return Error(
      ErrorCode::io,
      fmt::format("{}; if {} has a certificate of its own authority, add ?ca=/path to the URL; if it has no "
                  "TLS, write oci+http://",
                  error.message(), url.registry));
}

}  // namespace kiln::store
