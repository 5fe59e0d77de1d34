#include "store/store_url.hpp"

#include <chrono>
#include <string>
#include <string_view>

#include "fuzz/input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  const std::string_view text = fuzz::Input(data, size).rest();
  const auto url = store::parse_store_url(text);
  if (!url) {
    constexpr std::size_t longest_message = 200;
    fuzz::expect(url.error().code() == ErrorCode::invalid_request, "a wrong URL is an invalid request");
    fuzz::expect(url.error().message().size() < longest_message, "no message repeats the URL");
    return 0;
  }
  store::StoreUrl without_secrets = *url;
  without_secrets.user.clear();
  without_secrets.password.clear();
  without_secrets.options.clear();
  fuzz::expect(url->display() == without_secrets.display(), "secrets make no difference to what is shown");
  fuzz::expect(url->timeout >= std::chrono::milliseconds(1) && url->timeout <= std::chrono::hours(1),
               "a time limit is between a millisecond and an hour");
  fuzz::expect(url->host.find_first_of("@/? \r\n") == std::string::npos, "a host is one word");
  fuzz::expect(url->is_network() || url->path.starts_with('/'), "the path of a folder is absolute");
  const bool is_http =
      url->scheme == store::StoreUrl::Scheme::http || url->scheme == store::StoreUrl::Scheme::https;
  if (url->scheme == store::StoreUrl::Scheme::s3) {
    fuzz::expect(url->host.find_first_of(":[_") == std::string::npos && url->user.empty() && url->password.empty(),
                 "a bucket has neither a port nor a user");
    fuzz::expect((url->path + "/").find("//") == std::string::npos && !url->path.ends_with('/'),
                 "a prefix has no empty part");
  }
  fuzz::expect(!is_http || url->path.find('@') == std::string::npos, "no password is taken for a path");
  for (const char* name : {"ca", "password_file", "token_file", "unix_socket"})
    fuzz::expect(!url->options.contains(name) || url->option(name).starts_with('/'),
                 "the path of a file is absolute");
  fuzz::expect(url->path.find('\0') == std::string::npos, "no path contains a NUL");
  return 0;
}
