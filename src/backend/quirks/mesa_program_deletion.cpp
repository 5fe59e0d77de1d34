#include "backend/quirks/mesa_program_deletion.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace kiln::backend::quirks {
namespace {

std::string_view text_of(GLenum name) {
  const auto* text = reinterpret_cast<const char*>(glGetString(name));
  return text != nullptr ? text : "";
}

GLuint make_idle_program() {
  const char* source = "#version 430\nlayout(local_size_x = 1) in;\nvoid main() {}\n";
  return glCreateShaderProgramv(GL_COMPUTE_SHADER, 1, &source);
}

}  // namespace

bool MesaProgramDeletion::affects(std::string_view version, std::string_view renderer) {
  if (version.find("Mesa") == std::string_view::npos) return false;
  constexpr std::array<std::string_view, 3> drivers = {"llvmpipe", "softpipe", "SVGA3D"};
  return std::ranges::any_of(drivers, [&](std::string_view driver) { return renderer.starts_with(driver); });
}

bool MesaProgramDeletion::affects_current() { return affects(text_of(GL_VERSION), text_of(GL_RENDERER)); }

MesaProgramDeletion::Launch::Launch(MesaProgramDeletion& quirk, GLuint program) : quirk_(quirk) {
  {
    const base::MutexLock lock(quirk_.gate_mutex_);
    // Waiting deletions go first: they are rare and short.
    while (quirk_.deletions_waiting_ > 0) quirk_.gate_changed_.wait(quirk_.gate_mutex_);
    ++quirk_.launching_;
  }
  const base::MutexLock lock(quirk_.mutex_);
  quirk_.recover();
  if (program != 0) quirk_.last_launches_[quirk_.contexts_.current()].program = program;
}

MesaProgramDeletion::Launch::~Launch() {
  const base::MutexLock lock(quirk_.gate_mutex_);
  if (--quirk_.launching_ == 0 && quirk_.deletions_waiting_ > 0) quirk_.gate_changed_.notify_all();
}

bool MesaProgramDeletion::begin_deletion() {
  const base::MutexLock lock(gate_mutex_);
  ++deletions_waiting_;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while ((launching_ > 0 || deleting_) && std::chrono::steady_clock::now() < until)
    gate_changed_.wait_until(gate_mutex_, until);
  if (launching_ > 0 || deleting_) return false;
  return deleting_ = true;
}

void MesaProgramDeletion::end_deletion(bool began) {
  const base::MutexLock lock(gate_mutex_);
  --deletions_waiting_;
  if (began) deleting_ = false;
  gate_changed_.notify_all();
}

void MesaProgramDeletion::recover() {
  LastLaunch& last = last_launches_[contexts_.current()];
  if (last.deletions == deletions_) return;
  glFinish();
  launch_idle_programs();
  last = {0, deletions_};
}

void MesaProgramDeletion::let_go(void* context) {
  launch_idle_programs();
  last_launches_[context].program = 0;
}

void MesaProgramDeletion::launch_idle_programs() {
  // The context may be the application's, so restore its program.
  GLint before = 0;
  glGetIntegerv(GL_CURRENT_PROGRAM, &before);
  for (GLuint& program : idle_programs_) {
    if (program == 0) program = make_idle_program();
    glUseProgram(program);
    glDispatchCompute(1, 1, 1);
  }
  glUseProgram(static_cast<GLuint>(before));
}

std::vector<GLuint> MesaProgramDeletion::delete_programs(std::vector<GLuint> programs) {
  void* const here = contexts_.current();
  if (contexts_.application_has_other(here)) return programs;
  struct Deletion {
    explicit Deletion(MesaProgramDeletion& of) : quirk(of), began(quirk.begin_deletion()) {}
    ~Deletion() { quirk.end_deletion(began); }
    MesaProgramDeletion& quirk;
    const bool began;
  };
  const Deletion deletion(*this);
  if (!deletion.began) return programs;

  // No context launches programs now. Contexts that launched one of `programs` last must launch another one first.
  std::vector<void*> holding;
  {
    const base::MutexLock lock(mutex_);
    for (const auto& [context, last] : last_launches_)
      if (last.program != 0 && std::ranges::find(programs, last.program) != programs.end())
        holding.push_back(context);
  }
  contexts_.in_each_idle(holding, [this](void* context) {
    const base::MutexLock lock(mutex_);
    let_go(context);
  });

  const base::MutexLock lock(mutex_);
  // The application may have borrowed a context meanwhile, or `here` could not be made current again.
  if (contexts_.current() != here || contexts_.application_has_other(here)) return programs;
  if (std::ranges::find(programs, last_launches_[here].program) != programs.end()) let_go(here);
  const auto held = [this](GLuint program) KILN_REQUIRES(mutex_) {
    return std::ranges::any_of(last_launches_,
                               [&](const auto& launch) { return launch.second.program == program; });
  };
  std::vector<GLuint> later;
  for (const GLuint program : programs) {
    if (program != 0 && held(program)) {
      later.push_back(program);
      continue;
    }
    glDeleteProgram(program);
    ++deletions_;
  }
  return later;
}

void MesaProgramDeletion::delete_idle_programs() {
  const base::MutexLock lock(mutex_);
  for (GLuint& program : idle_programs_) glDeleteProgram(std::exchange(program, 0));
}

}  // namespace kiln::backend::quirks
