#include "store/remote/oci_manifest.hpp"

#include <optional>

#include <fmt/format.h>

#include "base/sha256.hpp"
#include "base/try.hpp"
#include "store/json_text.hpp"
#include "store/remote/curl.hpp"

namespace kiln::store {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* empty_type = "application/vnd.oci.empty.v1+json";
constexpr const char* title_annotation = "org.opencontainers.image.title";
/// No file is longer.
constexpr std::uint64_t max_bundle_bytes = std::uint64_t{1} << 62;
constexpr std::size_t max_quoted = 100;

Error damaged(std::string why) { return Error(ErrorCode::damaged, std::move(why)); }
Error unsupported(std::string why) { return Error(ErrorCode::unsupported, std::move(why)); }

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found != object.end() ? &*found : nullptr;
}

std::string text_of(const Json& object, const char* name) {
  const Json* value = member(object, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::string shown(const std::string& text) { return printable_text(text.substr(0, max_quoted)); }

/// The digest and the size of a descriptor.
Result<OciAnswer> read_descriptor(const Json& descriptor) {
  constexpr std::string_view prefix = "sha256:";
  const std::string digest = text_of(descriptor, "digest");
  const auto hash = digest.starts_with(prefix) ? base::digest_from_hex(digest.substr(prefix.size())) : std::nullopt;
  if (!hash) return damaged("the manifest has a digest that is not sha256: with 64 hexadecimal digits");
  const Json* size = member(descriptor, "size");
  const auto bytes = size != nullptr ? whole_number<std::uint64_t>(*size) : std::nullopt;
  if (!bytes || *bytes == 0 || *bytes > max_bundle_bytes) return damaged("the manifest has no valid size");
  return OciAnswer{.digest = *hash, .size = *bytes};
}

Result<OciAnswer> read_index(const Json& manifests) {
  const Json* only = nullptr;
  for (const Json& descriptor : manifests) {
    if (text_of(descriptor, "artifactType") != bundle_media_type) continue;
    if (only != nullptr)
      return unsupported(
          "it is an index with several bundles; name one by its digest, as in REPOSITORY@sha256:...");
    only = &descriptor;
  }
  if (only == nullptr)
    return unsupported("it is an index without a bundle, such as an image for several platforms");
  OciAnswer answer = KILN_TRY(read_descriptor(*only));
  if (answer.size > max_manifest_bytes) return damaged("the index names a manifest of more than 4 MiB");
  answer.is_index = true;
  return answer;
}

}  // namespace

std::string make_bundle_manifest(const BundleToPush& bundle) {
  const auto digest = [](const Digest& of) { return "sha256:" + of.hex(); };
  const Json config = {{"mediaType", empty_type},
                       {"digest", digest(base::sha256(oci_empty_config))},
                       {"size", oci_empty_config.size()}};
  const Json layer = {{"mediaType", bundle_media_type},
                      {"digest", digest(bundle.digest)},
                      {"size", bundle.size},
                      {"annotations", {{title_annotation, bundle.title}}}};
  const Json manifest = {{"schemaVersion", 2},
                         {"mediaType", oci_manifest_type},
                         {"artifactType", bundle_media_type},
                         {"config", config},
                         {"layers", Json::array({layer})}};
  return manifest.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<OciAnswer> parse_bundle_manifest(std::string_view text) {
  const auto manifest = parse_json(text);
  if (!manifest) return damaged("the manifest is not a JSON object");
  if (const Json* manifests = member(*manifest, "manifests"); manifests != nullptr && manifests->is_array())
    return read_index(*manifests);
  // A manifest without artifactType has the type of its configuration.
  std::string type = text_of(*manifest, "artifactType");
  const Json* config = member(*manifest, "config");
  if (type.empty() && config != nullptr) type = text_of(*config, "mediaType");
  if (type != bundle_media_type)
    return unsupported(fmt::format("it is no bundle but {}", type.empty() ? "an image" : shown(type)));
  const Json* layers = member(*manifest, "layers");
  if (layers == nullptr || !layers->is_array() || layers->size() != 1)
    return damaged("the manifest of a bundle has one layer, and this one does not");
  const Json& layer = layers->front();
  if (const std::string layer_type = text_of(layer, "mediaType"); layer_type != bundle_media_type)
    return damaged(
        fmt::format("the layer is no bundle but {}", layer_type.empty() ? "nothing" : shown(layer_type)));
  return read_descriptor(layer);
}

}  // namespace kiln::store
