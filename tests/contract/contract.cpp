#include "contract/contract.hpp"

#include <array>
#include <cstdlib>
#include <map>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract/kernels.hpp"

namespace kiln::contract {
namespace {

/// The environment before any driver was there. The usual loader of OpenCL takes OCL_ICD_FILENAMES apart where it
/// lies, so that a process started later would see its first file alone.
const std::vector<std::string> environment_at_start = [] {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  return variables;
}();

class RunningDrivers : public testing::Environment {
 public:
  Result<std::shared_ptr<Device>> of(const std::string& api) {
    if (const auto running = devices_.find(api); running != devices_.end()) return running->second;
    auto opened = open_device(api);
    if (opened) devices_.emplace(api, *opened);
    return opened;
  }
  void TearDown() override { devices_.clear(); }

 private:
  std::map<std::string, std::shared_ptr<Device>> devices_;
};
auto* const running_drivers = new RunningDrivers;
const auto* const registered = testing::AddGlobalTestEnvironment(running_drivers);

}  // namespace

int run_this_test_elsewhere(const std::filesystem::path& folder) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string self = std::filesystem::read_symlink("/proc/self/exe");
  std::string filter = fmt::format("--gtest_filter={}.{}", test->test_suite_name(), test->name());
  std::string brief = "--gtest_brief=1";
  std::array<char*, 4> arguments = {self.data(), filter.data(), brief.data(), nullptr};
  std::vector<std::string> variables = environment_at_start;
  variables.push_back(fmt::format("{}={}", handed_down, folder.string()));
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  pid_t child = 0;
  if (posix_spawn(&child, self.c_str(), nullptr, nullptr, arguments.data(), environment.data()) != 0) return -1;
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

void Contract::SetUp() {
  auto running = running_drivers->of(GetParam());
  if (!running) {
    // What its first process could open, its second one must.
    ASSERT_EQ(std::getenv(handed_down), nullptr) << running.error().message();
    GTEST_SKIP() << GetParam() << " was skipped: " << running.error().message();
  }
  device_ = *std::move(running);
}

bool Contract::scales(Device& device, Module& module, int factor, float offset) {
  constexpr std::size_t count = 1000;
  std::vector<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<float>(i);
  const auto x = upload(device, numbers).value();
  const auto y = upload(device, std::vector<float>(count)).value();
  const Launch launch = scale(factor).launch({16, 1, 1}, {x.get(), y.get()}, {std::int32_t{count}, offset}).value();
  device.launch(module, launch).value();
  const auto results = download<float>(device, *y).value();
  for (std::size_t i = 0; i < count; ++i)
    if (results[i] != static_cast<float>(i) * static_cast<float>(factor) + offset) return false;
  return true;
}

}  // namespace kiln::contract
