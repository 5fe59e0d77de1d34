#include "store/remote/aws_settings.hpp"

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

#include "base/process.hpp"
#include "store/remote/secret_file.hpp"

namespace kiln::store {
namespace {

constexpr std::size_t max_file_bytes = 1 << 20;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view spaces = " \t\r";
  text.remove_prefix(std::min(text.find_first_not_of(spaces), text.size()));
  return text.substr(0, text.find_last_not_of(spaces) + 1);
}

/// The name of the profile in a line "[...]"; empty if it is another section.
std::string_view profile_of_section(std::string_view line, AwsFile file) {
  if (line.find(']') == std::string_view::npos) return {};
  line = trimmed(line.substr(1, line.find(']') - 1));
  constexpr std::string_view word = "profile";
  if (file == AwsFile::credentials || line == "default") return line;
  const bool has_word = line.starts_with(word) && trimmed(line.substr(word.size())) != line.substr(word.size());
  return has_word ? trimmed(line.substr(word.size())) : std::string_view();
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
  const auto text = read_small_file(path, max_file_bytes);
  if (!text) return none(fmt::format("{} cannot be read: {}", path, text.error().message()));
  auto profile = find_aws_profile(*text, AwsFile::credentials, settings.profile);
  if (!profile) return none(fmt::format("{} has no profile {}", path, settings.profile));
  AwsCredentials found{(*profile)["aws_access_key_id"], (*profile)["aws_secret_access_key"],
                       (*profile)["aws_session_token"]};
  if (found.access_key.empty() || found.secret_key.empty() || !is_printable(found))
    return none(fmt::format("the profile {} of {} lacks a valid aws_access_key_id or aws_secret_access_key",
                            settings.profile, path));
  return found;
}

}  // namespace

std::optional<AwsProfile> find_aws_profile(std::string_view text, AwsFile file, std::string_view profile) {
  std::optional<AwsProfile> found;
  bool is_inside = false;
  // How far the last setting is indented. Lines that are indented further belong to it.
  std::optional<std::size_t> indentation;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view content = trimmed(line);
    if (content.empty() || content.starts_with('#') || content.starts_with(';')) continue;
    if (content.starts_with('[')) {
      is_inside = profile_of_section(content, file) == profile;
      if (is_inside && !found) found.emplace();
      indentation.reset();
      continue;
    }
    const auto spaces = static_cast<std::size_t>(content.data() - line.data());
    const std::size_t equals = content.find('=');
    if (!is_inside || equals == std::string_view::npos || (indentation && spaces > *indentation)) continue;
    indentation = spaces;
    std::string name(trimmed(content.substr(0, equals)));
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    found->insert_or_assign(std::move(name), std::string(trimmed(content.substr(equals + 1))));
  }
  return found;
}

AwsSettings AwsSettings::read(const StoreUrl& url) {
  AwsSettings settings;
  settings.profile = first_of({url.option("profile"), variable({"AWS_PROFILE"}), "default"});
  AwsProfile config;
  if (const std::string path = aws_file("AWS_CONFIG_FILE", "config"); !path.empty())
    if (const auto text = read_small_file(path, max_file_bytes))
      config = find_aws_profile(*text, AwsFile::config, settings.profile).value_or(AwsProfile());
  settings.region = first_of(
      {url.option("region"), variable({"AWS_REGION", "AWS_DEFAULT_REGION"}), config["region"], "us-east-1"});
  settings.endpoint = first_of(
      {url.option("endpoint"), variable({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}), config["endpoint_url"]});
  const AwsCredentials credentials{variable({"AWS_ACCESS_KEY_ID"}), variable({"AWS_SECRET_ACCESS_KEY"}),
                                   variable({"AWS_SESSION_TOKEN"})};
  settings.may_use_variables = url.option("profile").empty();
  if (settings.may_use_variables && !credentials.access_key.empty() && !credentials.secret_key.empty())
    settings.credentials = credentials;
  settings.credentials_file = aws_file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
  return settings;
}

AwsCredentialSource::AwsCredentialSource(AwsSettings settings)
    : origin_(settings.credentials
                  ? "AWS_ACCESS_KEY_ID"
                  : fmt::format("the profile {} of {}", settings.profile, settings.credentials_file)),
      credentials_([settings] { return read_credentials(settings); }, read_credentials(settings)) {}

}  // namespace kiln::store
