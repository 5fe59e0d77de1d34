#include "backend/source_text.hpp"

#include <gtest/gtest.h>

#include "backend/header_folders.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln {
namespace {

Request request(std::string name, Language language, std::string header = "") {
  Request::Fields fields{.name = std::move(name), .source = "x", .entries = {"x"}, .language = language};
  if (!header.empty()) {
    fields.source = "#include \"" + header + "\"\nx";
    fields.headers = {{header, "y"}};
  }
  return Request(std::move(fields));
}

std::string message(const Request& request, const std::string& log) {
  return backend::compile_message(request, log);
}

TEST(CompileMessage, AProgramMayBeCalledAnError) {
  EXPECT_EQ(message(request("error_diffusion", Language::opencl),
                    "error_diffusion:3:5: warning: unused variable 'x'\n"
                    "error_diffusion:7:9: error: use of undeclared identifier 'y'\n"),
            "error_diffusion does not compile, line 7: error: use of undeclared identifier 'y'");
  EXPECT_EQ(message(request("error_diffusion", Language::vulkan_glsl),
                    "error_diffusion:3: warning: odd\nerror_diffusion:7: error: 'y' : undeclared identifier\n"),
            "error_diffusion does not compile, line 7: error: 'y' : undeclared identifier");
}

TEST(CompileMessage, AVariableMayBeCalledAnError) {
  EXPECT_EQ(message(request("conv", Language::cuda),
                    "conv(3): warning #177-D: variable \"error\" was declared but never referenced\n"
                    "    float error = 1.0f;\n"
                    "conv(7): error: identifier \"y\" is undefined\n"),
            "conv does not compile, line 7: error: identifier \"y\" is undefined");
}

TEST(CompileMessage, AShortNameIsFoundBehindTheWordsThatHaveItsLetters) {
  EXPECT_EQ(message(request("r", Language::opencl), "error: r:5:3: use of undeclared identifier 'y'\n"),
            "r does not compile, line 5: use of undeclared identifier 'y'");
  EXPECT_EQ(message(request("e", Language::hip), "e:2:1: error: no\n"), "e does not compile, line 2: error: no");
}

TEST(CompileMessage, AFileIsNotTakenForOneWhoseNameEndsAlike) {
  EXPECT_EQ(message(request("conv", Language::opencl, "my_conv"), "my_conv:4:1: error: no\n"),
            "conv does not compile, my_conv line 4: error: no");
  EXPECT_EQ(message(request("conv", Language::opencl, "my conv"), "my conv:4:1: error: no\n"),
            "conv does not compile, my conv line 4: error: no");
  EXPECT_EQ(message(request("conv", Language::opencl), "/usr/share/conv:4:1: error: no\n"),
            "conv does not compile: /usr/share/conv:4:1: error: no");
  EXPECT_EQ(message(request("h", Language::opencl), "conv.h:4:1: error: no\n"),
            "h does not compile: conv.h:4:1: error: no");
}

TEST(CompileMessage, AnErrorWithoutAPlaceIsToldAsItIs) {
  EXPECT_EQ(message(request("conv", Language::cuda), "nvrtc: error: invalid option\n"),
            "conv does not compile: nvrtc: error: invalid option");
  EXPECT_EQ(message(request("conv", Language::cuda), "conv(3): warning: odd\n"), "conv does not compile");
  EXPECT_EQ(message(request("", Language::cuda), "(3): error: no\n"), " does not compile: (3): error: no");
}

TEST(HeaderFolders, LogsNameTheFoldersThatWereGiven) {
  const fakes::TemporaryFolder folder;
  Request::Fields fields{.name = "conv",
                         .source = "#include \"given.h\"\n#include \"file.h\"\n",
                         .language = Language::opencl,
                         .headers = {{"given.h", ""}}};
  for (int i = 0; i < 12; ++i) fields.include_folders.push_back(folder.path() / ("it's " + std::to_string(i)));
  for (const auto& one : fields.include_folders) fakes::write_file(one / "file.h", "");
  const Request request(fields);
  ASSERT_FALSE(request.error());
  const auto folders = backend::HeaderFolders::create(request).value();
  ASSERT_EQ(folders.paths().size(), 13U);
  EXPECT_EQ(folders.with_names(folders.paths()[0] + "/given.h:1: error"), "given.h:1: error");
  for (std::size_t i = 0; i < 12; ++i) {
    const std::string& path = folders.paths()[i + 1];
    EXPECT_EQ(path.find('\''), std::string::npos);
    EXPECT_EQ(
        folders.with_names("in " + path + "/file.h:1 of '" + path + "'"),
        "in " + fields.include_folders[i].string() + "/file.h:1 of '" + fields.include_folders[i].string() + "'");
  }
}

}  // namespace
}  // namespace kiln
