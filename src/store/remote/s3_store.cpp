#include "store/remote/s3_store.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/sha256.hpp"
#include "base/try.hpp"
#include "store/remote/aws_settings.hpp"
#include "store/remote/aws_signature.hpp"
#include "store/remote/curl.hpp"
#include "store/remote/http_pool.hpp"
#include "store/remote/s3_answer.hpp"
#include "store/remote/s3_bucket.hpp"
#include "store/remote/s3_refusal.hpp"

namespace kiln::store {
namespace {

/// Enough for a page: 1000 keys of 1 KiB, each character escaped.
constexpr std::size_t max_listing_bytes = 16 << 20;

class S3Store final : public ObjectStore {
 public:
  S3Store(const StoreUrl& url, S3Bucket bucket, AwsSettings settings)
      : display_(url.display()),
        bucket_(std::move(bucket)),
        prefix_(url.path.empty() ? "" : url.path.substr(1) + "/"),
        ca_(url.option("ca")),
        credentials_(std::move(settings)) {}

  Result<std::optional<std::vector<std::byte>>> get(const std::string& path, const CallLimit& limit) override {
    HttpAnswer answer = KILN_TRY(call({.path = path, .expected = {200, absent}}, limit));
    if (answer.status == absent) return std::optional<std::vector<std::byte>>();
    return std::optional(std::move(answer.body));
  }

  Result<void> put(const std::string& path, std::span<const std::byte> bytes, const CallLimit& limit) override {
    KILN_TRY(check_upload(display_, path, bytes.size()));
    KILN_TRY(call({.method = HttpMethod::put, .path = path, .body = bytes, .expected = {200, 201, 204}}, limit));
    return {};
  }

  Result<bool> has(const std::string& path, const CallLimit& limit) override {
    // The answer to HEAD has no body, which would say why the request is refused.
    // 416: it is empty.
    const HttpAnswer answer = KILN_TRY(
        call({.path = path, .headers = {{"range", "bytes=0-0"}}, .expected = {200, 206, 416, absent}}, limit));
    return answer.status != absent;
  }

  Result<void> remove(const std::string& path, const CallLimit& limit) override {
    KILN_TRY(call({.method = HttpMethod::remove, .path = path, .expected = {200, 202, 204, absent}}, limit));
    return {};
  }

  Result<std::vector<std::string>> list(const std::string& folder, const CallLimit& limit) override {
    std::atomic<std::size_t> listed{0};
    auto [names, folders, is_complete] = KILN_TRY(list_pages(folder, "/", all_pages, listed, limit));
    std::ranges::move(folders, std::back_inserter(names));
    return std::move(names);
  }

  Result<std::vector<std::string>> list_all(const std::string& folder, const CallLimit& limit) override {
    std::atomic<std::size_t> listed{0};
    auto top = KILN_TRY(list_pages(folder, {}, 1, listed, limit));
    if (!top.is_complete) {
      // The pages of one listing come one after the other, those of several at once.
      top = KILN_TRY(list_pages(folder, "/", all_pages, listed, limit));
      const auto below = list_at_once(
          top.folders, useful_streams(), [&](const std::string& name) -> Result<std::vector<std::string>> {
            auto names = KILN_TRY(list_pages(folder + "/" + name, {}, all_pages, listed, limit)).names;
            for (std::string& each : names) each.insert(0, name + "/");
            return names;
          });
      for (auto& names : below) std::ranges::copy(KILN_TRY(names), std::back_inserter(top.names));
    }
    for (std::string& name : top.names) name.insert(0, folder + "/");
    return std::move(top.names);
  }

  std::size_t useful_streams() const noexcept override { return max_idle_connections; }

 private:
  /// The status of an object that does not exist. A bucket that does not exist has the same, and is an error.
  static constexpr long absent = 404;

  struct Call {
    HttpMethod method = HttpMethod::get;
    /// Of an object; empty for the bucket itself.
    std::string path = {};
    AwsRequest::Fields query = {};
    AwsRequest::Fields headers = {};
    std::span<const std::byte> body = {};
    /// Other statuses are errors.
    std::vector<long> expected = {};
    std::uint64_t max_answer_bytes = max_object_bytes;
  };

  static constexpr std::size_t all_pages = max_listed_names;
  struct Listed {
    std::vector<std::string> names = {};
    /// Names that continue behind the delimiter, without what follows.
    std::vector<std::string> folders = {};
    bool is_complete = false;
  };

  /// The names of the objects below a folder. `listed` counts the names and the pages of all calls.
  Result<Listed> list_pages(const std::string& folder, const std::string& delimiter, std::size_t pages,
                            std::atomic<std::size_t>& listed, const CallLimit& limit) {
    const std::string above = prefix_ + folder + "/";
    const auto error = [&](std::string_view why) {
      return Error(ErrorCode::io, fmt::format("cannot list {}/{}: {}", display_, folder, why));
    };
    Listed found;
    std::set<Digest> tokens;
    for (std::string token;;) {
      AwsRequest::Fields query = {{"list-type", "2"}, {"prefix", above}};
      if (!delimiter.empty()) query.emplace_back("delimiter", delimiter);
      if (!token.empty()) query.emplace_back("continuation-token", token);
      const HttpAnswer answer = KILN_TRY(
          call({.query = std::move(query), .expected = {200}, .max_answer_bytes = max_listing_bytes}, limit));
      auto page = parse_s3_listing({reinterpret_cast<const char*>(answer.body.data()), answer.body.size()});
      if (!page) return error(fmt::format("{} does not answer as S3 does; check endpoint=", server()));
      // Pages may be empty.
      if ((listed += 1 + page->keys.size() + page->folders.size()) > max_listed_names)
        return error("the server lists more than 2,000,000 objects");
      for (auto* keys : {&page->keys, &page->folders})
        for (std::string& key : *keys) {
          if (!key.starts_with(above)) return error("the server lists objects of another folder");
          key.erase(0, above.size());
          // A key with a slash at its end is a folder that a file manager made.
          const bool is_folder = keys == &page->folders;
          if (is_folder && key.ends_with('/')) key.pop_back();
          if (!key.empty() && !key.ends_with('/'))
            (is_folder ? found.folders : found.names).push_back(std::move(key));
        }
      found.is_complete = page->next.empty();
      if (found.is_complete || tokens.size() + 1 == pages) return found;
      if (!tokens.insert(base::sha256(page->next)).second) return error("the server sends the same page again");
      token = std::move(page->next);
    }
  }

  /// An answer with one of the statuses that are expected; other answers become errors.
  Result<HttpAnswer> call(const Call& call, const CallLimit& limit) {
    auto answer = exchange(call, limit);
    if (answer.ok()) return answer;
    return Error(answer.error().code(), fmt::format("cannot {} {}/{}: {}", name_of(call.method), display_,
                                                    call.path, answer.error().message()));
  }

  Result<HttpAnswer> exchange(const Call& call, const CallLimit& limit) {
    KILN_TRY(pool_.check_process());
    AwsRequest request = {.method = name_of(call.method),
                          .host = bucket_.host,
                          .path = bucket_.root + "/" + (call.path.empty() ? "" : prefix_ + call.path),
                          .query = call.query,
                          .headers = call.headers,
                          .payload_hash = base::sha256(call.body).hex()};
    if (call.method == HttpMethod::put) request.headers.emplace_back("content-type", put_content_type);
    const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
    auto headers = sign_aws_request(request, KILN_TRY(credentials_.read()), bucket_.region, "s3", now);
    headers.insert(headers.end(), call.headers.begin(), call.headers.end());
    HttpAccess access;
    for (const auto& [name, value] : headers) access.headers.push_back(fmt::format("{}: {}", name, value));
    const HttpAddress address = {server() + request.target(), bucket_.scheme, server()};
    auto answer = pool_.exchange({.method = call.method,
                                  .address = address,
                                  .body = call.body,
                                  .access = &access,
                                  .ca = ca_,
                                  .max_answer_bytes = call.max_answer_bytes},
                                 limit);
    if (!answer) return with_server(std::move(answer).error());
    const bool is_expected = std::ranges::find(call.expected, answer->status) != call.expected.end();
    if (is_expected && (answer->status != absent || is_absent_object(*answer))) return answer;
    return s3_refusal(*answer, {.method = call.method,
                                .bucket = bucket_.name,
                                .region = bucket_.region,
                                .server = server(),
                                .credentials = credentials_.origin()});
  }

  /// The URL of the store does not say where its server is.
  Error with_server(Error error) const {
    if (error.code() != ErrorCode::io && error.code() != ErrorCode::timed_out) return error;
    return Error(error.code(), fmt::format("{}: {}", server(), error.message()));
  }

  std::string server() const { return bucket_.scheme + "://" + bucket_.host; }

  const std::string display_;
  const S3Bucket bucket_;
  /// With a slash at its end, or empty.
  const std::string prefix_;
  const std::string ca_;
  AwsCredentialSource credentials_;
  HttpPool pool_;
};

}  // namespace

Result<std::unique_ptr<ObjectStore>> make_s3_store(const StoreUrl& url) {
  KILN_TRY(start_curl());
  const auto invalid = [&url](std::string_view why) {
    return Error(ErrorCode::invalid_request, fmt::format("the store {} {}", url.display(), why));
  };
  if (const auto usable = check_certificates(url.option("ca")); !usable) return invalid(usable.error().message());
  auto settings = AwsSettings::read(url);
  if (!settings) return invalid(settings.error().message());
  auto bucket = find_bucket(url, *settings);
  if (!bucket) return invalid(bucket.error().message());
  return std::unique_ptr<ObjectStore>(std::make_unique<S3Store>(url, *std::move(bucket), *std::move(settings)));
}

}  // namespace kiln::store
