#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kiln/request.hpp>

#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "key/record_writer.hpp"
#include "key/request_record.hpp"

namespace kiln::key {

/// A folder for files that requests include, and a record beside it.
class RecordTest : public testing::Test {
 protected:
  static Request request(int number) {
    return Request({.name = fakes::numbered("program", number),
                    .source = "source of program " + std::to_string(number),
                    .language = Language::opencl});
  }
  void write(const std::string& name, std::string_view text) const { fakes::write_file(files_ / name, text); }
  RequestRecord read() const { return RequestRecord::read(path_).value(); }
  static std::vector<std::string> names(const RequestRecord& record) {
    std::vector<std::string> names;
    for (const auto& entry : record.entries()) names.push_back(entry.key.name);
    return names;
  }

  /// Records a request, removes the files that it includes, and rebuilds it elsewhere.
  RequestRecord::Rebuilt rebuild_elsewhere(const Request& request) {
    EXPECT_FALSE(request.error()) << request.error()->message();
    RecordWriter writer(path_);
    const auto added = writer.add(request, "api", std::chrono::milliseconds(5));
    EXPECT_TRUE(added) << added.error().message();
    std::filesystem::remove_all(files_);
    const auto record = read();
    return record.rebuild(record.entries().back(), folder_.path() / "elsewhere" / "deep").value();
  }
  void expect_rebuilt(const Request& request) {
    const auto rebuilt = rebuild_elsewhere(request);
    EXPECT_EQ(rebuilt.difference, "");
    EXPECT_EQ(rebuilt.request.key().digest, request.key().digest);
    std::filesystem::remove_all(folder_.path() / "elsewhere");
  }

  fakes::TemporaryFolder folder_{fakes::memory_place()};
  const std::filesystem::path files_ = folder_.path() / "files";
  const std::filesystem::path path_ = folder_.path() / "app.kilnreq";
};

}  // namespace kiln::key
