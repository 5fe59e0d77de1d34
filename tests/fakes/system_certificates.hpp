#pragma once

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>

#include <sched.h>
#include <sys/mount.h>

#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln::fakes {

/// Runs `body` in a process whose system trusts `certificate`, in the folder of hashed names that libcurl uses by
/// default. Returns "not permitted" if this process may not mount.
inline std::string in_child_that_trusts(const std::filesystem::path& certificate,
                                        const std::function<std::string()>& body) {
  constexpr const char* system_folder = "/etc/ssl/certs";
  const TemporaryFolder folder;
  const std::string command = "openssl x509 -noout -hash -in " + certificate.string();
  FILE* pipe = popen(command.c_str(), "r");
  char hash[9] = {};
  if (pipe == nullptr || std::fread(hash, 1, 8, pipe) != 8) std::abort();
  pclose(pipe);
  std::filesystem::copy(certificate, folder.path() / (std::string(hash) + ".0"));
  // Without this file, libcurl refuses all certificates.
  std::filesystem::copy(certificate, folder.path() / "ca-certificates.crt");
  return in_child([&]() -> std::string {
    if (unshare(is_root() ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(folder.path().c_str(), system_folder, nullptr, MS_BIND, nullptr) != 0)
      return "not permitted";
    return body();
  });
}

}  // namespace kiln::fakes
