#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <epoxy/gl.h>

#include <kiln/opengl.hpp>

#include "backend/opengl/reflection.hpp"
#include "backend/opengl/share_group.hpp"
#include "backend/pool.hpp"

/// All functions require that a context of the group is current, unless they say otherwise.
namespace kiln::opengl {

/// Owns a program object until release(). The destructor deletes it in the current context.
class ProgramObject {
 public:
  ProgramObject() : id_(glCreateProgram()) {}
  ~ProgramObject() {
    if (id_ != 0) glDeleteProgram(id_);
  }
  ProgramObject(const ProgramObject&) = delete;
  ProgramObject& operator=(const ProgramObject&) = delete;
  GLuint id() const noexcept { return id_; }
  GLuint release() noexcept { return std::exchange(id_, 0); }

 private:
  GLuint id_;
};

/// A program as the driver stores it.
struct Image {
  GLenum format = 0;
  std::vector<std::byte> bytes;
};

/// The driver's binary of a linked program; no bytes if the driver provides none.
Image image_of(GLuint program);
/// Whether a program is linked.
bool is_linked(GLuint program);
std::string log_of(GLuint program);

/// The names of a program and of its entry point, which is not main in some SPIR-V modules.
struct ProgramName {
  std::string program;
  std::string entry = "main";
};

/// A program object for one launch at a time. The destructor may run on any thread.
class ProgramCopy {
 public:
  ProgramCopy(std::shared_ptr<ShareGroup> group, GLuint id) noexcept : group_(std::move(group)), id_(id) {}
  ~ProgramCopy() { group_->delete_program(id_); }
  ProgramCopy(const ProgramCopy&) = delete;
  ProgramCopy& operator=(const ProgramCopy&) = delete;
  GLuint id() const noexcept { return id_; }

 private:
  const std::shared_ptr<ShareGroup> group_;
  const GLuint id_;
};

/// The copies of one program. Plain uniforms and units are state of a program object, so each launch in flight
/// needs a program object of its own. Only copies can change: a thread may launch one copy while another makes the
/// next.
struct ProgramCopies {
  backend::Pool<ProgramCopy> pool;
  /// Held while the program is copied: drivers change it when they write its binary.
  base::Mutex copying;
};

/// A borrowed copy. The destructor returns it, on any thread; the module need not exist then.
class ProgramLoan {
 public:
  ProgramLoan(std::shared_ptr<ProgramCopies> of, backend::Pool<ProgramCopy>::Loan loan) noexcept
      : copies_(std::move(of)), loan_(std::move(loan)) {}

  GLuint id() const noexcept { return loan_->id(); }
  const ProgramCopies* copies() const noexcept { return copies_.get(); }
  /// Destroys the copy instead of returning it. For work whose end is unknown.
  void discard() noexcept { loan_.discard(); }

 private:
  // Destroyed after the loan.
  std::shared_ptr<ProgramCopies> copies_;
  backend::Pool<ProgramCopy>::Loan loan_;
};

/// Owns a program object.
class LinkedProgram final : public Module {
 public:
  /// Where the copies of a program come from: the driver's binary of it, or the shader object that is attached to
  /// it.
  enum class Origin { binary, shader };

  LinkedProgram(std::shared_ptr<ShareGroup> group, GLuint id, ProgramName name, std::size_t bytes,
                Origin origin) noexcept
      : group_(std::move(group)), id_(id), name_(std::move(name)), bytes_(bytes), origin_(origin) {}
  ~LinkedProgram() override { group_->delete_program(id_); }

  std::uint32_t id() const noexcept override { return id_; }
  const std::string& name() const noexcept override { return name_.program; }
  std::size_t bytes() const noexcept override { return bytes_; }
  std::vector<std::string> entries() const override { return {name_.entry}; }
  kiln::Module* entry(std::string_view name) noexcept override { return name == name_.entry ? this : nullptr; }
  /// The share group in which the program object exists.
  const ShareGroup& group() const noexcept { return *group_; }

  /// What a launch must give. The first call reads it from the driver.
  const ProgramInterface& interface() const;
  /// Makes all launches fail. Call it before the first one; `why` is as ProgramInterface::problem.
  void refuse_launches(std::string why) { problem_ = std::move(why); }

  /// A copy for one launch.
  Result<ProgramLoan> borrow() const;
  const ProgramCopies* copies() const noexcept { return copies_.get(); }

 private:
  Result<std::unique_ptr<ProgramCopy>> make_copy() const;

  const std::shared_ptr<ShareGroup> group_;
  const GLuint id_;
  const ProgramName name_;
  const std::size_t bytes_;
  const Origin origin_;
  std::string problem_;
  mutable std::once_flag interface_read_;
  mutable ProgramInterface interface_;
  const std::shared_ptr<ProgramCopies> copies_ = std::make_shared<ProgramCopies>();
};

}  // namespace kiln::opengl
