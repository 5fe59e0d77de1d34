#include "store/remote/s3_refusal.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string_view>

#include <curl/curl.h>
#include <fmt/format.h>

#include "store/remote/s3_answer.hpp"

namespace kiln::store {
namespace {

/// What is wrong with the credentials, which are named after it.
struct CredentialFault {
  std::string_view code;
  std::string_view why;
};
constexpr std::array credential_faults = {
    CredentialFault{"InvalidAccessKeyId", "the server does not know the access key"},
    CredentialFault{"SignatureDoesNotMatch", "the secret key does not belong to the access key"},
    CredentialFault{"ExpiredToken", "the session token has expired; get new credentials"},
    CredentialFault{"TokenRefreshRequired", "the session token has expired; get new credentials"},
    CredentialFault{"InvalidToken", "the session token is wrong"},
};

/// As in "15 minutes ahead of"; nothing if the server sends no Date.
std::optional<std::string> clock_difference(const HttpAnswer& answer) {
  const auto date = answer.headers.find("date");
  const time_t server = date != answer.headers.end() ? curl_getdate(date->second.c_str(), nullptr) : -1;
  if (server < 0) return std::nullopt;
  const std::chrono::seconds ahead(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()) - server);
  const auto minutes = std::chrono::round<std::chrono::minutes>(std::chrono::abs(ahead));
  const std::string amount = minutes < std::chrono::hours(2)
                                 ? fmt::format("{} minutes", minutes.count())
                                 : fmt::format("{} hours", std::chrono::round<std::chrono::hours>(minutes).count());
  return amount + (ahead.count() > 0 ? " ahead of" : " behind");
}

std::string region_of_bucket(const HttpAnswer& answer, const S3Refusal& refusal) {
  if (!refusal.region.empty()) return refusal.region;
  const auto header = answer.headers.find("x-amz-bucket-region");
  return header != answer.headers.end() && is_region(header->second) ? header->second : std::string();
}

}  // namespace

bool is_absent_object(const HttpAnswer& answer) {
  if (answer.status != 404) return false;
  const auto refusal = parse_s3_refusal(answer.other_body);
  return refusal && refusal->code == "NoSuchKey";
}

Error s3_refusal(const HttpAnswer& answer, const S3RequestContext& context) {
  const auto refusal = parse_s3_refusal(answer.other_body).value_or(S3Refusal());
  const std::string& code = refusal.code;
  const auto error = [&](ErrorCode kind, std::string_view why) {
    return Error(kind, fmt::format("{} ({}{}status {})", why, code, code.empty() ? "" : ", ", answer.status));
  };
  const auto io = [&](std::string_view why) { return error(ErrorCode::io, why); };

  if (const std::string region = region_of_bucket(answer, refusal); !region.empty() && region != context.region)
    return io(fmt::format("the bucket {} is in the region {}; set region={}", context.bucket, region, region));
  if (const auto* fault = std::ranges::find(credential_faults, code, &CredentialFault::code);
      fault != credential_faults.end())
    return io(fmt::format("{}: check {}", fault->why, context.credentials));
  if (code == "RequestTimeTooSkewed") {
    const auto difference = clock_difference(answer);
    return io(difference ? fmt::format("the clock of this machine is {} the server's; set it", *difference)
                         : "the clock of this machine differs from the server's; set it");
  }
  if (code == "NoSuchBucket")
    return io(fmt::format("{} has no bucket {}; create it, or check endpoint=", context.server, context.bucket));
  if (code == "AccessDenied")
    return error(ErrorCode::denied,
                 context.method == HttpMethod::put ? "these credentials permit no writing; allow s3:PutObject"
                 : context.method == HttpMethod::remove
                     ? "these credentials permit no removal; allow s3:DeleteObject"
                     : "these credentials permit no reading; allow s3:GetObject and s3:ListBucket");
  if (code == "InvalidObjectState")
    return error(ErrorCode::unsupported, "the object is in an archive such as Glacier; restore it, or remove it");
  if (code == "EntityTooLarge" || answer.status == 413)
    return error(context.method == HttpMethod::put ? ErrorCode::unsupported : ErrorCode::io,
                 "the server permits no object of this size");
  if (code == "XAmzContentSHA256Mismatch" || code == "BadDigest")
    return io("the object was altered on its way to the server");
  if (answer.status == 407) return io("the proxy requires a user and a password");
  if (answer.status == 429 || answer.status == 503) return io("the server is overloaded");
  if (answer.status == 507) return io("the server is full");
  if (answer.status >= 500) return io("the server failed");
  if (code.empty() && answer.cut)
    return Error(answer.cut->code(), fmt::format("{}: {}", context.server, answer.cut->message()));
  if (code.empty()) return io(fmt::format("{} does not answer as S3 does; check endpoint=", context.server));
  return io("the server refuses the request");
}

}  // namespace kiln::store
