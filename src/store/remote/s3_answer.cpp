#include "store/remote/s3_answer.hpp"

#include "store/remote/xml.hpp"

namespace kiln::store {
namespace {

/// Whether the text is not empty, not long, and consists of characters in `allowed`.
bool is_word(std::string_view text, std::string_view allowed) {
  constexpr std::size_t max_size = 64;
  return !text.empty() && text.size() <= max_size && text.find_first_not_of(allowed) == std::string_view::npos;
}

}  // namespace

bool is_region(std::string_view text) { return is_word(text, "abcdefghijklmnopqrstuvwxyz0123456789-"); }

std::optional<S3Refusal> parse_s3_refusal(std::string_view text) {
  constexpr std::string_view code_characters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  S3Refusal refusal;
  const bool is_sound = read_xml(text, [&](std::string_view path, std::string_view value) {
    if (path == "Error/Code") refusal.code = value;
    if (path == "Error/Region") refusal.region = value;
  });
  if (!is_sound || !is_word(refusal.code, code_characters)) return std::nullopt;
  if (!is_region(refusal.region)) refusal.region.clear();
  return refusal;
}

std::optional<S3Listing> parse_s3_listing(std::string_view text) {
  S3Listing listing;
  bool is_listing = false;
  bool is_truncated = false;
  const bool is_sound = read_xml(text, [&](std::string_view path, std::string_view value) {
    if (path == "ListBucketResult") is_listing = true;
    if (path == "ListBucketResult/IsTruncated") is_truncated = value == "true";
    if (path == "ListBucketResult/NextContinuationToken") listing.next = value;
    if (path == "ListBucketResult/Contents/Key") listing.keys.emplace_back(value);
    if (path == "ListBucketResult/CommonPrefixes/Prefix") listing.folders.emplace_back(value);
  });
  if (!is_sound || !is_listing || (is_truncated && listing.next.empty())) return std::nullopt;
  if (!is_truncated) listing.next.clear();
  return listing;
}

}  // namespace kiln::store
