#include "store/remote/aws_settings.hpp"

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

#include "base/process.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "store/remote/secret_file.hpp"

namespace kiln::store {
namespace {

using base::trimmed;

constexpr std::size_t max_file_bytes = 1 << 20;

/// The name of the profile in a line "[...]"; empty if it is another section.
std::string_view profile_of_section(std::string_view line, AwsFile file) {
  if (line.find(']') == std::string_view::npos) return {};
  line = trimmed(line.substr(1, line.find(']') - 1));
  constexpr std::string_view word = "profile";
  if (file == AwsFile::credentials || line == "default") return line;
  if (!line.starts_with(word)) return {};
  const std::string_view name = trimmed(line.substr(word.size()));
  if (name.size() + word.size() == line.size()) return {};
  const bool is_quoted = name.size() > 2 && (name[0] == '"' || name[0] == '\'') && name.back() == name[0];
  return is_quoted ? name.substr(1, name.size() - 2) : name;
}

/// The first variable that is set and not empty.
std::string variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = base::environment(name); value != nullptr && *value != '\0') return value;
  return {};
}

/// The file that the variable names, else `name` in ~/.aws; empty if the home folder is unknown.
std::string aws_file(const char* variable_name, const char* name) {
  if (std::string path = variable({variable_name}); !path.empty()) return path;
  const std::string home = variable({"HOME"});
  return home.empty() ? "" : fmt::format("{}/.aws/{}", home, name);
}

std::string first_of(std::initializer_list<std::string> texts) {
  const auto* found = std::ranges::find_if(texts, [](const std::string& text) { return !text.empty(); });
  return found != texts.end() ? *found : std::string();
}

/// In HTTP, a line break would begin another header.
bool is_printable(const AwsCredentials& credentials) {
  return std::ranges::all_of(credentials.access_key + credentials.session_token,
                             [](char c) { return c > ' ' && c <= '~'; });
}

Result<AwsCredentials> read_credentials(const AwsSettings& settings) {
  const auto none = [&settings](std::string_view what_is_wrong) {
    const std::string_view variables = settings.may_use_variables && !settings.credentials
                                           ? "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and "
                                           : "";
    return Error(ErrorCode::io, fmt::format("there are no credentials: {}{}", variables, what_is_wrong));
  };
  if (settings.credentials) {
    if (is_printable(*settings.credentials)) return *settings.credentials;
    return none("AWS_ACCESS_KEY_ID or AWS_SESSION_TOKEN contains spaces or control characters");
  }
  const std::string& path = settings.credentials_file;
  if (path.empty()) return none("neither AWS_SHARED_CREDENTIALS_FILE nor HOME is set");
  const auto text = read_small_file(path, max_file_bytes, FileAccess::trusted);
  if (!text) return none(fmt::format("{} cannot be used: {}", path, text.error().message()));
  if (!*text) return none(fmt::format("there is no file {}", path));
  auto profile = find_aws_profile(**text, AwsFile::credentials, settings.profile);
  if (!profile) return none(fmt::format("{} has no profile {}", path, settings.profile));
  AwsCredentials found{(*profile)["aws_access_key_id"], (*profile)["aws_secret_access_key"],
                       (*profile)["aws_session_token"]};
  if (found.access_key.empty() || found.secret_key.empty() || !is_printable(found))
    return none(fmt::format("the profile {} of {} lacks a valid aws_access_key_id or aws_secret_access_key",
                            settings.profile, path));
  return found;
}

/// The profile in the file `config`. Empty if there is no such file, or if only the other file has the profile.
Result<AwsProfile> read_config(const AwsSettings& settings) {
  const auto unusable = [](std::string why) { return Error(ErrorCode::invalid_request, std::move(why)); };
  const std::string path = aws_file("AWS_CONFIG_FILE", "config");
  if (path.empty()) return AwsProfile();
  const auto text = read_small_file(path, max_file_bytes, FileAccess::trusted);
  if (!text)
    return unusable(
        fmt::format("needs the settings in {}, which cannot be used: {}", path, text.error().message()));
  if (!*text) return AwsProfile();
  if (auto profile = find_aws_profile(**text, AwsFile::config, settings.profile)) return *std::move(profile);
  if (settings.profile == "default") return AwsProfile();
  const auto other = read_small_file(settings.credentials_file, max_file_bytes, FileAccess::trusted);
  if (other && *other && find_aws_profile(**other, AwsFile::credentials, settings.profile)) return AwsProfile();
  return unusable(fmt::format("needs the profile {}, which neither {} nor {} has", settings.profile, path,
                              settings.credentials_file));
}

}  // namespace

std::optional<AwsProfile> find_aws_profile(std::string_view text, AwsFile file, std::string_view profile) {
  std::optional<AwsProfile> found;
  bool is_inside = false;
  // How far the last setting is indented. Lines that are indented further belong to it.
  constexpr std::size_t none_yet = std::string_view::npos;
  std::size_t indentation = none_yet;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view content = trimmed(line);
    if (content.empty() || content.starts_with('#') || content.starts_with(';')) continue;
    if (content.starts_with('[')) {
      is_inside = profile_of_section(content, file) == profile;
      if (is_inside && !found) found.emplace();
      indentation = none_yet;
      continue;
    }
    const auto spaces = static_cast<std::size_t>(content.data() - line.data());
    const std::size_t equals = content.find('=');
    if (!is_inside || equals == std::string_view::npos || spaces > indentation) continue;
    indentation = spaces;
    found->insert_or_assign(base::to_lower(trimmed(content.substr(0, equals))),
                            std::string(trimmed(content.substr(equals + 1))));
  }
  return found;
}

Result<AwsSettings> AwsSettings::read(const StoreUrl& url) {
  AwsSettings settings;
  settings.profile = first_of({url.option("profile"), variable({"AWS_PROFILE"}), "default"});
  settings.credentials_file = aws_file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
  settings.region = first_of({url.option("region"), variable({"AWS_REGION", "AWS_DEFAULT_REGION"})});
  settings.endpoint = first_of({url.option("endpoint"), variable({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"})});
  if (settings.region.empty() || settings.endpoint.empty()) {
    AwsProfile config = KILN_TRY(read_config(settings));
    settings.region = first_of({settings.region, config["region"], "us-east-1"});
    settings.endpoint = first_of({settings.endpoint, config["endpoint_url"]});
  }
  const AwsCredentials credentials{variable({"AWS_ACCESS_KEY_ID"}), variable({"AWS_SECRET_ACCESS_KEY"}),
                                   variable({"AWS_SESSION_TOKEN"})};
  settings.may_use_variables = url.option("profile").empty();
  if (settings.may_use_variables && !credentials.access_key.empty() && !credentials.secret_key.empty())
    settings.credentials = credentials;
  return settings;
}

AwsCredentialSource::AwsCredentialSource(AwsSettings settings)
    : origin_(settings.credentials
                  ? "AWS_ACCESS_KEY_ID"
                  : fmt::format("the profile {} of {}", settings.profile, settings.credentials_file)),
      credentials_([settings] { return read_credentials(settings); }, read_credentials(settings)) {}

}  // namespace kiln::store
