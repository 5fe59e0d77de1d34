#include "store/remote/oci_session.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "store/json_text.hpp"
#include "store/remote/curl.hpp"

namespace kiln::store {
namespace {

constexpr std::size_t max_location_size = 8 << 10;
constexpr std::uint64_t max_token_answer = 1 << 20;

/// As in the query of a URL and in a form.
std::string encoded(std::string_view text) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
  std::string result;
  for (const char c : text) {
    if (plain.find(c) != std::string_view::npos)
      result += c;
    else
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

std::string parameter(const OciChallenge& challenge, const char* name) {
  const auto found = challenge.parameters.find(name);
  return found != challenge.parameters.end() ? found->second : std::string();
}

}  // namespace

OciSession::OciSession(RegistryUrl url, HttpAddress registry)
    : url_(std::move(url)), registry_(std::move(registry)) {}

std::string OciSession::repository() const {
  const bool is_short_name = url_.registry == "docker.io" && url_.repository.find('/') == std::string::npos;
  return (is_short_name ? "library/" : "") + url_.repository;
}

HttpAddress OciSession::address(const std::string& path) const {
  HttpAddress address = registry_;
  address.url += fmt::format("/v2/{}/{}", repository(), path);
  return address;
}

Result<HttpAddress> OciSession::location(const HttpAnswer& answer, const HttpAddress& from) const {
  const auto header = answer.headers.find("location");
  if (header == answer.headers.end() || header->second.size() > max_location_size)
    return Error(ErrorCode::unsupported,
                 fmt::format("the registry {} does not say where to send the file", url_.registry));
  auto next = from.resolve(header->second);
  if (!next)
    return Error(ErrorCode::unsupported,
                 fmt::format("the registry {} names no valid address to send the file to", url_.registry));
  if (next->origin != registry_.origin)
    return Error(
        ErrorCode::unsupported,
        fmt::format("the registry {} wants the file to be sent to another server, where Kiln does not write; if "
                    "a proxy is before it, let it pass on the host and the scheme (X-Forwarded-Proto)",
                    url_.registry));
  return *std::move(next);
}

Result<HttpAnswer> OciSession::exchange(const OciRequest& request, const CallLimit& limit) {
  KILN_TRY(pool_.check_process());
  if (request.purpose.writes && !may_write_) access_ = {};
  HttpAnswer answer = KILN_TRY(follow(request, limit));
  // A password that is refused stays refused. A token may have expired.
  if (answer.status == 401 && access_.user.empty()) {
    access_ = {};
    KILN_TRY(authenticate(answer, request.purpose.writes, limit));
    answer = KILN_TRY(follow(request, limit));
  }
  if (answer.status == 401) return refusal(answer, request.purpose);
  return answer;
}

Result<HttpAnswer> OciSession::follow(const OciRequest& request, const CallLimit& limit) {
  HttpAddress address = request.address;
  bool at_registry = true;
  for (int redirects = 0;; ++redirects) {
    auto answer = pool_.exchange({.method = request.purpose.method,
                                  .address = address,
                                  .body = request.body,
                                  .source = request.source,
                                  .content_type = request.content_type,
                                  .access = at_registry ? &access_ : nullptr,
                                  .headers = request.headers,
                                  .ca = url_.ca,
                                  .max_answer_bytes = request.max_answer_bytes,
                                  .limited = "a manifest",
                                  .sink = request.sink,
                                  .keeps_headers = true},
                                 limit);
    if (!answer) return with_tls_advice(answer.error(), url_);
    const HttpMethod method = request.purpose.method;
    const bool may_follow = method == HttpMethod::get || method == HttpMethod::head;
    if (!may_follow || !is_redirect(method, answer->status) || answer->redirect.empty()) {
      if (at_registry || answer->status != 401) return answer;
      return Error(ErrorCode::unsupported,
                   "the registry redirects to another server, which requires credentials (status 401)");
    }
    if (redirects == max_redirects)
      return Error(ErrorCode::unsupported, "the registry redirects more than five times");
    auto next = HttpAddress::parse(answer->redirect);
    if (!next)
      return Error(ErrorCode::unsupported, "the registry redirects to what is no address of an HTTP server");
    if (address.scheme == "https" && next->scheme == "http")
      return Error(ErrorCode::unsupported, "the registry redirects from https to http, which is refused");
    // Another server could send the request back to an address of its choice; it gets no credentials then.
    at_registry = at_registry && next->origin == registry_.origin;
    address = *std::move(next);
  }
}

Result<void> OciSession::read_credentials() {
  if (!found_) found_ = KILN_TRY(read_registry_credentials(url_));
  return {};
}

Result<void> OciSession::authenticate(const HttpAnswer& answer, bool writes, const CallLimit& limit) {
  KILN_TRY(read_credentials());
  const auto header = answer.headers.find("www-authenticate");
  const auto challenges = parse_challenges(header != answer.headers.end() ? header->second : "");
  if (const auto bearer = std::ranges::find(challenges, "bearer", &OciChallenge::scheme);
      bearer != challenges.end()) {
    access_.token = KILN_TRY(get_token(*bearer, writes, limit));
    may_write_ = writes;
    return {};
  }
  if (std::ranges::find(challenges, "basic", &OciChallenge::scheme) == challenges.end())
    return Error(ErrorCode::denied,
                 fmt::format("the registry {} requires a way to authenticate that is neither Basic "
                             "nor Bearer, which Kiln does not have (status 401)",
                             url_.registry));
  if (found_->credentials.user.empty()) return refusal(answer, {.writes = writes});
  access_.user = found_->credentials.user;
  access_.password = found_->credentials.password;
  may_write_ = true;
  return {};
}

Result<std::string> OciSession::get_token(const OciChallenge& challenge, bool writes, const CallLimit& limit) {
  const auto failed = [this](ErrorCode code, std::string_view why) {
    return Error(code, fmt::format("the registry {} requires a token, and {}", url_.registry, why));
  };
  auto address = HttpAddress::parse(parameter(challenge, "realm"));
  if (!address) return failed(ErrorCode::unsupported, "does not name a valid server of tokens");
  if (address->scheme != "https" && !url_.is_plain_http)
    return failed(ErrorCode::denied, "names a server of tokens without https, which gets no credentials");
  const RegistryCredentials& credentials = found_->credentials;
  const std::vector<std::string> scopes = token_scopes(challenge, repository(), writes);
  // A form has one scope with all of them, and a query several.
  const bool has_form = !credentials.identity_token.empty();
  std::string query = "scope=";
  for (std::size_t i = 0; i < scopes.size(); ++i)
    query += (i == 0 ? "" : has_form ? "%20" : "&scope=") + encoded(scopes[i]);
  if (const std::string service = parameter(challenge, "service"); !service.empty())
    query += "&service=" + encoded(service);

  HttpAccess access;
  std::string form;
  if (!has_form) {
    access.user = credentials.user;
    access.password = credentials.password;
    address->url += (address->url.find('?') == std::string::npos ? "?" : "&") + query;
  } else {
    form = fmt::format("grant_type=refresh_token&client_id=kiln&{}&refresh_token={}", query,
                       encoded(credentials.identity_token));
  }
  const auto exchanged = pool_.exchange({.method = form.empty() ? HttpMethod::get : HttpMethod::post,
                                         .address = *address,
                                         .body = std::as_bytes(std::span(form)),
                                         .content_type = "application/x-www-form-urlencoded",
                                         .access = &access,
                                         .ca = url_.ca,
                                         .max_answer_bytes = max_token_answer,
                                         .limited = "a token"},
                                        limit);
  if (!exchanged)
    return failed(exchanged.error().code(), fmt::format("its server of tokens cannot be used: {}",
                                                        with_tls_advice(exchanged.error(), url_).message()));
  if (exchanged->status == 401 || exchanged->status == 403)
    return failed(ErrorCode::denied, fmt::format("its server of tokens refuses one; {} (status {})",
                                                 credentials_advice(), exchanged->status));
  if (exchanged->status != 200)
    return failed(ErrorCode::io, fmt::format("its server of tokens failed (status {})", exchanged->status));
  const std::string_view body =
      form.empty() ? std::string_view(reinterpret_cast<const char*>(exchanged->body.data()), exchanged->body.size())
                   : std::string_view(exchanged->other_body);
  const auto json = parse_json(body);
  for (const char* name : {"token", "access_token"}) {
    if (!json || !json->contains(name) || !json->at(name).is_string()) continue;
    auto token = json->at(name).get<std::string>();
    // In HTTP, a line break would begin another header.
    if (!token.empty() && std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; })) return token;
  }
  return failed(ErrorCode::unsupported, "its server of tokens sends none");
}

std::string OciSession::credentials_advice() const {
  const std::string login = fmt::format(
      "log in with `docker login {}`, or name a file with credentials in $REGISTRY_AUTH_FILE", url_.registry);
  if (!found_ || found_->file.empty()) return login;
  const auto& [credentials, file, exists] = *found_;
  if (!exists) return fmt::format("there is no file {}; {}", file, login);
  if (credentials.is_known())
    return fmt::format("the credentials in {} do not suffice; check their rights, or log in again", file);
  if (!credentials.helper.empty())
    return fmt::format(
        "{} leaves the credentials to the helper {}, and Kiln runs no helpers; write them to another file, "
        "and name it in $REGISTRY_AUTH_FILE",
        file, printable_text(credentials.helper));
  return fmt::format("{} has none for it; {}", file, login);
}

Error OciSession::refusal(const HttpAnswer& answer, const OciPurpose& purpose) const {
  return oci_refusal(answer, purpose, url_, credentials_advice());
}

}  // namespace kiln::store
