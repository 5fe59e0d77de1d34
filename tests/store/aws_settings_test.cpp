#include "store/remote/aws_settings.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fakes/files.hpp"
#include "fakes/servers.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln::store {
namespace {

using fakes::AwsEnvironment;

TEST(AwsSettings, FindsTheSettingsOfAProfile) {
  const std::string text =
      "# a comment\n"
      "aws_access_key_id = outside\n"
      "[default]\r\n"
      "aws_access_key_id=one\r\n"
      "AWS_Secret_Access_Key =  two = 2 \n"
      "; another\n"
      "[ ci ]\n"
      "\taws_access_key_id = three\n"
      "\ts3 =\n"
      "\t\tregion = nested\n"
      "\tregion = eu-west-1\n"
      "no setting\n"
      "[default]\n"
      "region = later\n"
      "[broken\n";
  const auto values = [&text](const char* profile) {
    return find_aws_profile(text, AwsFile::credentials, profile);
  };
  EXPECT_EQ(values("default"),
            (AwsProfile{{"aws_access_key_id", "one"}, {"aws_secret_access_key", "two = 2"}, {"region", "later"}}));
  EXPECT_EQ(values("ci"), (AwsProfile{{"aws_access_key_id", "three"}, {"s3", ""}, {"region", "eu-west-1"}}));
  EXPECT_EQ(values("broken"), std::nullopt);
  EXPECT_EQ(values("missing"), std::nullopt);
}

TEST(AwsSettings, NamesProfilesOfTheConfigFileWithAWord) {
  const std::string text =
      "[default]\nregion = a\n[profile ci]\nregion = b\n[ci]\nregion = c\n[profileci]\nregion = d\n"
      "[profile \"my profile\"]\nregion = e\n[profile 'other one']\nregion = f\n";
  const auto region = [&text](const char* profile) {
    const auto found = find_aws_profile(text, AwsFile::config, profile);
    return found ? found->at("region") : "none";
  };
  EXPECT_EQ(region("default"), "a");
  EXPECT_EQ(region("ci"), "b");
  EXPECT_EQ(region("profileci"), "none");
  EXPECT_EQ(region("my profile"), "e");
  EXPECT_EQ(region("other one"), "f");
}

class AwsFiles : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    fakes::write_file(folder_.path() / name, text);
    return folder_.path() / name;
  }
  static AwsSettings settings(const std::string& options = {}) {
    return AwsSettings::read(parse_store_url("s3://bucket/p?" + options).value()).value();
  }
  static std::string why_no_settings(const std::string& options = {}) {
    const auto read = AwsSettings::read(parse_store_url("s3://bucket/p?" + options).value());
    return read ? "no error" : read.error().message();
  }
  static std::string why_not(const std::string& options = {}) {
    const auto credentials = AwsCredentialSource(settings(options)).read();
    if (credentials) return "no error";
    EXPECT_EQ(credentials.error().code(), ErrorCode::io);
    EXPECT_EQ(credentials.error().message().find("secret-word"), std::string::npos);
    return credentials.error().message();
  }

  const fakes::TemporaryFolder folder_;
};

TEST_F(AwsFiles, TheUrlComesBeforeTheEnvironmentAndTheConfigFile) {
  const std::string config = write("config", "[profile ci]\nregion = from-config\nendpoint_url = http://config\n");
  {
    const AwsEnvironment environment({});
    EXPECT_EQ(settings().region, "us-east-1");
    EXPECT_EQ(settings().endpoint, "");
    EXPECT_EQ(settings().profile, "default");
  }
  {
    const AwsEnvironment environment({{"AWS_CONFIG_FILE", config}, {"AWS_PROFILE", "ci"}});
    EXPECT_EQ(settings().region, "from-config");
    EXPECT_EQ(settings().endpoint, "http://config");
  }
  const AwsEnvironment environment({{"AWS_CONFIG_FILE", config},
                                    {"AWS_PROFILE", "other"},
                                    {"AWS_DEFAULT_REGION", "from-default"},
                                    {"AWS_ENDPOINT_URL", "http://all"}});
  EXPECT_EQ(settings("profile=ci").region, "from-default");
  ::setenv("AWS_REGION", "from-variable", 1);
  ::setenv("AWS_ENDPOINT_URL_S3", "http://s3", 1);
  EXPECT_EQ(settings("profile=ci").region, "from-variable");
  EXPECT_EQ(settings("profile=ci").endpoint, "http://s3");
  EXPECT_EQ(settings("region=from-url&endpoint=http://url").region, "from-url");
  EXPECT_EQ(settings("region=from-url&endpoint=http://url").endpoint, "http://url");
}

TEST_F(AwsFiles, CredentialsOfTheEnvironmentComeBeforeTheFileUnlessTheUrlNamesAProfile) {
  const std::string file = write("credentials",
                                 "[default]\naws_access_key_id = a\naws_secret_access_key = b\n"
                                 "[ci]\naws_access_key_id = c\naws_secret_access_key = d\naws_session_token = e\n");
  const AwsEnvironment environment({{"AWS_SHARED_CREDENTIALS_FILE", file}, {"AWS_ACCESS_KEY_ID", "f"}});
  const auto credentials = [](const std::string& options) {
    return AwsCredentialSource(settings(options)).read().value();
  };
  EXPECT_EQ(credentials({}), (AwsCredentials{"a", "b", ""})) << "an access key without a secret is not used";
  ::setenv("AWS_SECRET_ACCESS_KEY", "g", 1);
  EXPECT_EQ(credentials({}), (AwsCredentials{"f", "g", ""}));
  ::setenv("AWS_SESSION_TOKEN", "h", 1);
  EXPECT_EQ(credentials({}), (AwsCredentials{"f", "g", "h"}));
  EXPECT_EQ(credentials("profile=ci"), (AwsCredentials{"c", "d", "e"}));
  EXPECT_EQ(AwsCredentialSource(settings()).origin(), "AWS_ACCESS_KEY_ID");
  EXPECT_EQ(AwsCredentialSource(settings("profile=ci")).origin(), "the profile ci of " + file);
}

TEST_F(AwsFiles, AnErrorSaysWhereCredentialsWereSearchedFor) {
  const std::string file = write("credentials", "[half]\naws_access_key_id = secret-word\n");
  const std::string variables = "there are no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not ";
  {
    const AwsEnvironment environment({});
    EXPECT_EQ(why_not(), variables + "set, and there is no file /does/not/exist");
  }
  {
    const AwsEnvironment environment({{"AWS_SHARED_CREDENTIALS_FILE", file}});
    EXPECT_EQ(why_not(), variables + "set, and " + file + " has no profile default");
    EXPECT_EQ(why_not("profile=half"), "there are no credentials: the profile half of " + file +
                                           " lacks a valid aws_access_key_id or aws_secret_access_key");
  }
  {
    const AwsEnvironment environment(
        {{"AWS_ACCESS_KEY_ID", "secret-word\r\nx-evil: 1"}, {"AWS_SECRET_ACCESS_KEY", "x"}});
    EXPECT_EQ(
        why_not(),
        "there are no credentials: AWS_ACCESS_KEY_ID or AWS_SESSION_TOKEN contains spaces or control characters");
  }
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  const AwsEnvironment environment({});
  ::unsetenv("AWS_SHARED_CREDENTIALS_FILE");
  ::setenv("HOME", folder_.path().c_str(), 1);
  EXPECT_EQ(why_not(), variables + "set, and there is no file " + folder_.path().string() + "/.aws/credentials");
  ::unsetenv("HOME");
  EXPECT_EQ(why_not(), variables + "set, and neither AWS_SHARED_CREDENTIALS_FILE nor HOME is set");
  ::setenv("HOME", home.c_str(), 1);
}

TEST_F(AwsFiles, SettingsThatCannotBeReadAreNotReplacedByThoseOfAws) {
  const std::string config = write("config", "[profile ci]\nendpoint_url = http://config\n");
  const std::string credentials = write("credentials", "[keys]\n");
  const AwsEnvironment environment(
      {{"AWS_CONFIG_FILE", config}, {"AWS_SHARED_CREDENTIALS_FILE", credentials}, {"AWS_PROFILE", "ic"}});
  EXPECT_EQ(why_no_settings(), "needs the profile ic, which neither " + config + " nor " + credentials + " has");
  EXPECT_EQ(why_no_settings("profile=ci"), "no error");
  EXPECT_EQ(why_no_settings("profile=keys"), "no error") << "its server is that of AWS";
  EXPECT_EQ(why_no_settings("profile=default"), "no error");
  const std::string unusable = "needs the settings in " + config + ", which cannot be used: ";
  std::filesystem::permissions(config, std::filesystem::perms::group_write, std::filesystem::perm_options::add);
  EXPECT_EQ(why_no_settings("profile=ci"),
            unusable + "other users can write to it; fix its permissions with 'chmod go-w " + config + "'");
  EXPECT_EQ(why_no_settings("profile=ci&region=a&endpoint=http://b"), "no error") << "the file is not needed";
  std::filesystem::remove(config);
  write("config", std::string((1 << 20) + 1, '#'));
  EXPECT_EQ(why_no_settings("profile=ci"), unusable + "it is longer than 1024 KiB");
  std::filesystem::remove(config);
  EXPECT_EQ(why_no_settings("profile=ci"), "no error") << "there is no such file";
  std::filesystem::create_directory(config);
  EXPECT_EQ(why_no_settings("profile=ci"), unusable + "it is not a file");
}

TEST_F(AwsFiles, CredentialsThatOthersCanWriteToAreRefused) {
  const std::string file = write("credentials", "[default]\naws_access_key_id = a\naws_secret_access_key = b\n");
  std::filesystem::permissions(file, std::filesystem::perms::others_write, std::filesystem::perm_options::add);
  const AwsEnvironment environment({{"AWS_SHARED_CREDENTIALS_FILE", file}});
  EXPECT_NE(why_not().find("cannot be used: other users can write to it"), std::string::npos) << why_not();
}

}  // namespace
}  // namespace kiln::store
