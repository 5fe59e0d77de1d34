#include "store/remote/oci_registry.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/sha256.hpp"
#include "base/try.hpp"
#include "store/remote/curl.hpp"
#include "store/remote/oci_manifest.hpp"
#include "store/remote/oci_session.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

/// A registry may ask for larger parts, up to this.
constexpr std::uint64_t max_part_bytes = std::uint64_t{1} << 30;
/// At the end of an upload, a registry hashes the file, and may copy it. Beyond the timeout, it gets the time that
/// one this slow needs.
constexpr std::uint64_t least_stored_bytes_per_second = 16 << 20;

/// The end of sending a file. Not every registry takes parts.
enum class Sent { all, takes_no_parts };

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string header(const HttpAnswer& answer, const char* name) {
  const auto found = answer.headers.find(name);
  return found != answer.headers.end() ? found->second : std::string();
}

std::string named(const Digest& digest) { return "sha256:" + digest.hex(); }

/// Passes on the bytes of a blob, from where the sink ends.
class BlobSink final : public HttpSink {
 public:
  BlobSink(BundleSink& sink, std::uint64_t size) : sink_(sink), size_(size) {}

  Result<void> begin(long status, std::string_view range) override {
    if (status == 200) {
      // The registry sends all of it, though only the rest is missing.
      if (sink_.received() > 0) KILN_TRY(keep(sink_.restart()));
      return {};
    }
    if (range.starts_with(fmt::format("bytes {}-", sink_.received()))) return {};
    return Error(ErrorCode::damaged, "the registry sends another part of the bundle than was asked for");
  }

  Result<void> write(std::span<const std::byte> bytes) override {
    if (bytes.size() > size_ - sink_.received())
      return Error(ErrorCode::damaged,
                   fmt::format("the registry sends more than the {} bytes that the manifest names", size_));
    return keep(sink_.write(bytes));
  }

  /// An error of the sink: trying again does not help.
  const std::optional<Error>& own_error() const noexcept { return own_error_; }

 private:
  Result<void> keep(Result<void> result) {
    if (!result) own_error_ = result.error();
    return result;
  }

  BundleSink& sink_;
  const std::uint64_t size_;
  std::optional<Error> own_error_;
};

class OciRegistry final : public Registry {
 public:
  OciRegistry(const RegistryUrl& url, HttpAddress address, std::uint64_t part_bytes)
      : session_(url, std::move(address)), part_bytes_(part_bytes) {}

  Result<PushedBundle> push(const BundleToPush& bundle, int interrupted, const BundleProgress& progress) override {
    const auto failed = [this](const Error& error) {
      return Error(error.code(), fmt::format("cannot push to {}: {}", url().display(), error.message()));
    };
    if (url().digest)
      return Error(ErrorCode::invalid_request,
                   fmt::format("cannot push to {}: a push needs a tag, not a digest", url().display()));
    auto pushed = push_parts(bundle, interrupted, progress);
    if (pushed) return pushed;
    return failed(pushed.error());
  }

  Result<RegistryBundle> find(int interrupted) override {
    auto found = follow_manifests(interrupted);
    if (found) return found;
    return Error(found.error().code(), fmt::format("cannot pull {}: {}", url().display(), found.error().message()));
  }

  Result<void> download(const RegistryBundle& bundle, BundleSink& sink, int interrupted) override {
    std::uint64_t most = sink.received();
    if (most == bundle.size) return {};
    for (Retries retries(interrupted);;) {
      BlobSink blob(sink, bundle.size);
      const auto got = get_blob(bundle, sink, blob, interrupted);
      if (got && sink.received() == bundle.size) return {};
      Error why = got ? Error(ErrorCode::io, "the registry sends less than the manifest names") : got.error();
      // A connection that breaks again and again still gets forward. Bytes that were there before are no progress:
      // the registry may make the sink forget them.
      if (sink.received() > most) {
        most = sink.received();
        retries = Retries(interrupted);
      }
      if (blob.own_error()) return *blob.own_error();
      if (!retries.after(why))
        return Error(why.code(), fmt::format("cannot pull {}: {}", url().display(), why.message()));
    }
  }

 private:
  const RegistryUrl& url() const noexcept { return session_.url(); }
  CallLimit limit(int interrupted) const { return {.cancelled = interrupted, .idle = url().timeout}; }

  /// Repeats requests that fail. An answer with another status than those expected is an error.
  Result<HttpAnswer> call(const OciRequest& request, std::initializer_list<long> expected, int interrupted) {
    return with_retries(interrupted,
                        [&]() -> Result<HttpAnswer> { return try_once(request, expected, interrupted); });
  }
  Result<HttpAnswer> try_once(const OciRequest& request, std::initializer_list<long> expected, int interrupted) {
    return try_once(request, expected, limit(interrupted));
  }
  Result<HttpAnswer> try_once(const OciRequest& request, std::initializer_list<long> expected,
                              const CallLimit& limit) {
    HttpAnswer answer = KILN_TRY(session_.exchange(request, limit));
    if (std::ranges::find(expected, answer.status) != expected.end()) return answer;
    return session_.refusal(answer, request.purpose);
  }

  Result<PushedBundle> push_parts(const BundleToPush& bundle, int interrupted, const BundleProgress& progress) {
    const BundleToPush config = {
        .digest = base::sha256(oci_empty_config),
        .size = oci_empty_config.size(),
        .read = [](std::uint64_t offset, std::span<std::byte> to) -> Result<std::size_t> {
          const auto rest = std::as_bytes(std::span(oci_empty_config)).subspan(static_cast<std::size_t>(offset));
          std::ranges::copy(rest.first(std::min(rest.size(), to.size())), to.begin());
          return std::min(rest.size(), to.size());
        }};
    KILN_TRY(push_blob(config, interrupted, {}));
    PushedBundle pushed;
    pushed.was_sent = KILN_TRY(push_blob(bundle, interrupted, progress));

    const std::string manifest = make_bundle_manifest(bundle);
    pushed.manifest = base::sha256(manifest);
    const OciRequest request = {.purpose = OciPurpose::to_push(HttpMethod::put, "manifest"),
                                .address = session_.address("manifests/" + url().tag),
                                .body = std::as_bytes(std::span(manifest)),
                                .content_type = oci_manifest_type};
    const HttpAnswer answer = KILN_TRY(call(request, {200, 201, 202}, interrupted));
    const std::string digest = header(answer, "docker-content-digest");
    if (!digest.empty() && digest != named(pushed.manifest))
      return Error(ErrorCode::damaged,
                   fmt::format("the registry {} stored another manifest than was sent", url().registry));
    return pushed;
  }

  Result<bool> has_blob(const BundleToPush& blob, int interrupted) {
    const OciRequest request = {.purpose = OciPurpose::to_push(HttpMethod::head, "file"),
                                .address = session_.address("blobs/" + named(blob.digest))};
    const HttpAnswer answer = KILN_TRY(call(request, {200, 404}, interrupted));
    return answer.status == 200;
  }

  /// Returns whether it was sent.
  Result<bool> push_blob(const BundleToPush& blob, int interrupted, const BundleProgress& progress) {
    if (KILN_TRY(has_blob(blob, interrupted))) return false;
    bool in_parts = blob.size > part_bytes_;
    for (Retries retries(interrupted);;) {
      const Result<Sent> sent =
          in_parts ? send_in_parts(blob, interrupted, progress) : send_at_once(blob, interrupted, progress);
      if (sent && *sent == Sent::all) return true;
      if (sent) {
        in_parts = false;
        continue;
      }
      const bool is_repeated = retries.after(sent.error());
      // The registry may have stored the file, although its answer was lost or came too late. The address to send
      // to does not exist any longer then, which looks like a refusal.
      if (is_repeated || sent.error().code() == ErrorCode::unsupported)
        if (KILN_TRY(has_blob(blob, interrupted))) return true;
      if (!is_repeated) return sent.error();
    }
  }

  /// Where the bytes are to be sent.
  Result<HttpAnswer> begin_upload(int interrupted, const HttpAddress& address) {
    return try_once({.purpose = OciPurpose::to_push(HttpMethod::post, "upload"), .address = address}, {202},
                    interrupted);
  }

  Result<Sent> end_upload(const BundleToPush& blob, HttpAddress to, const HttpSource* source, int interrupted) {
    to.url +=
        fmt::format("{}digest=sha256%3A{}", to.url.find('?') == std::string::npos ? '?' : '&', blob.digest.hex());
    const OciRequest request = {
        .purpose = OciPurpose::to_push(HttpMethod::put, "file"), .address = std::move(to), .source = source};
    CallLimit patient = limit(interrupted);
    patient.idle += std::chrono::seconds(blob.size / least_stored_bytes_per_second);
    KILN_TRY(try_once(request, {200, 201, 204}, patient));
    return Sent::all;
  }

  static HttpSource part_of(const BundleToPush& blob, std::uint64_t first, std::uint64_t size,
                            const BundleProgress& progress) {
    return {
        .size = size,
        .read = [&blob, &progress, first](std::uint64_t offset, std::span<std::byte> to) -> Result<std::size_t> {
          const std::size_t read = KILN_TRY(blob.read(first + offset, to));
          if (progress) progress(first + offset + read);
          return read;
        }};
  }

  Result<Sent> send_at_once(const BundleToPush& blob, int interrupted, const BundleProgress& progress) {
    const HttpAddress uploads = session_.address("blobs/uploads/");
    const HttpAnswer begun = KILN_TRY(begin_upload(interrupted, uploads));
    HttpAddress to = KILN_TRY(session_.location(begun, uploads));
    const HttpSource source = part_of(blob, 0, blob.size, progress);
    return end_upload(blob, std::move(to), &source, interrupted);
  }

  Result<Sent> send_in_parts(const BundleToPush& blob, int interrupted, const BundleProgress& progress) {
    const HttpAddress uploads = session_.address("blobs/uploads/");
    const HttpAnswer begun = KILN_TRY(begin_upload(interrupted, uploads));
    HttpAddress to = KILN_TRY(session_.location(begun, uploads));
    const std::uint64_t least = number(header(begun, "oci-chunk-min-length")).value_or(0);
    const std::uint64_t part_bytes = std::clamp(least, part_bytes_, std::max(part_bytes_, max_part_bytes));
    for (std::uint64_t sent = 0; sent < blob.size;) {
      const std::uint64_t size = std::min(part_bytes, blob.size - sent);
      auto next = send_part(blob, sent, size, to, interrupted, progress);
      if (!next && sent == 0 && next.error().code() == ErrorCode::unsupported) return Sent::takes_no_parts;
      to = KILN_TRY(std::move(next));
      sent += size;
    }
    return end_upload(blob, std::move(to), nullptr, interrupted);
  }

  /// The status of a part that begins elsewhere than the last one ended: libcurl repeats a request if the server
  /// closes an idle connection.
  static constexpr long out_of_order = 416;

  /// Returns where the next part is to be sent. If the connection breaks, asks the registry how much it has.
  Result<HttpAddress> send_part(const BundleToPush& blob, std::uint64_t first, std::uint64_t size, HttpAddress to,
                                int interrupted, const BundleProgress& progress) {
    const std::uint64_t end = first + size;
    for (Retries retries(interrupted); first < end;) {
      const HttpSource source = part_of(blob, first, end - first, progress);
      const std::vector<std::string> headers = {fmt::format("Content-Range: {}-{}", first, end - 1)};
      const auto sent = try_once({.purpose = OciPurpose::to_push(HttpMethod::patch, "file"),
                                  .address = to,
                                  .source = &source,
                                  .headers = headers},
                                 {202, out_of_order}, interrupted);
      if (sent && sent->status != out_of_order) return session_.location(*sent, to);
      const Error why = sent ? Error(ErrorCode::io, "the registry does not take the parts in order") : sent.error();
      if (!retries.after(why)) return why;
      const OciRequest question = {.purpose = OciPurpose::to_push(HttpMethod::get, "upload"), .address = to};
      const HttpAnswer status = KILN_TRY(try_once(question, {204}, interrupted));
      if (status.headers.contains("location")) to = KILN_TRY(session_.location(status, to));
      const std::string range = header(status, "range");
      const auto last = number(std::string_view(range).substr(range.find('-') + 1));
      if (last && *last != 0 && (*last < first - std::min<std::uint64_t>(first, 1) || *last >= end))
        return Error(ErrorCode::io, "the registry lost a part of the file");
      if (last && *last != 0) first = *last + 1;
    }
    return to;
  }

  Result<RegistryBundle> follow_manifests(int interrupted) {
    std::string reference = url().reference();
    std::optional<Digest> wanted = url().digest;
    for (bool is_below_index = false;; is_below_index = true) {
      const std::vector<std::string> accept = {std::string("Accept: ") + oci_accepted_types};
      const OciRequest request = {.purpose = OciPurpose::to_pull((wanted ? "manifest " : "tag ") + reference),
                                  .address = session_.address("manifests/" + reference),
                                  .headers = accept};
      const HttpAnswer answer = KILN_TRY(call(request, {200}, interrupted));
      const std::string_view text(reinterpret_cast<const char*>(answer.body.data()), answer.body.size());
      const Digest digest = base::sha256(text);
      if (wanted && digest != *wanted)
        return Error(ErrorCode::damaged,
                     fmt::format("the registry {} sends another manifest than {}", url().registry, named(*wanted)));
      const OciAnswer parsed = KILN_TRY(parse_bundle_manifest(text));
      if (!parsed.is_index) return RegistryBundle{.manifest = digest, .digest = parsed.digest, .size = parsed.size};
      if (is_below_index) return Error(ErrorCode::unsupported, "the index names another index");
      wanted = parsed.digest;
      reference = named(parsed.digest);
    }
  }

  Result<void> get_blob(const RegistryBundle& bundle, BundleSink& sink, BlobSink& blob, int interrupted) {
    std::vector<std::string> headers;
    if (sink.received() > 0) headers.push_back(fmt::format("Range: bytes={}-", sink.received()));
    const OciRequest request = {.purpose = OciPurpose::to_pull("file " + named(bundle.digest)),
                                .address = session_.address("blobs/" + named(bundle.digest)),
                                .headers = headers,
                                .sink = &blob};
    const HttpAnswer answer = KILN_TRY(try_once(request, {200, 206, 416}, interrupted));
    if (answer.status == 416) KILN_TRY(sink.restart());
    return {};
  }

  OciSession session_;
  const std::uint64_t part_bytes_;
};

}  // namespace

Result<std::unique_ptr<Registry>> make_oci_registry(const RegistryUrl& url, std::uint64_t part_bytes) {
  KILN_TRY(start_curl());
  const auto invalid = [&url](std::string_view why) {
    return Error(ErrorCode::invalid_request, fmt::format("the registry {} {}", url.registry, why));
  };
  if (const auto usable = check_certificates(url.ca); !usable) return invalid(usable.error().message());
  const std::string server = url.registry == "docker.io" ? "registry-1.docker.io" : url.registry;
  auto address = HttpAddress::parse(fmt::format("{}://{}/", url.is_plain_http ? "http" : "https", server));
  if (!address) return invalid("has an address that libcurl does not accept");
  while (address->url.ends_with('/')) address->url.pop_back();
  return std::unique_ptr<Registry>(std::make_unique<OciRegistry>(url, *std::move(address), part_bytes));
}

}  // namespace kiln::store
