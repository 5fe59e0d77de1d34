#include "store/remote/http_store.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/sha256.hpp"
#include "base/try.hpp"
#include "store/remote/curl.hpp"
#include "store/remote/http_connection.hpp"
#include "store/remote/http_pool.hpp"
#include "store/remote/multistatus.hpp"
#include "store/remote/secret_file.hpp"

namespace kiln::store {
namespace {

/// Of a folder; servers send up to 2 KiB for each object. Up to 32 folders are listed at once.
constexpr std::uint64_t max_folder_list_bytes = 32 << 20;

/// The error for an answer that is neither success nor absence. The message is a reason without a subject.
Error refusal(HttpMethod method, long status, bool redirected) {
  const bool writes = method == HttpMethod::put || method == HttpMethod::remove;
  const auto reason = [status](std::string_view why) { return fmt::format("{} (status {})", why, status); };
  if (method == HttpMethod::list && (status == 200 || status == 400 || status == 405 || status == 501))
    return Error(ErrorCode::unsupported, reason("the server does not list folders (WebDAV)"));
  switch (status) {
    case 401:
      return Error(
          ErrorCode::io,
          reason(redirected ? "the server redirects to another one, which requires credentials; use its URL"
                            : "the server requires other credentials; check the user and password, or the "
                              "token file"));
    case 403:
      return Error(ErrorCode::denied, reason(writes ? "the server permits no writing with these credentials"
                                                    : "the server permits no reading with these credentials"));
    case 407: return Error(ErrorCode::io, reason("the proxy requires a user and a password"));
    case 405:
      if (writes) return Error(ErrorCode::denied, reason("the server permits no writing"));
      break;
    case 413:
      return Error(method == HttpMethod::put ? ErrorCode::unsupported : ErrorCode::io,
                   reason("the server permits no object of this size; raise its limit"));
    case 429:
    case 503: return Error(ErrorCode::io, reason("the server is overloaded"));
    case 507: return Error(ErrorCode::io, reason("the server is full"));
    default: break;
  }
  if (status >= 300 && status < 400)
    return Error(ErrorCode::io, reason("the server redirects in a way that this request does not follow"));
  return Error(ErrorCode::io, reason("the server failed, or is no store"));
}

class HttpStore final : public ObjectStore {
 public:
  /// `secret` is null if the options name no file.
  HttpStore(const StoreUrl& url, HttpAddress address, std::unique_ptr<SecretFile> secret)
      : display_(url.display()),
        address_(std::move(address)),
        is_bazel_(url.option("layout") == "bazel"),
        ca_(url.option("ca")),
        access_{url.user, url.password, {}, url.option("unix_socket")},
        secret_(std::move(secret)),
        is_token_(!url.option("token_file").empty()) {}

  Result<std::optional<std::vector<std::byte>>> get(const std::string& path, const CallLimit& limit) override {
    HttpAnswer answer = KILN_TRY(call(HttpMethod::get, path, {}, limit, {200, 404, 410}));
    if (answer.status != 200) return std::optional<std::vector<std::byte>>();
    return std::optional(std::move(answer.body));
  }

  Result<void> put(const std::string& path, std::span<const std::byte> bytes, const CallLimit& limit) override {
    KILN_TRY(check_upload(display_, path, bytes.size()));
    KILN_TRY(call(HttpMethod::put, path, bytes, limit, {200, 201, 204}));
    return {};
  }

  Result<bool> has(const std::string& path, const CallLimit& limit) override {
    const HttpAnswer answer = KILN_TRY(call(HttpMethod::head, path, {}, limit, {200, 204, 404, 410}));
    return answer.status < 400;
  }

  Result<void> remove(const std::string& path, const CallLimit& limit) override {
    KILN_TRY(call(HttpMethod::remove, path, {}, limit, {200, 202, 204, 404, 410}));
    return {};
  }

  Result<std::vector<std::string>> list(const std::string& folder, const CallLimit& limit) override {
    if (is_bazel_)
      return Error(ErrorCode::unsupported,
                   fmt::format("{} cannot be listed: layout=bazel hides the names of objects", display_));
    const HttpAnswer answer = KILN_TRY(call(HttpMethod::list, folder + "/", {}, limit, {207, 404, 410}));
    if (answer.status != 207) return std::vector<std::string>();
    auto names = names_in_multistatus(
        {reinterpret_cast<const char*>(answer.body.data()), answer.body.size()},
        address_.url.substr(address_.url.find('/', address_.scheme.size() + 3)) + "/" + folder + "/");
    if (names) return names;
    return Error(names.error().code(),
                 fmt::format("cannot list {}/{}: the server sent {}", display_, folder, names.error().message()));
  }

  std::size_t useful_streams() const noexcept override { return max_idle_connections; }

 private:
  /// The credentials as they are now.
  Result<HttpAccess> access() {
    HttpAccess now = access_;
    if (secret_) (is_token_ ? now.token : now.password) = KILN_TRY(secret_->read());
    return now;
  }

  /// An answer with one of the statuses `expected`; other answers become errors.
  Result<HttpAnswer> call(HttpMethod method, const std::string& path, std::span<const std::byte> body,
                          const CallLimit& limit, std::initializer_list<long> expected) {
    auto answer = follow(method, path, body, limit, expected);
    if (answer.ok()) return answer;
    return Error(answer.error().code(),
                 fmt::format("cannot {} {}/{}: {}", name_of(method), display_, path, answer.error().message()));
  }

  Result<HttpAnswer> follow(HttpMethod method, const std::string& path, std::span<const std::byte> body,
                            const CallLimit& limit, std::initializer_list<long> expected) {
    KILN_TRY(pool_.check_process());
    const HttpAccess access = KILN_TRY(this->access());
    HttpAddress address = address_;
    address.url += is_bazel_ ? "/ac/" + base::sha256(path).hex() : "/" + path;
    bool at_store = true;
    for (int redirects = 0;; ++redirects) {
      HttpAnswer answer = KILN_TRY(pool_.exchange(
          {.method = method,
           .address = address,
           .body = body,
           .access = at_store ? &access : nullptr,
           .ca = ca_,
           .max_answer_bytes = method == HttpMethod::list ? max_folder_list_bytes : max_object_bytes},
          limit));
      if (std::ranges::find(expected, answer.status) != expected.end()) return answer;
      if (!is_redirect(method, answer.status) || answer.redirect.empty())
        return refusal(method, answer.status, !at_store);
      if (redirects == max_redirects) return Error(ErrorCode::io, "the server redirects more than five times");
      auto next = HttpAddress::parse(answer.redirect);
      if (!next) return Error(ErrorCode::io, "the server redirects to what is no address of an HTTP server");
      if (address.scheme == "https" && next->scheme == "http")
        return Error(ErrorCode::io, "the server redirects from https to http, which is refused");
      if ((method == HttpMethod::put || method == HttpMethod::remove) && next->origin != address_.origin)
        return Error(ErrorCode::io, "the server redirects to another one, where Kiln does not write; use its URL");
      // Another server could send the request back to an address of its choice; it gets no credentials then.
      at_store = at_store && next->origin == address_.origin;
      address = *std::move(next);
    }
  }

  const std::string display_;
  const HttpAddress address_;
  const bool is_bazel_;
  const std::string ca_;
  /// As in the URL.
  const HttpAccess access_;
  const std::unique_ptr<SecretFile> secret_;
  const bool is_token_;
  HttpPool pool_;
};

}  // namespace

Result<std::unique_ptr<ObjectStore>> make_http_store(const StoreUrl& url) {
  KILN_TRY(start_curl());
  const auto invalid = [&url](std::string_view why) {
    return Error(ErrorCode::invalid_request, fmt::format("the store {} {}", url.display(), why));
  };
  if (!url.option("token_file").empty() &&
      !(url.user.empty() && url.password.empty() && url.option("password_file").empty()))
    return invalid("has a token_file beside a user or a password; remove one of them");
  if (!url.password.empty() && !url.option("password_file").empty())
    return invalid("has a password beside a password_file; remove one of them");
  if (const auto usable = check_certificates(url.option("ca")); !usable) return invalid(usable.error().message());
  auto address = HttpAddress::parse(url.display());
  if (!address) return invalid("has an address that libcurl does not accept");
  // curl_url_get() adds a slash to a URL without a path.
  while (address->url.ends_with('/')) address->url.pop_back();
  std::unique_ptr<SecretFile> secret;
  for (const char* option : {"password_file", "token_file"})
    if (const std::string path = url.option(option); !path.empty()) {
      auto opened = SecretFile::open(path);
      if (!opened) return invalid(opened.error().message());
      secret = *std::move(opened);
    }
  return std::unique_ptr<ObjectStore>(std::make_unique<HttpStore>(url, *std::move(address), std::move(secret)));
}

}  // namespace kiln::store
