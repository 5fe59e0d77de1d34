#include "store/remote/s3_bucket.hpp"

#include <string_view>

#include <fmt/format.h>

#include "store/remote/http_connection.hpp"
#include "store/remote/s3_answer.hpp"

namespace kiln::store {

Result<S3Bucket> find_bucket(const StoreUrl& url, const AwsSettings& settings) {
  const auto invalid = [](std::string_view why) { return Error(ErrorCode::invalid_request, std::string(why)); };
  if (!is_region(settings.region))
    return invalid("has a region that is not one of lower-case letters, digits and '-'");
  S3Bucket bucket = {.name = url.host, .region = settings.region, .scheme = "https", .host = {}, .root = {}};
  if (settings.endpoint.empty()) {
    bucket.host =
        fmt::format("s3.{}.amazonaws.com{}", bucket.region, bucket.region.starts_with("cn-") ? ".cn" : "");
  } else {
    const auto address = HttpAddress::parse(settings.endpoint);
    if (!address || settings.endpoint.find('@') != std::string::npos)
      return invalid("has an endpoint that is not an address as in https://host:port");
    bucket.scheme = address->scheme;
    bucket.host = address->url.substr(bucket.scheme.size() + 3);
    if (bucket.host.ends_with('/')) bucket.host.pop_back();
    if (bucket.host.find_first_of("/?") != std::string::npos)
      return invalid("has an endpoint with a path; write the path behind the bucket");
  }
  if (bucket.scheme == "http" && !url.option("ca").empty())
    return invalid("has certificates in ca=, which an endpoint of http does not use; write https, or remove ca=");
  // The certificate of AWS is for names without another dot.
  const bool is_virtual_by_default = settings.endpoint.empty() && bucket.name.find('.') == std::string::npos;
  const std::string style = url.option("style");
  if (style == "virtual" || (style.empty() && is_virtual_by_default))
    bucket.host.insert(0, bucket.name + ".");
  else
    bucket.root = "/" + bucket.name;
  return bucket;
}

}  // namespace kiln::store
