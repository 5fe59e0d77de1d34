#include "store/remote/aws_signature.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/sha256.hpp"
#include "base/text.hpp"

namespace kiln::store {
namespace {

constexpr std::string_view algorithm = "AWS4-HMAC-SHA256";

Digest hmac_sha256(std::string_view key, std::string_view text) {
  Digest digest;
  unsigned size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(digest.bytes.data()), &size) == nullptr)
    throw std::runtime_error("OpenSSL cannot compute an HMAC");
  return digest;
}

std::string_view bytes_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

std::string encoded_path(const AwsRequest& request) { return uri_encode(request.path, "/"); }

/// Sorted, which S3 accepts in requests and requires in signatures.
std::string encoded_query(const AwsRequest& request) {
  AwsRequest::Fields encoded;
  for (const auto& [name, value] : request.query) encoded.emplace_back(uri_encode(name), uri_encode(value));
  std::ranges::sort(encoded);
  std::string query;
  for (const auto& [name, value] : encoded) query += fmt::format("{}{}={}", query.empty() ? "" : "&", name, value);
  return query;
}

/// Without spaces at the ends, and with single spaces between words.
std::string single_spaced(std::string_view value) {
  std::string words;
  while (true) {
    value = base::trimmed(value);
    if (value.empty()) return words;
    const std::size_t end = std::min(value.find_first_of(base::blanks), value.size());
    if (!words.empty()) words += ' ';
    words += value.substr(0, end);
    value.remove_prefix(end);
  }
}

/// Names in lower case and sorted; the values of a name that is there twice are joined.
AwsRequest::Fields canonical_headers(AwsRequest::Fields headers) {
  for (auto& [name, value] : headers) {
    name = base::to_lower(name);
    value = single_spaced(value);
  }
  std::ranges::stable_sort(headers, {}, &AwsRequest::Fields::value_type::first);
  AwsRequest::Fields joined;
  for (auto& [name, value] : headers) {
    if (!joined.empty() && joined.back().first == name)
      joined.back().second += "," + value;
    else
      joined.emplace_back(std::move(name), std::move(value));
  }
  return joined;
}

/// As in "20260131T235959Z".
std::string timestamp(std::chrono::sys_seconds time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", int{date.year()}, unsigned{date.month()},
                     unsigned{date.day()}, clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

}  // namespace

std::string AwsRequest::target() const {
  const std::string query_text = encoded_query(*this);
  return encoded_path(*this) + (query_text.empty() ? "" : "?" + query_text);
}

std::string uri_encode(std::string_view text, std::string_view also_plain) {
  std::string encoded;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                          c == '_' || c == '.' || c == '~' || also_plain.find(c) != std::string_view::npos;
    if (is_plain)
      encoded += c;
    else
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

AwsRequest::Fields sign_aws_request(const AwsRequest& request, const AwsCredentials& credentials,
                                    std::string_view region, std::string_view service,
                                    std::chrono::sys_seconds time) {
  const std::string now = timestamp(time);
  const std::string day = now.substr(0, 8);
  AwsRequest::Fields own = {
      {"host", request.host}, {"x-amz-content-sha256", request.payload_hash}, {"x-amz-date", now}};
  if (!credentials.session_token.empty()) own.emplace_back("x-amz-security-token", credentials.session_token);

  AwsRequest::Fields signed_headers = request.headers;
  signed_headers.insert(signed_headers.end(), own.begin(), own.end());
  std::string lines;
  std::string names;
  for (const auto& [name, value] : canonical_headers(std::move(signed_headers))) {
    lines += fmt::format("{}:{}\n", name, value);
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, encoded_path(request),
                                            encoded_query(request), lines, names, request.payload_hash);
  const std::string scope = fmt::format("{}/{}/{}/aws4_request", day, region, service);
  const std::string text = fmt::format("{}\n{}\n{}\n{}", algorithm, now, scope, base::sha256(canonical).hex());

  const Digest day_key = hmac_sha256("AWS4" + credentials.secret_key, day);
  const Digest region_key = hmac_sha256(bytes_of(day_key), region);
  const Digest service_key = hmac_sha256(bytes_of(region_key), service);
  const Digest key = hmac_sha256(bytes_of(service_key), "aws4_request");
  own.emplace_back("authorization",
                   fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", algorithm,
                               credentials.access_key, scope, names, hmac_sha256(bytes_of(key), text).hex()));
  return own;
}

}  // namespace kiln::store
