#include "base/dynamic_library.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace kiln::base {
namespace {

TEST(DynamicLibrary, ThatIsMissingIsNamedInTheError) {
  const auto library = DynamicLibrary::open("libkiln_not_there.so.9");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code(), ErrorCode::no_device);
  EXPECT_NE(library.error().message().find("libkiln_not_there.so.9"), std::string::npos);
}

TEST(DynamicLibrary, GivesItsFunctionsAndNullForOthers) {
  const auto library = DynamicLibrary::open("libc.so.6");
  ASSERT_TRUE(library);
  auto* function = library->function<pid_t()>("getpid");
  ASSERT_NE(function, nullptr);
  EXPECT_EQ(function(), getpid());
  EXPECT_EQ(library->function<void()>("kiln_no_such_function"), nullptr);
}

TEST(DynamicLibrary, ThatIsNotLoadedIsEmptyAndHasNoFunctions) {
  const DynamicLibrary library = DynamicLibrary::loaded("libkiln_not_there.so.9");
  EXPECT_FALSE(library);
  EXPECT_EQ(library.function<void()>("getpid"), nullptr);
  EXPECT_TRUE(DynamicLibrary::loaded("libc.so.6"));
}

TEST(DynamicLibrary, OpenedForGoodStaysInTheProcess) {
  constexpr const char* name = "libanl.so.1";
  ASSERT_TRUE(DynamicLibrary::open(name));
#if !defined(__SANITIZE_ADDRESS__)  // There nothing is unloaded; see keep_libraries.cpp.
  EXPECT_FALSE(DynamicLibrary::loaded(name));
#endif
  ASSERT_TRUE(DynamicLibrary::open_for_good(name));
  EXPECT_TRUE(DynamicLibrary::loaded(name));
}

TEST(DynamicLibrary, IsHandedOnByMoving) {
  DynamicLibrary first = DynamicLibrary::open("libc.so.6").value();
  DynamicLibrary second = std::move(first);
  EXPECT_FALSE(first);
  ASSERT_TRUE(second);
  first = std::move(second);
  EXPECT_TRUE(first);
  EXPECT_NE(first.function<pid_t()>("getpid"), nullptr);
}

}  // namespace
}  // namespace kiln::base
